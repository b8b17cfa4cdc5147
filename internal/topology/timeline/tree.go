package timeline

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/term"
)

// tree prints a graph as text.
type tree struct {
	nodes    map[string]*Node
	children map[string][]string
	child    map[string]bool
	peers    map[string]string
	printed  map[string]bool
	out      strings.Builder
}

// WriteTree prints what lies in each namespace: ports below their bridge, what lies on an interface below it, and
// neighbours below the interface of their link.
func WriteTree(w io.Writer, g *Graph) error {
	t := tree{nodes: map[string]*Node{}, children: map[string][]string{}, child: map[string]bool{}, peers: map[string]string{}, printed: map[string]bool{}}
	for i := range g.Nodes {
		t.nodes[g.Nodes[i].ID] = &g.Nodes[i]
	}
	for _, e := range g.Edges {
		switch e.Kind {
		case Pair:
			t.peers[e.From], t.peers[e.To] = e.To, e.From
		case Lower:
			t.put(e.From, e.To)
		case Member, Link:
			t.put(e.To, e.From)
		}
	}
	for _, place := range g.Nodes {
		if place.Kind == Host || place.Kind == Netns {
			fmt.Fprintf(&t.out, "%s %s\n", place.Kind, term.Printable(place.Name))
			t.list(t.top(g, place.ID), "")
		}
	}
	for _, e := range g.Edges {
		if e.Kind == Path {
			fmt.Fprintf(&t.out, "ioam path %s → %s\n", t.nodes[e.From].Name, t.nodes[e.To].Name)
		}
	}
	if g.Hidden > 0 {
		fmt.Fprintf(&t.out, "%d more neighbours are not shown; topology.neighbours sets how many are\n", g.Hidden)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

func (t *tree) put(parent, child string) {
	t.children[parent] = append(t.children[parent], child)
	t.child[child] = true
}

// top are the interfaces of a place that lie below no other; on a ring, the first of it.
func (t *tree) top(g *Graph, place string) (ids []string) {
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Kind == Iface && n.In == place && !t.child[n.ID] {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func (t *tree) list(ids []string, indent string) {
	slices.Sort(ids)
	for i, id := range ids {
		branch, below := "├─ ", "│  "
		if i == len(ids)-1 {
			branch, below = "└─ ", "   "
		}
		n := t.nodes[id]
		text := n.label()
		if n.Kind == Neighbour {
			text = "neighbour " + text
		}
		if peer, ok := t.peers[id]; ok {
			text += " ⇄ " + strings.TrimPrefix(strings.TrimPrefix(peer, "interface/"), "/")
		}
		fmt.Fprintf(&t.out, "%s%s%s\n", indent, branch, term.Printable(text))
		if !t.printed[id] {
			t.printed[id] = true
			t.list(t.children[id], indent+below)
		}
	}
}

// WriteDot prints a graph for Graphviz, with the tiers of the picture.
func WriteDot(w io.Writer, g *Graph) error {
	var b strings.Builder
	b.WriteString("graph waymark {\n  rankdir=LR;\n  node [shape=box];\n")
	clusters := map[string][]*Node{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind != Host && n.Kind != Netns {
			clusters[n.In] = append(clusters[n.In], n)
		}
	}
	for _, place := range append([]Node{{}}, g.Nodes...) {
		if place.ID != "" && place.Kind != Host && place.Kind != Netns {
			continue
		}
		if place.ID != "" {
			fmt.Fprintf(&b, "  subgraph %q {\n    label=%q;\n", "cluster "+place.ID, place.Name)
		}
		for _, n := range clusters[place.ID] {
			fmt.Fprintf(&b, "    %q [label=%q];\n", n.ID, n.label())
		}
		if place.ID != "" {
			b.WriteString("  }\n")
		}
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, "  %q -- %q [label=%q];\n", e.From, e.To, e.Kind)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
