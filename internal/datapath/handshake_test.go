package datapath

import (
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// A SYN or SYN-ACK that was sent twice gives no round trip (Karn's rule): nobody
// knows which of the two was answered.
func TestRetransmittedHandshake(t *testing.T) {
	d := load(t, Config{MaxEntries: 64})
	p, err := d.variant(variant{})
	if err != nil {
		t.Fatal(err)
	}
	there := func(sport uint16) packet.Builder {
		return packet.Eth().IPv6("2001:db8::1", "2001:db8::2").TCP(sport, 443)
	}
	back := func(sport uint16) packet.Builder {
		return packet.Eth().IPv6("2001:db8::2", "2001:db8::1").TCP(443, sport)
	}
	const syn, synAck, ack = 0, 1, 2
	frames := func(sport uint16) [3]packet.Frame {
		return [3]packet.Frame{
			{Data: there(sport).Flags(packet.SYN).Seq(100).Bytes()},
			{Data: back(sport).Flags(packet.SYN | packet.ACK).Seq(500).Ack(101).Bytes()},
			{Data: there(sport).Flags(packet.ACK).Seq(101).Ack(501).Bytes()},
		}
	}
	for i, tc := range []struct {
		name                 string
		sent                 []int
		responder, initiator bool // a round trip is told
	}{
		{"each once", []int{syn, synAck, ack}, true, true},
		{"SYN twice", []int{syn, syn, synAck, ack}, false, true},
		{"SYN-ACK twice", []int{syn, synAck, synAck, ack}, true, false},
		{"SYN-ACK three times", []int{syn, synAck, synAck, synAck, ack}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer onOneProcessor(t)()
			f := frames(uint16(1000 + i))
			for j, n := range tc.sent {
				run(t, p.ingress, f[n])
				if (i+j)%2 == 0 {
					fillBatches(t, d)
				}
			}
			var rtt flow.RTT
			if err := d.Drain(func(d *flow.Delta) {
				rtt.Responder, rtt.Initiator = max(rtt.Responder, d.RTT.Responder), max(rtt.Initiator, d.RTT.Initiator)
			}); err != nil {
				t.Fatal(err)
			}
			if rtt.Responder > 0 != tc.responder || rtt.Initiator > 0 != tc.initiator {
				t.Errorf("round trips %v and %v, want them told: %t and %t", rtt.Responder, rtt.Initiator, tc.responder, tc.initiator)
			}
		})
	}
}
