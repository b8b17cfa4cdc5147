package ipfix

import (
	"net/netip"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
)

func TestInitiator(t *testing.T) {
	const src, dst, unknown = flow.InitiatorSrc, flow.InitiatorDst, flow.InitiatorUnknown
	for _, tt := range []struct {
		name                string
		proto               uint8
		a, b                flow.Initiator
		by                  flow.Evidence
		aPort, bPort        uint16 // source ports; of ICMP types
		wantSwap, wantKnown bool
	}{
		{"a handshake, to a high port", 6, src, dst, flow.EvidenceHandshake, 40000, 60999, false, true},
		{"its other half first", 6, dst, src, flow.EvidenceHandshake, 60999, 40000, true, true},
		{"the halves in one tick, and equal ports", 17, dst, src, flow.EvidenceFirst, 53, 53, true, true},
		{"one half knows", 17, unknown, src, flow.EvidenceFirst, 53, 40000, true, true},
		{"ports are a guess", 6, src, dst, flow.EvidencePorts, 40000, 443, false, false},
		{"nothing: the higher port first", 6, unknown, unknown, 0, 40000, 60999, true, false},
		{"nothing, and one port: the smaller address first", 6, unknown, unknown, 0, 179, 179, false, false},
		{"who asks, in records without evidence", 1, unknown, unknown, 0, 0, 8 << 8, true, false},
	} {
		a := flow.Record{
			IfIndex: 2, Family: 4, Proto: tt.proto, Initiator: tt.a, InitiatorBy: tt.by,
			Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: tt.aPort, DstPort: tt.bPort,
		}
		b := flow.Record{
			IfIndex: 2, Family: 4, Proto: tt.proto, Initiator: tt.b, Direction: flow.Egress,
			Src: a.Dst, Dst: a.Src, SrcPort: tt.bPort, DstPort: tt.aPort,
		}
		if tt.b != unknown {
			b.InitiatorBy = tt.by
		}
		if tt.proto == 1 {
			a.SrcPort, a.DstPort, b.SrcPort, b.DstPort = 7, tt.aPort, 7, tt.bPort
		}
		if !conversation(&a, &b) || !conversation(&b, &a) {
			t.Fatalf("%s: not taken for a conversation", tt.name)
		}
		first, second, known := initiator(&a, &b)
		if (first == &b) != tt.wantSwap || (second == &a) != tt.wantSwap || known != tt.wantKnown {
			t.Errorf("%s: swapped %v, known %v; want %v, %v", tt.name, first == &b, known, tt.wantSwap, tt.wantKnown)
		}
	}
}

// Two records are one conversation only if everything fits.
func TestConversation(t *testing.T) {
	a := benchmarkRecord
	a.VLAN, a.InnerVLAN, a.Tunnel, a.VNI = 1, 2, flow.TunnelGRE, 3
	b := a
	b.Direction, b.Src, b.Dst, b.SrcPort, b.DstPort = flow.Egress, a.Dst, a.Src, a.DstPort, a.SrcPort
	if !conversation(&a, &b) {
		t.Fatal("the two halves are not taken for a conversation")
	}
	for name, change := range map[string]func(*flow.Record){
		"direction":    func(r *flow.Record) { r.Direction = flow.Ingress },
		"interface":    func(r *flow.Record) { r.IfIndex = 3 },
		"namespace":    func(r *flow.Record) { r.Netns = "blue" },
		"source":       func(r *flow.Record) { r.Src = netip.MustParseAddr("203.0.113.1") },
		"destination":  func(r *flow.Record) { r.Dst = netip.MustParseAddr("203.0.113.1") },
		"source port":  func(r *flow.Record) { r.SrcPort++ },
		"port":         func(r *flow.Record) { r.DstPort++ },
		"protocol":     func(r *flow.Record) { r.Proto = 17 },
		"VLAN":         func(r *flow.Record) { r.VLAN++ },
		"inner VLAN":   func(r *flow.Record) { r.InnerVLAN++ },
		"tunnel":       func(r *flow.Record) { r.Tunnel = flow.TunnelNone },
		"key":          func(r *flow.Record) { r.VNI++ },
		"unattributed": func(r *flow.Record) { r.Unattributed = true },
		"ICMP errors":  func(r *flow.Record) { a.Proto, a.DstPort, r.Proto, r.DstPort = 1, 3<<8, 1, 3<<8 },
	} {
		a, other := a, b
		change(&other)
		if conversation(&a, &other) {
			t.Errorf("records of different %s are taken for a conversation", name)
		}
	}
}
