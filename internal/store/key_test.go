package store

import (
	"fmt"
	"net/netip"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

func TestKeys(t *testing.T) {
	v6 := flow.Record{
		Iface: "eth1", Netns: "blue", Family: 6, Proto: 6, SrcPort: 40000, DstPort: 443, VLAN: 7, TOS: 8, Counters: flow.Counters{Bytes: 1000, Packets: 2},
		Src: netip.MustParseAddr("2001:db8:0:1::1"), Dst: netip.MustParseAddr("2001:db8:0:2::1"), First: at(1), Last: at(2),
	}
	back := v6
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Bytes = v6.Dst, v6.Src, 443, 40000, 9000
	lost := flow.Record{Iface: "eth0", Family: 6, Proto: 17, Counters: flow.Counters{Bytes: 7, Packets: 1}, Unattributed: true, First: at(1), Last: at(1)}
	s := New(Default())
	fill(s, 0, 10, record(1, 1, 10), record(2, 1, 20), record(3, 9, 30), v6, back, lost)

	for _, tt := range []struct {
		by   string
		want []string
	}{
		{"src/24", []string{"2001:db8:0:2::1/128 9000", "2001:db8:0:1::1/128 1000", "10.0.0.0/24 60", "? 7"}},
		{"src/64", []string{"2001:db8:0:2::/64 9000", "2001:db8:0:1::/64 1000", "10.0.0.3/32 30", "10.0.0.2/32 20", "10.0.0.1/32 10", "? 7"}},
		{"src/8/32", []string{"2001:db8::/32 10000", "10.0.0.0/8 60", "? 7"}},
		{"src/0/0", []string{"::/0 10000", "0.0.0.0/0 60", "? 7"}},
		{"dst/32/48", []string{"2001:db8::/48 10000", "10.0.1.1/32 30", "10.0.1.9/32 30", "? 7"}},
		{"proto", []string{"6 10000", "17 67"}},
		{"iface,netns", []string{"eth1 blue 10000", "eth0  67"}},
		{"family", []string{"6 10007", "4 60"}},
		{"dport", []string{"40000 9000", "443 1000", "53 60", "? 7"}},
		{"vlan,tos", []string{"7 8 10000", "0 0 67"}},
		{"direction", []string{"ingress 10007", "egress 60"}},
		{"service", []string{"6 443 10000 (9000 back)", "17 53 60", "17 ? 7"}},
		{"pair", []string{
			"2001:db8:0:1::1/128 2001:db8:0:2::1/128 10000 (9000 back)",
			"10.0.0.3/32 10.0.1.9/32 30", "10.0.0.2/32 10.0.1.1/32 20", "10.0.0.1/32 10.0.1.1/32 10", "? ? 7",
		}},
		{"iface,conversation", []string{
			"eth1 6 2001:db8:0:1::1/128 40000 2001:db8:0:2::1/128 443 10000 (9000 back)",
			"eth0 17 10.0.0.3/32 5000 10.0.1.9/32 53 30",
			"eth0 17 10.0.0.2/32 5000 10.0.1.1/32 53 20",
			"eth0 17 10.0.0.1/32 5000 10.0.1.1/32 53 10",
			"eth0 17 ? ? ? ? 7",
		}},
	} {
		a := ask(t, s, query.Plan{By: parseBy(t, tt.by)})
		if diff := gocmp.Diff(tt.want, texts(a)); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", tt.by, diff)
		}
		if a.Total.Bytes != 10067 || a.Total.Packets != 8 {
			t.Errorf("by %s: total %+v", tt.by, a.Total)
		}
	}
}

// texts shows the keys and the bytes of each row.
func texts(a query.Answer) []string {
	var out []string
	for _, w := range a.Rows {
		line := ""
		for _, k := range a.By {
			line += keyText(k, &w) + " "
		}
		line += fmt.Sprint(w.Bytes)
		if w.Back.Bytes > 0 {
			line += fmt.Sprintf(" (%d back)", w.Back.Bytes)
		}
		out = append(out, line)
	}
	return out
}

func keyText(k query.Key, w *query.Row) string {
	f := flow.FieldNamed(k.Name)
	if w.Unattributed && f.Endpoint {
		return "?"
	}
	switch k.Name {
	case "src":
		return w.SrcPrefix.String()
	case "dst":
		return w.DstPrefix.String()
	}
	return string(f.Append(nil, &flow.Origin{}, &w.Record))
}

