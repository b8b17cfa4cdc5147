package ioam

import (
	"net/netip"
	"testing"

	"github.com/waymark-net/waymark/internal/inband/policy"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// A packet gets the insertion with the longest prefix among those that name it, by protocol, ports,
// interface and roles too; and what is known of a flow changes with the configuration.
func (h *host) insertionPolicies(t *testing.T) {
	n := inserting(t)
	n.Interfaces[0].Exceptions = map[uint16]Role{spaceB: RoleIngress}
	space := func(space uint16) wire.Body { return &wire.E2E{Namespace: space, Type: wire.E2EFraction} }
	add := func(name, prefix string, body wire.Body, change func(*Insertion)) {
		in := insertionTo(prefix, body)
		in.Name = name
		change(&in)
		n.Insertions = append(n.Insertions, in)
	}
	tunnel := &Tunnel{Source: netip.MustParseAddr("2001:db8::1"), Destination: netip.MustParseAddr("2001:db8::2")}
	same := func(*Insertion) {}
	add("all", "::/0", space(spaceA), same)
	add("host, tcp", hostB+"/128", space(spaceA), func(in *Insertion) { in.Policy.Protos = []uint8{6} })
	add("net", "2001:db8:b::/48", space(spaceA), func(in *Insertion) { in.Policy.Ports = []policy.Ports{{From: 53, To: 53}, {From: 80, To: 90}} })
	add("tunnel", "2001:db8:c::/48", space(spaceA), func(in *Insertion) { in.Tunnel = tunnel })
	add("other interface", "2001:db8:d::/48", space(spaceA), func(in *Insertion) { in.Policy.Interface = toName })
	add("no role", "2001:db8:e::/48", space(spaceB), same)
	add("second", "::/0", space(spaceA), same)
	for _, c := range []struct {
		to           string
		sport, dport uint16
		forwarded    bool
		want         string // empty: none
	}{
		{hostB, 1, 2, false, "all"},
		{hostB, 1, 53, false, "net"},
		{hostB, 85, 2, false, "net"},
		{hostB, 1, 91, false, "all"},
		{"2001:db8:c::1", 1, 2, false, "tunnel"},
		{"2001:db8:c::1", 1, 2, true, "tunnel"},
		{hostB, 1, 53, true, ""}, // forwarded, and inline
		{"2001:db8:d::1", 1, 2, false, "all"},
		{"2001:db8:e::1", 1, 2, false, "all"},
		{"ff02::1", 1, 2, false, ""},
		{"fe80::1", 1, 2, false, ""},
	} {
		h.names(t, n, c.to, c.sport, c.dport, c.forwarded, c.want)
		open := n
		open.ClosedDomain = true
		if want := c.want; c.forwarded && want == "" {
			h.names(t, open, c.to, c.sport, c.dport, true, "net")
		}
		h.names(t, node(), c.to, c.sport, c.dport, c.forwarded, "")
	}
	reasons := map[string]uint64{}
	counts, err := h.node.Counts()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		reasons[c.Reason] += c.Packets
	}
	if reasons["address"] != 4 || reasons["forwarded"] != 2 {
		t.Errorf("counted %v", reasons)
	}
}

// names sends two packets of a flow, of which the second finds the answer of the first.
func (h *host) names(t *testing.T, n Node, to string, sport, dport uint16, forwarded bool, want string) {
	t.Helper()
	if err := h.node.Apply(n); err != nil {
		t.Fatal(err)
	}
	before, err := h.node.InsertionCounts()
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	if forwarded {
		received = h.veth.To
	}
	h.inside(t, func() {
		for range 2 {
			if _, verdict := h.insert(t, datagram(to, sport, dport), 2, received); (verdict == written) != (want != "") {
				t.Errorf("to %s, ports %d and %d, forwarded %t: verdict %d, want %q", to, sport, dport, forwarded, verdict, want)
			}
		}
	})
	after, err := h.node.InsertionCounts()
	if err != nil {
		t.Fatal(err)
	}
	for i, in := range n.Insertions {
		got := after[i].Inserted - before[i].Inserted
		if expected := in.Name == want; expected != (got == 2) || !expected && got != 0 {
			t.Errorf("to %s, ports %d and %d, forwarded %t: %d packets with %q, want %q", to, sport, dport, forwarded, got, in.Name, want)
		}
	}
}
