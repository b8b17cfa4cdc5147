package joined

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/topology"
)

// Bounds of an answer.
const (
	mostLinks     = 10_000
	mostAmbiguous = 1000
	mostClaims    = 16
	mostSteps     = 100_000_000 // a second or two
)

// How a link was found, besides the sources of neighbours.
const (
	byPair = "pair"
	byIOAM = "ioam"
)

// adjacency is two stacks, of which one at least has seen the other.
type adjacency struct {
	stacks [2]*stack
	at     [2]map[*iface]bool // ends at which the other stack was seen
	owned  [2]map[*iface]bool // ends of interfaces that the other stack saw
	how    map[string]bool
}

type joiner struct {
	hosts     []*Host
	macs      map[string][]*iface
	addresses map[netip.Addr][]*iface
	names     map[string]*Host
	learners  map[string][]*stack // bridges that know a link layer address
	next      map[[2]*stack]*adjacency
	order     []*adjacency
	links     map[[2]End]*Link
	doubts    map[[2]string]*Ambiguity
	tunnels   map[tunnelsOf][]*iface
	steps     int // left of those that finding what is between two interfaces takes
	unsought  int // pairs of interfaces for which none were left
}

// tunnelsOf are the tunnels of a kind that a host has to another one.
type tunnelsOf struct {
	host, to *Host
	kind     string
}

// Join makes one topology. The same hosts give the same one, in whatever order they are.
func Join(hosts []*Host) *Topology {
	hosts = slices.Clone(hosts)
	order.By(hosts, func(a, b *Host) int { return cmp.Compare(a.Name, b.Name) })
	j := &joiner{
		hosts: hosts, macs: map[string][]*iface{}, addresses: map[netip.Addr][]*iface{}, names: map[string]*Host{},
		learners: map[string][]*stack{}, next: map[[2]*stack]*adjacency{}, links: map[[2]End]*Link{}, doubts: map[[2]string]*Ambiguity{},
		tunnels: map[tunnelsOf][]*iface{}, steps: mostSteps,
	}
	t := &Topology{Hosts: []Summary{}, nodes: map[string]string{}, own: map[netip.Addr]End{}}
	for _, h := range hosts {
		j.names[h.Name] = h
		j.claim(h)
		t.Hosts = append(t.Hosts, Summary{h.Name, h.since, len(h.ifaces), h.hidden})
	}
	j.unclear()
	for a, list := range j.addresses {
		if end := list[0].end(); len(placesOf(list)) == 1 && end.exact() {
			t.own[a] = end.as()
		}
	}
	for _, h := range hosts {
		for i := range h.seen {
			j.see(&h.seen[i])
		}
		for _, p := range h.pairs {
			j.link(p[0].as(), p[1].as(), true, byPair)
		}
	}
	for _, a := range j.order {
		j.connect(a)
	}
	j.traces(t)
	j.finish(t)
	return t
}

// claim takes in what a host says of itself.
func (j *joiner) claim(h *Host) {
	for _, i := range h.ifaces {
		if i.mac != "" {
			j.macs[i.mac] = append(j.macs[i.mac], i)
		}
		for _, a := range i.addresses {
			j.addresses[a] = append(j.addresses[a], i)
		}
	}
	for _, s := range h.stacks {
		for mac, port := range s.learned {
			if port != nil {
				j.learners[mac] = append(j.learners[mac], s)
			}
		}
	}
}

// unclear notes what several claim.
func (j *joiner) unclear() {
	for mac, list := range j.macs {
		if len(stacksOf(list)) > 1 || isVirtual(mac) {
			j.doubt(DoubtMAC, mac, list)
		}
	}
	for a, list := range j.addresses {
		if len(placesOf(list)) > 1 {
			j.doubt(DoubtAddress, a.String(), list)
		}
	}
}

// isVirtual: addresses that routers have in turn (VRRP, HSRP, GLBP).
func isVirtual(mac string) bool {
	for _, prefix := range []string{"00:00:5e:00:01:", "00:00:5e:00:02:", "00:00:0c:07:ac:", "00:00:0c:9f:f", "00:07:b4:"} {
		if strings.HasPrefix(mac, prefix) {
			return true
		}
	}
	return false
}

func stacksOf(list []*iface) (all []*stack) {
	for _, i := range list {
		if !slices.Contains(all, i.stack) {
			all = append(all, i.stack)
		}
	}
	return all
}

// placesOf are the namespaces of interfaces.
func placesOf(list []*iface) map[End]bool {
	all := map[End]bool{}
	for _, i := range list {
		all[End{i.stack.host.Name, i.netns, ""}] = true
	}
	return all
}

func (j *joiner) doubt(kind Doubt, value string, list []*iface) *Ambiguity {
	key := [2]string{string(kind), value}
	d := j.doubts[key]
	if d != nil {
		return d
	}
	d = &Ambiguity{Kind: kind, Value: value, Claims: []End{}}
	j.doubts[key] = d
	for _, i := range list {
		d.Claims = append(d.Claims, i.as())
	}
	order.By(d.Claims, compareEnds)
	d.More = max(0, len(d.Claims)-mostClaims)
	d.Claims = d.Claims[:len(d.Claims)-d.More]
	return d
}