// TestServicesOfARouter: it forwards between a client and a server, both of which are
// its peers, and one of which has a service.
func TestServicesOfARouter(t *testing.T) {
	end := func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, host, 1}) }
	var seen []flow.Record
	for i, initiator := range []flow.Initiator{flow.InitiatorUnknown, flow.InitiatorSrc} {
		forth := flow.Record{
			Iface: "lan", Family: 4, Proto: 6, Src: end(1), Dst: end(2), SrcPort: uint16(50000 + i), DstPort: 443, Initiator: initiator,
			Counters: flow.Counters{Packets: 1, Bytes: 100}, First: at(0), Last: at(1), TTLMin: 64, TTLMax: 64, IfIndex: 1,
		}
		back := forth
		back.Iface, back.IfIndex = "wan", 2
		back.Src, back.Dst, back.SrcPort, back.DstPort, back.Initiator = forth.Dst, forth.Src, forth.DstPort, forth.SrcPort, initiator.Opposite()
		for _, r := range []flow.Record{forth, back} {
			seen = append(seen, r)
			r.Iface, r.IfIndex = map[string]string{"lan": "wan", "wan": "lan"}[r.Iface], 3-r.IfIndex
			r.Direction, r.TTLMin, r.TTLMax = flow.Egress, 63, 63
			seen = append(seen, r)
		}
	}
	s := New(Default())
	fill(s, 0, 1, seen...)
	for by, want := range map[string][]string{
		"peer_service":  {"6 0 400 (200 back)", "6 443 400 (200 back)"},
		"local_service": {"6 0 400 (200 back)", "6 443 400 (200 back)"},
		"peer_port":     {"443 400 (200 back)", "50000 200 (100 back)", "50001 200 (100 back)"},
	} {
		if diff := gocmp.Diff(want, texts(ask(t, s, query.Plan{By: parseBy(t, by)}))); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", by, diff)
		}
	}
}

func TestICMPConversation(t *testing.T) {
	request := record(1, 2, 84)
	request.Proto, request.SrcPort, request.DstPort = 1, 7, 8<<8
	reply := request
	reply.Src, reply.Dst, reply.DstPort = request.Dst, request.Src, 0
	unreachable := request
	unreachable.SrcPort, unreachable.DstPort = 0, 3<<8
	s := New(Default())
	fill(s, 0, 1, request, reply, unreachable)
	a := ask(t, s, query.Plan{By: parseBy(t, "conversation")})
	want := []string{
		"1 10.0.0.1/32 7 10.0.1.2/32 2048 168 (84 back)",
		"1 10.0.0.1/32 0 10.0.1.2/32 768 84",
	}
	if diff := gocmp.Diff(want, texts(a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The initiator of the record decides who is the client; without one, ports do.
func TestConversationByInitiator(t *testing.T) {
	r := flow.Record{
		Iface: "eth0", Family: 4, Proto: 6, SrcPort: 40000, DstPort: 60999, Counters: flow.Counters{Bytes: 1000}, First: at(0), Last: at(1),
		Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"),
		Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
	}
	back := r
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Bytes = r.Dst, r.Src, r.DstPort, r.SrcPort, 9000
	back.Initiator, back.InitiatorBy = flow.InitiatorDst, flow.EvidencePorts // weaker, in another interval
	lone := r
	lone.Initiator, lone.InitiatorBy, lone.DstPort = flow.InitiatorUnknown, flow.EvidenceNone, 60998
	s := New(Default())
	fill(s, 0, 1, r, back, lone)
	for by, want := range map[string][]string{
		"conversation": {
			"6 10.0.0.1/32 40000 10.0.0.2/32 60999 10000 (9000 back) src ports",
			"6 10.0.0.2/32 60998 10.0.0.1/32 40000 1000 (1000 back) unknown none",
		},
		"service": {"6 60999 10000 (9000 back) src ports", "6 40000 1000 (1000 back) unknown none"},
		"src":     {"10.0.0.2/32 9000 dst ports", "10.0.0.1/32 2000 src handshake"},
		"pair":    {"10.0.0.1/32 10.0.0.2/32 11000 (9000 back) src ports"},
		"family":  {"4 11000 unknown none"}, // some are of one end, some of the other
	} {
		a := ask(t, s, query.Plan{By: parseBy(t, by)})
		got := texts(a)
		for i := range got {
			got[i] += fmt.Sprint(" ", a.Rows[i].Initiator, " ", a.Rows[i].InitiatorBy)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", by, diff)
		}
	}
}

func TestKeyText(t *testing.T) {
	for _, text := range []string{"src", "src/24", "src/64", "src/24/48", "src/0/32", "src/32/32", "dst/8/128", "dport", "src/24/32"} {
		by := parseBy(t, text)
		again := parseBy(t, by.Keys[0].String())
		if again.Keys[0] != by.Keys[0] {
			t.Errorf("%s is printed as %s, which is another key", text, by.Keys[0])
		}
	}
}
