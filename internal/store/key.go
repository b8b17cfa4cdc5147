package store

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/suggest"
)

// Key is one field to merge records by.
type Key struct {
	Name string // as in the JSON record

	// Bits an IPv4 and an IPv6 address are cut to; whole: 32 and 128.
	Bits4, Bits6 int
}

// String is the inverse of what ParseBy reads.
func (k Key) String() string {
	switch {
	case !k.address() || k.Bits4 == 32 && k.Bits6 == 128:
		return k.Name
	case k.Bits6 == 128:
		return k.Name + "/" + strconv.Itoa(k.Bits4)
	case k.Bits4 == 32 && k.Bits6 > 32:
		return k.Name + "/" + strconv.Itoa(k.Bits6)
	}
	return k.Name + "/" + strconv.Itoa(k.Bits4) + "/" + strconv.Itoa(k.Bits6)
}

func (k Key) address() bool { return k.Name == "src" || k.Name == "dst" }

// cut is the prefix of an address that the key tells apart.
func (k Key) cut(a netip.Addr) netip.Prefix {
	bits := k.Bits6
	if a.Is4() {
		bits = k.Bits4
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // of no address
	}
	return p
}

// Fold says whether both ways of a conversation are one row.
type Fold uint8

// With a fold, source and destination are swapped in some records, and what
// these count stands in Row.Back.
const (
	FoldNone         Fold = iota
	FoldPair              // two hosts: the smaller address is the source
	FoldConversation      // a client and a server: the initiator is the source; where it is not known, the lower port is the destination's
	FoldPeer              // this host and another: what is sent is turned, so the source is the other
)

// By says what records are grouped by.
type By struct {
	Keys []Key
	Fold Fold
}

// identity is what tells the rows of an answer apart. What is not asked for is
// zero.
type identity struct {
	iface, netns    string
	in, out         string
	src, dst        netip.Prefix
	vni             uint32
	sport, dport    uint16
	vlan, innerVLAN uint16
	proto, tos      uint8
	family          uint8
	direction       flow.Direction
	tunnel          flow.Tunnel
	unattributed    bool
}

// pass sets the keys that are known of a flow and not of a record.
func (i *identity) pass(picks []pick, in, out string) {
	for _, p := range picks {
		switch p.key.Name {
		case "in":
			i.in = in
		case "out":
			i.out = out
		}
	}
}

func (by By) has(name string) bool {
	return slices.ContainsFunc(by.Keys, func(k Key) bool { return k.Name == name })
}