func compareEnds(a, b End) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface))
}

// see finds whose a neighbour is.
func (j *joiner) see(s *sighting) {
	if slices.Equal(s.how, []string{string(topology.Tunnel)}) {
		j.tunnel(s)
		return
	}
	if owner := j.owner(s); owner != nil {
		j.adjacent(s, owner)
	}
}

// owner is the interface of a neighbour; nil: nobody's, or not decided.
func (j *joiner) owner(s *sighting) *iface {
	list := slices.DeleteFunc(slices.Clone(j.macs[s.mac]), func(i *iface) bool { return i.stack.host == s.at.stack.host })
	if len(list) == 0 {
		return j.announced(s)
	}
	switch isVirtual, stacks := isVirtual(s.mac), stacksOf(list); {
	case isVirtual:
		list = nil
	case len(stacks) > 1: // who has both the link layer address and the address is the one
		list = slices.DeleteFunc(list, func(i *iface) bool {
			return !slices.ContainsFunc(j.of(s.addresses), func(o *iface) bool { return o.stack == i.stack })
		})
	}
	if len(stacksOf(list)) != 1 {
		j.doubts[[2]string{string(DoubtMAC), s.mac}].Unused++
		return nil
	}
	return list[0]
}

// of are the interfaces that have one of some addresses.
func (j *joiner) of(addresses []netip.Addr) (list []*iface) {
	for _, a := range addresses {
		list = append(list, j.addresses[a]...)
	}
	return list
}

// announced is who gave name and port in an announcement.
func (j *joiner) announced(s *sighting) *iface {
	if !slices.Contains(s.how, string(topology.LLDP)) {
		return nil
	}
	h := j.names[s.name]
	if short, _, cut := strings.Cut(s.name, "."); h == nil && cut {
		h = j.names[short]
	}
	if h == nil || h == s.at.stack.host {
		return nil
	}
	for _, i := range h.ifaces {
		if i.netns == "" && i.name == s.port {
			return i
		}
	}
	return nil
}

// adjacent notes that a stack saw another one.
func (j *joiner) adjacent(s *sighting, owner *iface) {
	from, to := s.at.stack, owner.stack
	key, mine := [2]*stack{from, to}, 0
	if compareStacks(from, to) > 0 {
		key, mine = [2]*stack{to, from}, 1
	}
	a := j.next[key]
	if a == nil {
		a = &adjacency{stacks: key, how: map[string]bool{}}
		for side := range 2 {
			a.at[side], a.owned[side] = map[*iface]bool{}, map[*iface]bool{}
		}
		j.next[key] = a
		j.order = append(j.order, a)
	}
	a.at[mine][s.at.end()] = true
	a.owned[1-mine][owner.end()] = true
	for _, how := range s.how {
		a.how[how] = true
	}
	if port := named(owner, s.port); port != nil && a.how[string(topology.LLDP)] {
		a.at[1-mine][port.end()] = true
	}
}

// named is the interface of a stack that an announcement names.
func named(i *iface, port string) *iface {
	for _, o := range i.stack.host.ifaces {
		if o.stack == i.stack && port != "" && (o.name == port || o.mac == port) {
			return o
		}
	}
	return nil
}

func compareStacks(a, b *stack) int {
	return cmp.Or(cmp.Compare(a.host.Name, b.host.Name), cmp.Compare(a.first.netns, b.first.netns), cmp.Compare(a.first.name, b.first.name))
}

// connect makes links of an adjacency.
func (j *joiner) connect(a *adjacency) {
	var ends [2][]*iface
	for side := range 2 {
		list := sorted(a.at[side])
		if ports := slices.DeleteFunc(slices.Clone(list), func(i *iface) bool { return !i.exact() }); len(ports) > 0 {
			list = ports
		}
		if len(list) == 0 {
			list = sorted(a.owned[side])
		}
		ends[side] = list
	}
	direct := a.how[string(topology.LLDP)] // bridges do not forward announcements
	for _, x := range ends[0] {
		for _, y := range ends[1] {
			if direct || !j.separated(x, y) {
				j.link(x.as(), y.as(), x.exact() && y.exact(), slices.Collect(maps.Keys(a.how))...)
			}
		}
	}
}

func sorted(set map[*iface]bool) []*iface {
	list := slices.Collect(maps.Keys(set))
	order.By(list, func(a, b *iface) int { return compareEnds(a.as(), b.as()) })
	return list
}

// link notes a link, or one more way in which it was found.
func (j *joiner) link(a, b End, exact bool, how ...string) {
	if compareEnds(a, b) > 0 {
		a, b = b, a
	}
	l := j.links[[2]End{a, b}]
	if l == nil {
		l = &Link{A: a, B: b, exact: exact}
		j.links[[2]End{a, b}] = l
	}
	for _, one := range how {
		if !slices.Contains(l.Found, one) {
			l.Found = append(l.Found, one)
		}
	}
	slices.Sort(l.Found)
}

