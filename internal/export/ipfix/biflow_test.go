package ipfix

import (
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

func TestInitiator(t *testing.T) {
	const syn, ack = tcpSYN, tcpACK
	early, late := start, start.Add(time.Second)
	for _, tt := range []struct {
		name                string
		proto               uint8
		aFlags, bFlags      uint16
		aFirst, bFirst      time.Time
		aPort, bPort        uint16 // source ports
		aType, bType        uint16 // of ICMP, with code
		wantSwap, wantKnown bool
	}{
		{"SYN against SYN-ACK", 6, syn | ack, syn, early, late, 443, 40000, 0, 0, true, true},
		{"SYN alone, though later", 6, syn, syn | ack, late, early, 40000, 443, 0, 0, false, true},
		{"whole handshakes, by time", 6, syn | ack, syn | ack, late, early, 443, 40000, 0, 0, true, true},
		{"no SYN: the higher port, whoever was earlier", 6, ack, ack, early, late, 443, 40000, 0, 0, true, false},
		{"no SYN: likewise", 6, ack, ack, late, early, 40000, 443, 0, 0, false, false},
		{"no SYN and one port: by time", 6, ack, ack, late, early, 179, 179, 0, 0, true, false},
		{"UDP by time", 17, 0, 0, late, early, 53, 40000, 0, 0, true, true},
		{"UDP at one time: as they come", 17, 0, 0, early, early, 53, 40000, 0, 0, false, true},
		{"UDP flags say nothing", 17, syn, 0, late, early, 53, 40000, 0, 0, true, true},
		{"ICMP: who asks, though later", 1, 0, 0, late, early, 7, 7, 8 << 8, 0, false, true},
		{"ICMP reply first", 1, 0, 0, early, late, 7, 7, 0, 8 << 8, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := flow.Record{
				IfIndex: 2, Family: 4, Proto: tt.proto, TCPFlags: tt.aFlags, First: tt.aFirst,
				Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.2"), SrcPort: tt.aPort, DstPort: tt.bPort,
			}
			b := flow.Record{
				IfIndex: 2, Family: 4, Proto: tt.proto, TCPFlags: tt.bFlags, First: tt.bFirst, Direction: flow.Egress,
				Src: a.Dst, Dst: a.Src, SrcPort: tt.bPort, DstPort: tt.aPort,
			}
			if tt.proto == 1 {
				a.DstPort, b.DstPort = tt.aType, tt.bType
			}
			if !conversation(&a, &b) || !conversation(&b, &a) {
				t.Fatal("not taken for a conversation")
			}
			first, second, known := initiator(&a, &b)
			if (first == &b) != tt.wantSwap || (second == &a) != tt.wantSwap || known != tt.wantKnown {
				t.Errorf("swapped %v, known %v; want %v, %v", first == &b, known, tt.wantSwap, tt.wantKnown)
			}
		})
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
