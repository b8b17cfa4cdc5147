package joined

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// Picture is the topology as a graph: the interfaces of links, next to each other in their hosts.
func (t *Topology) Picture() timeline.Graph {
	g := timeline.Graph{Nodes: []timeline.Node{}, Edges: []timeline.Edge{}}
	count, known := map[string]int{}, map[string]bool{}
	for _, h := range t.Hosts {
		g.Nodes = append(g.Nodes, timeline.Node{ID: "host/" + h.Name, Kind: timeline.Host, Name: h.Name, Tier: -1})
		g.Hidden += h.Hidden
		if h.Since.After(g.Since) {
			g.Since = h.Since
		}
	}
	node := func(e End, found []string) string {
		id := "end/" + e.Host + "/" + e.Netns + "/" + e.Iface
		if !known[id] {
			known[id] = true
			name := e.Iface
			switch {
			case name == "":
				name = "?"
			case e.Netns != "":
				name = e.Netns + "/" + name
			}
			g.Nodes = append(g.Nodes, timeline.Node{ID: id, Kind: timeline.Iface, Name: name, In: "host/" + e.Host, Known: found, Up: true, Tier: count[e.Host]})
			count[e.Host]++
		}
		return id
	}
	for _, l := range t.Links {
		a, b := node(l.A, l.Found), node(l.B, l.Found)
		g.Edges = append(g.Edges, timeline.Edge{Kind: timeline.Link, From: a, To: b})
	}
	return g
}

// Write prints what a person reads.
func (t *Topology) Write(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "HOST\tINTERFACES\tTOPOLOGY SINCE")
	for _, h := range t.Hosts {
		since := "not sent"
		if !h.Since.IsZero() {
			since = h.Since.Local().Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(out, "%s\t%d\t%s\n", h.Name, h.Interfaces, since)
	}
	fmt.Fprintln(out, "\nLINK\t\tFOUND BY")
	for _, l := range t.Links {
		fmt.Fprintf(out, "%s\t%s\t%s\n", term.Printable(l.A.String()), term.Printable(l.B.String()), strings.Join(l.Found, ", "))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	more(w, t.MoreLinks, "links")
	more(w, t.Unsought, "neighbours of which it would take too long to find what is between")
	for i, d := range t.Ambiguous {
		if i == 0 {
			fmt.Fprintln(w, "\nAMBIGUOUS")
		}
		claims := make([]string, 0, len(d.Claims))
		for _, e := range d.Claims {
			claims = append(claims, e.String())
		}
		text := fmt.Sprintf("%s %s: %s (%s)", d.Kind, d.Value, strings.Join(claims, ", "), Reasons[d.Kind])
		if d.More > 0 {
			text += fmt.Sprintf(", and %d more", d.More)
		}
		if d.Unused > 0 {
			text += fmt.Sprintf("; %d neighbours led to no link", d.Unused)
		}
		if _, err := fmt.Fprintln(w, term.Printable(text)); err != nil {
			return err
		}
	}
	more(w, t.MoreUnclear, "ambiguities")
	for _, h := range t.Hosts {
		if h.Hidden > 0 {
			fmt.Fprintf(w, "%s has %d more neighbours than it keeps: links may be missing; set topology.neighbours there to more\n", h.Name, h.Hidden)
		}
	}
	return nil
}

func more(w io.Writer, n int, what string) {
	if n > 0 {
		fmt.Fprintf(w, "and %d more %s\n", n, what)
	}
}