// tunnel finds the other end of one.
func (j *joiner) tunnel(s *sighting) {
	for _, a := range s.addresses {
		owners := slices.DeleteFunc(slices.Clone(j.addresses[a]), func(i *iface) bool { return i.stack.host == s.at.stack.host })
		places := placesOf(owners)
		switch {
		case len(places) > 1:
			j.doubts[[2]string{string(DoubtAddress), a.String()}].Unused++
			continue
		case len(places) == 0:
			continue
		}
		h := owners[0].stack.host
		switch ends := j.facing(h, s.at); len(ends) {
		case 0:
			j.link(s.at.as(), End{Host: h.Name}, false, string(topology.Tunnel))
		case 1:
			j.link(s.at.as(), ends[0].as(), true, string(topology.Tunnel))
		default:
			j.doubt(DoubtTunnel, s.at.as().String()+" to "+a.String(), ends).Unused++
		}
	}
}

// facing are the tunnels of a host that end at the host of another one of their kind.
func (j *joiner) facing(h *Host, other *iface) (list []*iface) {
	key := tunnelsOf{h, other.stack.host, other.kind}
	if list, known := j.tunnels[key]; known {
		return list
	}
	for i := range h.seen {
		s := &h.seen[i]
		if s.at.kind == other.kind && slices.Contains(s.how, string(topology.Tunnel)) && !slices.Contains(list, s.at) &&
			slices.ContainsFunc(j.of(s.addresses), func(i *iface) bool { return i.stack.host == other.stack.host }) {
			list = append(list, s.at)
		}
	}
	j.tunnels[key] = list
	return list
}

// traces adds what IOAM says of the order of nodes.
func (j *joiner) traces(t *Topology) {
	claims := map[string][]*Host{}
	for _, h := range j.hosts {
		for _, id := range h.nodes {
			claims[id] = append(claims[id], h)
		}
	}
	for id, list := range claims {
		if len(list) == 1 {
			t.nodes[id] = list[0].Name
			continue
		}
		d := j.doubt(DoubtNode, id, nil)
		for _, h := range list {
			d.Claims = append(d.Claims, End{Host: h.Name})
		}
	}
	pairs := map[[2]string]bool{} // whether there is a link
	for _, h := range j.hosts {
		for _, pair := range h.follows {
			if a, b := t.nodes[pair[0]], t.nodes[pair[1]]; a != "" && b != "" && a != b {
				pairs[[2]string{min(a, b), max(a, b)}] = false
			}
		}
	}
	for key, l := range j.links {
		if pair := [2]string{l.A.Host, l.B.Host}; l.A.Host != l.B.Host && has(pairs, pair) {
			pairs[pair] = true
			j.link(key[0], key[1], l.exact, byIOAM)
		}
	}
	for pair, linked := range pairs {
		if !linked { // by which interfaces is not known
			j.link(End{Host: pair[0]}, End{Host: pair[1]}, false, byIOAM)
		}
	}
}

func has[K comparable, V any](m map[K]V, key K) bool {
	_, ok := m[key]
	return ok
}

// between reports whether a link is between the namespaces of two ends.
func (l *Link) between(a, b End) bool {
	a.Iface, b.Iface = l.A.Iface, l.B.Iface
	return l.A == a && l.B == b || l.A == End{b.Host, b.Netns, l.A.Iface} && l.B == End{a.Host, a.Netns, l.B.Iface}
}

func (j *joiner) finish(t *Topology) {
	for _, l := range j.links {
		t.all = append(t.all, *l)
	}
	order.By(t.all, func(a, b Link) int { return cmp.Or(compareEnds(a.A, b.A), compareEnds(a.B, b.B)) })
	t.Links, t.Unsought = []Link{}, j.unsought
	for _, l := range t.all {
		if l.A.Host != l.B.Host { // of links within a host, its own topology has all
			t.Links = append(t.Links, l)
		}
	}
	t.MoreLinks = max(0, len(t.Links)-mostLinks)
	t.Links = t.Links[:len(t.Links)-t.MoreLinks]
	t.Ambiguous = []Ambiguity{}
	for _, d := range j.doubts {
		if d.Kind == DoubtBridges && slices.ContainsFunc(t.all, func(l Link) bool { return l.between(d.Claims[0], d.Claims[1]) }) {
			continue
		}
		t.Ambiguous = append(t.Ambiguous, *d)
	}
	order.By(t.Ambiguous, func(a, b Ambiguity) int {
		return cmp.Or(cmp.Compare(b.Unused, a.Unused), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Value, b.Value))
	})
	t.MoreUnclear = max(0, len(t.Ambiguous)-mostAmbiguous)
	t.Ambiguous = t.Ambiguous[:len(t.Ambiguous)-t.MoreUnclear]
}