// keyDefs are the fields one can group by.
var keyDefs = []struct {
	name, doc string
	endpoint  bool // an unattributed record has none
	pick      func(Key, *identity, *flow.Record)
	compare   func(a, b *Row) int
}{
	{
		name: "netns", doc: "network namespace",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.netns = r.Netns },
		compare: func(a, b *Row) int { return cmp.Compare(a.Netns, b.Netns) },
	},
	{
		name: "iface", doc: "interface",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.iface = r.Iface },
		compare: func(a, b *Row) int { return cmp.Compare(a.Iface, b.Iface) },
	},
	{
		name: "direction", doc: "ingress or egress",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.direction = r.Direction },
		compare: func(a, b *Row) int { return cmp.Compare(a.Direction, b.Direction) },
	},
	{
		name: "in", doc: "interface on which the flow came in; none: it began at this host",
		pick:    func(Key, *identity, *flow.Record) {}, // see identity.pass
		compare: func(a, b *Row) int { return cmp.Compare(a.In, b.In) },
	},
	{
		name: "out", doc: "interface on which the flow left; none: it ended at this host",
		pick:    func(Key, *identity, *flow.Record) {},
		compare: func(a, b *Row) int { return cmp.Compare(a.Out, b.Out) },
	},
	{
		name: "family", doc: "IP version",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.family = r.Family },
		compare: func(a, b *Row) int { return cmp.Compare(a.Family, b.Family) },
	},
	{
		name: "proto", doc: "protocol",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.proto = r.Proto },
		compare: func(a, b *Row) int { return cmp.Compare(a.Proto, b.Proto) },
	},
	{
		name: "src", doc: "source address; src/24 cuts IPv4, src/64 IPv6, src/24/48 both", endpoint: true,
		pick:    func(k Key, i *identity, r *flow.Record) { i.src = k.cut(r.Src) },
		compare: func(a, b *Row) int { return a.Src.Compare(b.Src) },
	},
	{
		name: "sport", doc: "source port", endpoint: true,
		pick:    func(_ Key, i *identity, r *flow.Record) { i.sport = r.SrcPort },
		compare: func(a, b *Row) int { return cmp.Compare(a.SrcPort, b.SrcPort) },
	},
	{
		name: "dst", doc: "destination address, cut likewise", endpoint: true,
		pick:    func(k Key, i *identity, r *flow.Record) { i.dst = k.cut(r.Dst) },
		compare: func(a, b *Row) int { return a.Dst.Compare(b.Dst) },
	},
	{
		name: "dport", doc: "destination port", endpoint: true,
		pick:    func(_ Key, i *identity, r *flow.Record) { i.dport = r.DstPort },
		compare: func(a, b *Row) int { return cmp.Compare(a.DstPort, b.DstPort) },
	},
	{
		name: "vlan", doc: "outer VLAN id",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.vlan = r.VLAN },
		compare: func(a, b *Row) int { return cmp.Compare(a.VLAN, b.VLAN) },
	},
	{
		name: "inner_vlan", doc: "inner VLAN id",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.innerVLAN = r.InnerVLAN },
		compare: func(a, b *Row) int { return cmp.Compare(a.InnerVLAN, b.InnerVLAN) },
	},
	{
		name: "tunnel", doc: "encapsulation that was taken off",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.tunnel = r.Tunnel },
		compare: func(a, b *Row) int { return cmp.Compare(a.Tunnel, b.Tunnel) },
	},
	{
		name: "vni", doc: "VXLAN or Geneve network, or GRE key",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.vni = r.VNI },
		compare: func(a, b *Row) int { return cmp.Compare(a.VNI, b.VNI) },
	},
	{
		name: "tos", doc: "DSCP × 4 + ECN of the first packet",
		pick:    func(_ Key, i *identity, r *flow.Record) { i.tos = r.TOS },
		compare: func(a, b *Row) int { return cmp.Compare(a.TOS, b.TOS) },
	},
}

// groups are names for several keys, some of which fold.
var groups = []struct {
	name, doc string
	keys      []string
	fold      Fold
}{
	{"flow", "what makes a flow: each one, in each direction, on each interface", flowKeys, FoldNone},
	{"transit", "each flow once, with the interfaces on which it came in and left", []string{"in", "out", "proto", "src", "sport", "dst", "dport"}, FoldNone},
	{"conversation", "both ways of a flow between client and server", []string{"proto", "src", "sport", "dst", "dport"}, FoldConversation},
	{"service", "a server's port, both ways", []string{"proto", "dport"}, FoldConversation},
	{"pair", "two hosts, both ways", []string{"src", "dst"}, FoldPair},
	{"session", "both ways of a flow between this host and a peer, which stands as the source", []string{"proto", "src", "sport", "dst", "dport"}, FoldPeer},
	{"peer", "the other host, both ways; peer/64 cuts it as src/64 does", []string{"src"}, FoldPeer},
	{"peer_port", "its port", []string{"sport"}, FoldPeer},
	{"peer_service", "a port of other hosts, both ways", []string{"proto", "sport"}, FoldPeer},
	{"local_service", "a port of this host, both ways", []string{"proto", "dport"}, FoldPeer},
}

var flowKeys = []string{"netns", "iface", "direction", "proto", "src", "sport", "dst", "dport", "vlan", "inner_vlan", "tunnel", "vni"}

