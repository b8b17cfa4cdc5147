package joined

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// port is a place where a cable ends, of a host or of a switch without an agent.
type port struct {
	of    *box
	name  string
	index uint32 // of the interface
	mac   string
	to    *port
}

// box is a host, or a switch that nobody asks.
type box struct {
	name    string
	host    bool
	bridge  bool // a host with br0 over its ports
	vlan    bool // its address is on a VLAN of its port
	ports   []*port
	address map[string]netip.Addr // by interface
	sources timeline.Sources
}

// world is boxes that hang together as a tree: frames have one way.
type world struct {
	rand  *rand.Rand
	boxes []*box
	macs  int
}

func (w *world) mac() string {
	w.macs++
	return fmt.Sprintf("02:00:00:00:%02x:%02x", w.macs>>8, w.macs&255)
}

func (w *world) add(name string, host, bridge bool) *box {
	b := &box{name: name, host: host, bridge: bridge, vlan: host && !bridge && w.rand.IntN(4) == 0, address: map[string]netip.Addr{}}
	w.boxes = append(w.boxes, b)
	return b
}

func (w *world) connect(a, b *box) {
	ends := [2]*port{}
	for i, of := range []*box{a, b} {
		n := len(of.ports)
		ends[i] = &port{of: of, name: fmt.Sprintf("eth%d", n), index: uint32(n + 2), mac: w.mac()}
		of.ports = append(of.ports, ends[i])
	}
	ends[0].to, ends[1].to = ends[1], ends[0]
}

// talks are the interface that has the address of a box in this network, and its link layer address.
func (b *box) talks() (name string, index uint32, mac string) {
	switch p := b.ports[0]; {
	case b.bridge:
		return "br0", 50, p.mac // as Linux has it: the one of a port
	case b.vlan:
		return p.name + ".7", p.index + 100, p.mac
	default:
		return p.name, p.index, p.mac
	}
}

// way is the ports that a frame passes from one box to another, in pairs: out, in.
func way(from, to *box, seen map[*box]bool) []*port {
	seen[from] = true
	for _, p := range from.ports {
		next := p.to.of
		if next == to {
			return []*port{p, p.to}
		}
		if seen[next] || next.host && !next.bridge {
			continue
		}
		if rest := way(next, to, seen); rest != nil {
			return append([]*port{p, p.to}, rest...)
		}
	}
	return nil
}

// frame has everybody on the way of a frame learn of its sender.
func (w *world) frame(from, to *box) {
	_, _, mac := from.talks()
	for _, p := range way(from, to, map[*box]bool{}) {
		if p.of != from && p.of.host && p.of.bridge && p.of.sender(p, from) {
			p.of.sources.Links.Neighbours = append(p.of.sources.Links.Neighbours, topology.Neighbour{IfIndex: p.index, MAC: mac, Source: topology.FDB})
		}
	}
	if to.host {
		name, index, _ := to.talks()
		_ = name
		to.sources.Links.Neighbours = append(to.sources.Links.Neighbours, topology.Neighbour{IfIndex: index, MAC: mac, Addr: from.address["own"], Source: topology.ARP})
	}
}

// sender reports whether a port is the one where frames of a box come in.
func (b *box) sender(p *port, from *box) bool {
	list := way(b, from, map[*box]bool{})
	return len(list) > 0 && list[0] == p
}

// build makes what the agents of hosts send.
func (w *world) build() (hosts []*Host) {
	for _, b := range w.boxes {
		if !b.host {
			continue
		}
		b.sources.Host, b.sources.Neighbours, b.sources.Links.Netns = b.name, 64, []string{""}
		node := func(name, kind string, index uint32, mac string) topology.Node {
			return topology.Node{Link: topology.Link{Name: name, Kind: kind, IfIndex: index, MAC: mac, LinkType: "ether", Up: true}}
		}
		ref := func(name string, index uint32) *topology.Ref {
			return &topology.Ref{Name: name, IfIndex: index, Known: true}
		}
		for _, p := range b.ports {
			n := node(p.name, "physical", p.index, p.mac)
			if b.bridge {
				n.Master = ref("br0", 50)
			}
			b.sources.Links.Nodes = append(b.sources.Links.Nodes, n)
		}
		name, index, mac := b.talks()
		switch {
		case b.bridge:
			b.sources.Links.Nodes = append(b.sources.Links.Nodes, node(name, "bridge", index, mac))
		case b.vlan:
			n := node(name, "vlan", index, mac)
			n.Parent = ref(b.ports[0].name, b.ports[0].index)
			b.sources.Links.Nodes = append(b.sources.Links.Nodes, n)
		}
		for i := range b.sources.Links.Nodes {
			if n := &b.sources.Links.Nodes[i]; n.Name == name {
				n.Addresses = []netip.Prefix{netip.PrefixFrom(b.address["own"], 24)}
			}
		}
		g := timeline.Build(b.sources)
		g.Since = time.Unix(1, 0)
		hosts = append(hosts, Of(b.name, &g))
	}
	return hosts
}

