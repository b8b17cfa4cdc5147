package query

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
	// Services says that only ports of services are ports: that of the end that began
	// the conversation is 0.
	Services bool
}

func (by By) has(name string) bool {
	return slices.ContainsFunc(by.Keys, func(k Key) bool { return k.Name == name })
}

// keyDef is something one can group by: a field of records, or one that only rows have.
type keyDef struct {
	name, doc string
	field     *flow.Field // nil: of rows alone
	compare   func(a, b *Row) int
}

// keyDefs are the fields that records of a row have in common.
var keyDefs = func() (list []keyDef) {
	for _, f := range flow.FieldsMerged(flow.MergeKey) {
		doc, _, _ := strings.Cut(f.Doc, "; absent")
		switch f.Name {
		case "src":
			doc += "; src/24 cuts IPv4, src/64 IPv6, src/24/48 both"
		case "dst":
			doc += ", cut likewise"
		}
		list = append(list, keyDef{f.Name, doc, f, func(a, b *Row) int { return f.Compare(&a.Record, &b.Record) }})
	}
	return append(
		list,
		keyDef{hostKey, "host on which the packets were counted; an analyzer has several", flow.FieldNamed(hostKey), func(a, b *Row) int { return cmp.Compare(a.Host, b.Host) }},
		keyDef{"in", "interface on which the flow came in; none: it began at this host", nil, func(a, b *Row) int { return cmp.Compare(a.In, b.In) }},
		keyDef{"out", "interface on which the flow left; none: it ended at this host", nil, func(a, b *Row) int { return cmp.Compare(a.Out, b.Out) }},
	)
}()

// hostKey is not read of records: all that an engine has are of one host.
const hostKey = "host"

// The groups of services. Where ports are keys of themselves, all are meant.
const (
	peerService  = "peer_service"
	localService = "local_service"
)

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
	{peerService, "a service of other hosts, both ways; port 0: they are the clients", []string{"proto", "sport"}, FoldPeer},
	{localService, "a service of this host, both ways; port 0: it is the client", []string{"proto", "dport"}, FoldPeer},
}

var flowKeys = []string{"netns", "iface", "direction", "proto", "src", "sport", "dst", "dport", "vlan", "inner_vlan", "tunnel", "vni"}

// ByFlow merges the records of one flow.
func ByFlow() By {
	by, err := ParseBy("flow")
	if err != nil {
		panic("query: " + err.Error())
	}
	return by
}

// Whole reports whether rows are flows, none merged with another.
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
		by.Services = by.Services || name == peerService || name == localService
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