// ByFlow merges the records of one flow.
func ByFlow() By {
	by, err := ParseBy("flow")
	if err != nil {
		panic("store: " + err.Error())
	}
	return by
}

// Whole tells whether rows are flows, none merged with another.
func (by By) Whole() bool {
	return by.Fold == FoldNone && slices.EqualFunc(by.Keys, flowKeys, func(k Key, name string) bool {
		return k == Key{name, 32, 128}
	})
}

// ParseBy reads a list with commas: "src/24,dport", "iface,conversation".
func ParseBy(text string) (By, error) {
	var by By
	for name := range strings.SplitSeq(text, ",") {
		if err := by.add(strings.TrimSpace(name)); err != nil {
			return By{}, err
		}
	}
	return by, nil
}

func (by *By) add(name string) error {
	if cut, ok := strings.CutPrefix(name, "peer/"); ok {
		if err := by.add("peer"); err != nil {
			return err
		}
		name = "src/" + cut
	}
	for _, g := range groups {
		if g.name != name {
			continue
		}
		if g.fold != FoldNone && by.Fold != FoldNone && by.Fold != g.fold {
			return fmt.Errorf("group by %s: not together with another fold", name)
		}
		by.Fold = max(by.Fold, g.fold)
		for _, key := range g.keys {
			by.addKey(Key{key, 32, 128})
		}
		return nil
	}
	k, err := parseKey(name)
	if err != nil {
		return err
	}
	by.addKey(k)
	return nil
}

// addKey adds a key once.
func (by *By) addKey(k Key) {
	for i := range by.Keys {
		if by.Keys[i].Name == k.Name {
			by.Keys[i] = k
			return
		}
	}
	by.Keys = append(by.Keys, k)
}

func parseKey(text string) (Key, error) {
	name, cut, hasCut := strings.Cut(text, "/")
	k := Key{name, 32, 128}
	if defOf(name) < 0 {
		return k, unknownKey(name)
	}
	if !hasCut {
		return k, nil
	}
	if !k.address() {
		return k, fmt.Errorf("group by %s: only src and dst can be cut to a prefix", text)
	}
	first, second, both := strings.Cut(cut, "/")
	n, err := strconv.ParseUint(first, 10, 8)
	if err == nil && both {
		var m uint64
		m, err = strconv.ParseUint(second, 10, 8)
		k.Bits4, k.Bits6 = int(n), int(m)
	} else if n <= 32 {
		k.Bits4 = int(n)
	} else {
		k.Bits6 = int(n)
	}
	if err != nil || k.Bits4 > 32 || k.Bits6 > 128 {
		return k, fmt.Errorf("group by %s: write %s/24 for IPv4, %s/64 for IPv6 or %s/24/48 for both", text, name, name, name)
	}
	return k, nil
}

func defOf(name string) int {
	for i := range keyDefs {
		if keyDefs[i].name == name {
			return i
		}
	}
	return -1
}

func unknownKey(name string) error {
	var known []string
	for _, g := range groups {
		known = append(known, g.name)
	}
	for _, k := range keyDefs {
		known = append(known, k.name)
	}
	if near := suggest.Nearest(name, known); near != "" {
		return fmt.Errorf("group by %q: did you mean %s?", name, near)
	}
	return fmt.Errorf("group by %q: there are %s", name, strings.Join(known, ", "))
}

// KeyDoc describes one key, or one name for several, for the reference page.
type KeyDoc struct{ Name, Doc string }

// KeyDocs describes what ParseBy knows.
func KeyDocs() []KeyDoc {
	var list []KeyDoc
	for _, g := range groups {
		list = append(list, KeyDoc{g.name, g.doc + " (" + strings.Join(g.keys, ", ") + ")"})
	}
	for _, k := range keyDefs {
		list = append(list, KeyDoc{k.name, k.doc})
	}
	return list
}
