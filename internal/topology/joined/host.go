package joined

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// reader takes the graph of a host apart.
type reader struct {
	host   *Host
	ifaces map[string]*iface
	others map[string]*timeline.Node
}

func (r *reader) node(n *timeline.Node) {
	switch n.Kind {
	case timeline.Iface:
		if n.Name == "" || r.ifaces[n.ID] != nil {
			return
		}
		i := &iface{netns: strings.TrimPrefix(strings.TrimPrefix(n.In, "host"), "netns/"), name: n.Name, kind: n.Link}
		if len(n.MAC) == len("00:00:00:00:00:00") && n.MAC != "00:00:00:00:00:00" && n.Link != "loopback" {
			i.mac = n.MAC
		}
		for _, text := range n.Addresses {
			if p, err := netip.ParsePrefix(text); err == nil && claimable(p.Addr()) {
				i.addresses = append(i.addresses, p.Addr())
			}
		}
		r.ifaces[n.ID] = i
		r.host.ifaces = append(r.host.ifaces, i)
	case timeline.IOAM:
		if n.In == "host" {
			r.host.nodes = append(r.host.nodes, n.Name)
		}
		r.others[n.ID] = n
	default:
		r.others[n.ID] = n
	}
}

// claimable: other addresses mean something on their link, or their host, alone.
func claimable(a netip.Addr) bool {
	return a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() && !a.IsUnspecified()
}

func (r *reader) edge(e timeline.Edge) {
	from, to := r.ifaces[e.From], r.ifaces[e.To]
	switch {
	case e.Kind == timeline.Path:
		if a, b := r.others[e.From], r.others[e.To]; a != nil && b != nil {
			r.host.follows = append(r.host.follows, [2]string{a.Name, b.Name})
		}
	case from == nil || to == nil:
	case e.Kind == timeline.Pair:
		from.peer, to.peer = to, from
		if from.netns != to.netns {
			r.host.pairs = append(r.host.pairs, [2]*iface{from, to})
		}
	case e.Kind == timeline.Lower && sharing[to.kind] && from.netns == to.netns:
		to.parent = from
	case e.Kind == timeline.Member && (bundling[to.kind] || to.kind == bridgeKind) && from.netns == to.netns:
		from.master = to
		to.ports = append(to.ports, from)
	}
}

// stacks finds which interfaces belong together.
func (r *reader) stacks() {
	above := map[*iface][]*iface{}
	for _, i := range r.host.ifaces {
		above[i.parent] = append(above[i.parent], i)
	}
	for _, i := range r.host.ifaces {
		if i.stack != nil {
			continue
		}
		s := &stack{host: r.host, first: i, macs: map[string]bool{}, learned: map[string]*iface{}}
		r.host.stacks = append(r.host.stacks, s)
		waiting := []*iface{i}
		for len(waiting) > 0 {
			one := waiting[len(waiting)-1]
			waiting = waiting[:len(waiting)-1]
			if one == nil || one.stack != nil {
				continue
			}
			one.stack = s
			if one.mac != "" {
				s.macs[one.mac] = true
			}
			waiting = append(append(waiting, one.parent, one.master), one.ports...)
			waiting = append(waiting, above[one]...)
		}
	}
}

// sources are how neighbours are known.
var sources = map[topology.Source]bool{topology.ARP: true, topology.NDP: true, topology.FDB: true, topology.Tunnel: true, topology.LLDP: true}

// see takes a neighbour on an interface.
func (r *reader) see(e timeline.Edge) {
	n, at := r.others[e.From], r.ifaces[e.To]
	if e.Kind != timeline.Link || at == nil || n == nil || n.Kind != timeline.Neighbour {
		return
	}
	s := sighting{at: at, mac: n.MAC, name: n.Name, port: n.Port}
	for _, how := range n.Known {
		if sources[topology.Source(how)] {
			s.how = append(s.how, how)
		}
	}
	if len(s.how) == 0 {
		return
	}
	for _, text := range n.Addresses {
		if a, err := netip.ParseAddr(text); err == nil && claimable(a) {
			s.addresses = append(s.addresses, a)
		}
	}
	r.host.seen = append(r.host.seen, s)
	if at.isPort() && slices.Contains(n.Known, string(topology.FDB)) {
		at.stack.learn(n.MAC, at.end())
	}
}

// attach has bridges know what is behind pairs of this host: own addresses are no neighbours.
func (r *reader) attach() {
	for _, i := range r.host.ifaces {
		if i.peer != nil && i.isPort() && i.peer.stack != i.stack {
			for mac := range i.peer.stack.macs {
				i.stack.learn(mac, i.end())
			}
		}
	}
}

func (i *iface) isPort() bool { return i.master != nil && i.master.kind == bridgeKind }

func (s *stack) learn(mac string, port *iface) {
	if before, known := s.learned[mac]; known && before != port {
		port = nil
	}
	s.learned[mac] = port
}

// deepest bounds how many interfaces lie on each other.
const deepest = 16

// end is the interface at which packets of a link are counted: what VLANs lie on, the bond of a port, and the port of a bridge
// that has one.
func (i *iface) end() *iface {
	for range deepest {
		switch {
		case i.parent != nil:
			i = i.parent
		case i.master != nil && bundling[i.master.kind]:
			i = i.master
		case i.kind == bridgeKind && len(i.ports) == 1:
			i = i.ports[0]
		default:
			return i
		}
	}
	return i
}

// exact reports whether all packets of a link pass an interface, and no others: a bridge has several ports.
func (i *iface) exact() bool { return i.kind != bridgeKind }

func (i *iface) as() End { return End{i.stack.host.Name, i.netns, i.name} }
