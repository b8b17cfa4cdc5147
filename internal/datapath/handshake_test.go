package datapath

import (
	"strconv"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// A SYN or SYN-ACK that was sent twice gives no round trip (Karn's rule): nobody
// knows which of the two was answered.
func TestRetransmittedHandshake(t *testing.T) {
	d := load(t, Config{MaxEntries: 64})
	p := loaded(t, d, Ingress)
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
		responder, initiator bool // a round trip is reported
	}{
		{"each once", []int{syn, synAck, ack}, true, true},
		{"SYN twice", []int{syn, syn, synAck, ack}, false, true},
		{"SYN-ACK twice", []int{syn, synAck, synAck, ack}, true, false},
		{"SYN-ACK three times", []int{syn, synAck, synAck, synAck, ack}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer datapathtest.OnOneProcessor(t)()
			f := frames(uint16(1000 + i))
			for j, n := range tc.sent {
				run(t, p, f[n])
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
				t.Errorf("round trips %v and %v, want them reported: %t and %t", rtt.Responder, rtt.Initiator, tc.responder, tc.initiator)
			}
		})
	}
}

// A flood of SYNs takes the slots of handshakes in progress. A SYN that is then
// retransmitted looks new: its round trip is missing, not wrong. Handshakes that
// begin behind the flood are timed.
func TestFloodedHandshakes(t *testing.T) {
	defer datapathtest.OnOneProcessor(t)()
	d := load(t, Config{MaxEntries: 4096, WholeTable: true}) // nobody reads what leaves it
	p := loaded(t, d, Ingress)
	const victims, flood = 64, 100_000 // 1.5 for each slot
	send := func(client byte, sport uint16, what int) {
		there, back := "192.0.2."+strconv.Itoa(int(client)), "198.51.100.1"
		b := packet.Eth().IPv4(there, back).TCP(sport, 443).Flags(packet.SYN).Seq(100)
		switch what {
		case 1:
			b = packet.Eth().IPv4(back, there).TCP(443, sport).Flags(packet.SYN | packet.ACK).Seq(500).Ack(101)
		case 2:
			b = packet.Eth().IPv4(there, back).TCP(sport, 443).Flags(packet.ACK).Seq(101).Ack(501)
		}
		run(t, p, packet.Frame{Data: b.Bytes()})
	}
	for n := range uint16(victims) {
		send(1, n, 0)
	}
	syn := packet.Eth().IPv4("203.0.113.1", "198.51.100.1").TCP(1, 443).Flags(packet.SYN).Bytes()
	for n := range uint32(flood) {
		copy(syn[26:30], []byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		if _, err := p.Run(&ebpf.RunOptions{Data: syn}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint16(victims) {
		for _, client := range []byte{1, 2} { // retransmitted, and new
			for what := range 3 {
				send(client, n, what)
			}
		}
	}
	timed := map[byte]int{}
	if err := d.Drain(func(d *flow.Delta) {
		for _, client := range []byte{1, 2} {
			if d.RTT.Responder > 0 && d.Src[12] == 192 && d.Src[15] == client {
				timed[client]++
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if timed[1] != 0 || timed[2] < victims-3 {
		t.Errorf("round trips to the responder of %d of %d retransmitted handshakes, want none, and of %d new ones, want nearly all", timed[1], victims, timed[2])
	}
}