// draw makes a tree of hosts, bridges and switches, in which only leaves do not forward.
func draw(r *rand.Rand) *world {
	w := &world{rand: r}
	inner := []*box{w.add("b0", r.IntN(2) == 0, true)}
	for i := range 1 + r.IntN(4) {
		b := w.add(fmt.Sprintf("b%d", i+1), r.IntN(3) > 0, true)
		w.connect(inner[r.IntN(len(inner))], b)
		inner = append(inner, b)
	}
	for i := range 3 + r.IntN(4) {
		w.connect(inner[r.IntN(len(inner))], w.add(fmt.Sprintf("h%d", i), true, false))
	}
	for i, b := range w.boxes {
		b.address["own"] = netipOf(i)
	}
	return w
}

func netipOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}) }

// truth is which ports of hosts are on one link: with switches between them, at most.
func (w *world) truth() map[[2]End]bool {
	all := map[[2]End]bool{}
	var reach func(p *port, seen map[*box]bool) []*port
	reach = func(p *port, seen map[*box]bool) (list []*port) {
		to := p.to
		if to.of.host {
			return []*port{to}
		}
		if seen[to.of] {
			return nil
		}
		seen[to.of] = true
		for _, q := range to.of.ports {
			if q != to {
				list = append(list, reach(q, seen)...)
			}
		}
		return list
	}
	for _, b := range w.boxes {
		for _, p := range b.ports {
			for _, q := range reach(p, map[*box]bool{}) {
				if a, z := (End{b.name, "", p.name}), (End{q.of.name, "", q.name}); b.host && compareEnds(a, z) < 0 {
					all[[2]End{a, z}] = true
				}
			}
		}
	}
	return all
}

// TestJoinRandom draws networks. Where everybody has talked to everybody, all links are found, and no others; where only some
// have, none is found that is not there, whatever bridges have not learned.
func TestJoinRandom(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := draw(r)
		whole := r.IntN(2) == 0
		for _, a := range w.boxes {
			for _, b := range w.boxes {
				silent := !whole && (a.bridge && b.bridge || r.IntN(3) == 0)
				if a != b && a.host && b.host && a.name < b.name && !silent {
					w.frame(a, b)
					w.frame(b, a)
				}
			}
		}
		joined := Join(w.build())
		truth := w.truth()
		for _, l := range joined.Links {
			if !truth[[2]End{l.A, l.B}] && l.exact {
				t.Errorf("seed %d, all talk %v: %v is no link: %+v", seed, whole, l, joined.Ambiguous)
			}
			delete(truth, [2]End{l.A, l.B})
		}
		if whole && len(truth) > 0 {
			t.Errorf("seed %d: not found: %v; found %v, ambiguous %v", seed, truth, joined.Links, joined.Ambiguous)
		}
	}
}

// TestJoinOrder: the same hosts give the same topology, in whatever order they come.
func TestJoinOrder(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := draw(r)
		for _, a := range w.boxes {
			for _, b := range w.boxes {
				if a != b && a.host && b.host && r.IntN(2) == 0 {
					w.frame(a, b)
				}
			}
		}
		hosts := w.build()
		want := Join(hosts)
		for range 5 {
			r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			if got := Join(hosts); !reflect.DeepEqual(got.Links, want.Links) || !reflect.DeepEqual(got.Ambiguous, want.Ambiguous) {
				t.Fatalf("seed %d: %v, want %v", seed, got, want)
			}
		}
	}
}
