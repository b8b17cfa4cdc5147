package capture

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// exchange is TCP packets of a connection, each some time after the start.
type exchange []struct {
	after time.Duration
	from  uint8 // 0: the initiator
	flags uint16
	seq   uint32
	ack   uint32
	vlan  uint16
}

const ms = time.Millisecond

// run counts the exchange and returns the round trips of both flows.
func (x exchange) run(m *meter) (initiator, responder flow.RTT) {
	for _, p := range x {
		ip, tcp := [2]string{"2001:db8::1", "2001:db8::2"}, [2]uint16{40000, 443}
		b := packet.Eth().VLAN(p.vlan).IPv6(ip[p.from], ip[1-p.from]).
			TCP(tcp[p.from], tcp[1-p.from]).Flags(p.flags).Seq(p.seq).Ack(p.ack)
		data := b.Bytes()
		f := frame{data: data, length: len(data)}
		m.add(&f, place{1, flow.Direction(p.from)}, int64(time.Hour+p.after))
	}
	for _, d := range m.flows() {
		if d.Direction == 0 {
			initiator = d.RTT
		} else {
			responder = d.RTT
		}
	}
	return initiator, responder
}

func TestHandshake(t *testing.T) {
	const (
		syn, synAck, ack = packet.SYN, packet.SYN | packet.ACK, packet.ACK
		a, b             = 1<<32 - 1, 7000 // initial sequence numbers; the first wraps around
	)
	rtt := func(responder, initiator time.Duration) flow.RTT {
		return flow.RTT{Responder: responder, Initiator: initiator}
	}
	for name, tt := range map[string]struct {
		x                    exchange
		initiator, responder flow.RTT
	}{
		"whole": {
			exchange{{0, 0, syn, a, 0, 0}, {20 * ms, 1, synAck, b, 0, 0}, {23 * ms, 0, ack, 0, b + 1, 0}},
			rtt(20*ms, 3*ms), rtt(20*ms, 0),
		},
		"data behind it changes nothing": {
			exchange{
				{0, 0, syn, a, 0, 0},
				{20 * ms, 1, synAck, b, 0, 0},
				{23 * ms, 0, ack, 0, b + 1, 0},
				{30 * ms, 0, ack, 0, b + 1, 0},
				{40 * ms, 1, ack, b + 1, 0, 0},
			},
			rtt(20*ms, 3*ms), rtt(20*ms, 0),
		},
		"SYN with ECN": {
			exchange{{0, 0, syn | packet.ECE | packet.CWR, a, 0, 0}, {5 * ms, 1, synAck | packet.ECE, b, 0, 0}},
			rtt(0, 0), rtt(5*ms, 0),
		},
		"SYN sent twice": { // which one was answered?
			exchange{{0, 0, syn, a, 0, 0}, {9 * ms, 0, syn, a, 0, 0}, {20 * ms, 1, synAck, b, 0, 0}, {23 * ms, 0, ack, 0, b + 1, 0}},
			rtt(0, 3*ms), rtt(0, 0),
		},
		"SYN-ACK sent twice": {
			exchange{{0, 0, syn, a, 0, 0}, {20 * ms, 1, synAck, b, 0, 0}, {40 * ms, 1, synAck, b, 0, 0}, {43 * ms, 0, ack, 0, b + 1, 0}},
			rtt(0, 0), rtt(20*ms, 0),
		},
		"SYN-ACK sent three times": {
			exchange{
				{0, 0, syn, a, 0, 0},
				{20 * ms, 1, synAck, b, 0, 0},
				{40 * ms, 1, synAck, b, 0, 0},
				{60 * ms, 1, synAck, b, 0, 0},
				{63 * ms, 0, ack, 0, b + 1, 0},
			},
			rtt(0, 0), rtt(20*ms, 0),
		},
		"SYN-ACK of another handshake": {
			exchange{{0, 0, syn, a, 0, 0}, {20 * ms, 1, synAck, b, 5, 0}, {23 * ms, 0, ack, 0, b + 1, 0}},
			rtt(0, 0), rtt(0, 0),
		},
		"ACK of another handshake": {
			exchange{{0, 0, syn, a, 0, 0}, {20 * ms, 1, synAck, b, 0, 0}, {23 * ms, 0, ack, 0, b + 2, 0}},
			rtt(0, 0), rtt(20*ms, 0),
		},
		"other VLAN": {
			exchange{{0, 0, syn, a, 0, 5}, {20 * ms, 1, synAck, b, 0, 6}},
			rtt(0, 0), rtt(0, 0),
		},
		"began before": {
			exchange{{0, 1, synAck, b, 0, 0}, {3 * ms, 0, ack, 0, b + 1, 0}},
			rtt(0, 0), rtt(0, 0),
		},
		"clock set back meanwhile": {
			exchange{{20 * ms, 0, syn, a, 0, 0}, {0, 1, synAck, b, 0, 0}},
			rtt(0, 0), rtt(0, 0),
		},
		"ports used again": { // the last handshake of the interval counts
			exchange{
				{0, 0, syn, a, 0, 0},
				{20 * ms, 1, synAck, b, 0, 0},
				{50 * ms, 0, syn, 99, 0, 0},
				{57 * ms, 1, synAck, b, 100, 0},
				{61 * ms, 0, ack, 100, b + 1, 0},
			},
			rtt(7*ms, 4*ms), rtt(7*ms, 0),
		},
	} {
		m := newMeter(Default(), rand.Uint32)
		if initiator, responder := tt.x.run(m); initiator != tt.initiator || responder != tt.responder {
			t.Errorf("%s: got %+v and %+v, want %+v and %+v", name, initiator, responder, tt.initiator, tt.responder)
		}
	}
}

// A handshake may begin in one interval and end in the next.
func TestHandshakeAcrossDrains(t *testing.T) {
	m := newMeter(Default(), rand.Uint32)
	exchange{{0, 0, packet.SYN, 1, 0, 0}}.run(m)
	if _, responder := (exchange{{20 * ms, 1, packet.SYN | packet.ACK, 5, 2, 0}}).run(m); responder.Responder != 20*ms {
		t.Errorf("SYN-ACK: %+v", responder)
	}
	if initiator, _ := (exchange{{23 * ms, 0, packet.ACK, 2, 6, 0}}).run(m); initiator != (flow.RTT{Responder: 20 * ms, Initiator: 3 * ms}) {
		t.Errorf("ACK: %+v", initiator)
	}
}

// A flood of SYNs takes a bounded memory; handshakes that had to leave are reported.
func TestHandshakeFlood(t *testing.T) {
	m := newMeter(Default(), rand.Uint32)
	const more = 1000
	data := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").TCP(1, 80).Flags(packet.SYN).Bytes()
	f := frame{data: data, length: len(data)}
	for i := range handshakesMax + more {
		data[26], data[27], data[28], data[29] = 10, byte(i>>16), byte(i>>8), byte(i)
		m.add(&f, place{}, int64(time.Hour)+int64(i))
	}
	if n := len(m.handshakes.open.values); n != handshakesMax {
		t.Errorf("%d handshakes are kept, want %d", n, handshakesMax)
	}
	if lost := m.amounts()["handshake_lost"].Packets; lost != more {
		t.Errorf("%d handshakes reported as lost, want %d", lost, more)
	}
	// Those that had to leave go on with a SYN that looks new: no round trip is
	// better than a wrong one.
	m.table.drain(func(*flow.Delta) {})
	const retransmitted = 100
	timed := map[bool]int{}
	for i := range uint32(2 * retransmitted) {
		isNew := i >= retransmitted
		if i = i % retransmitted; isNew {
			i += 1 << 20
		}
		client := fmt.Sprintf("10.%d.%d.%d", byte(i>>16), byte(i>>8), byte(i))
		for n, b := range []packet.Builder{
			packet.Eth().IPv4(client, "192.0.2.2").TCP(1, 80).Flags(packet.SYN),
			packet.Eth().IPv4("192.0.2.2", client).TCP(80, 1).Flags(packet.SYN | packet.ACK).Seq(5).Ack(1),
		} {
			data := b.Bytes()
			m.add(&frame{data: data, length: len(data)}, place{}, int64(time.Hour)+int64(time.Minute)+int64(n))
		}
		for _, d := range m.flows() {
			if d.RTT != (flow.RTT{}) {
				timed[isNew]++
			}
		}
	}
	if timed[false] > 0 || timed[true] < retransmitted-2 {
		t.Errorf("round trips of %d retransmitted handshakes, want none, and of %d new ones, want %d", timed[false], timed[true], retransmitted)
	}
}

// Nobody puts a packet together half a minute after its first fragment.
func TestFragmentsOfAnotherTime(t *testing.T) {
	m := newMeter(Default(), rand.Uint32)
	add := func(b packet.Builder, now int64) {
		data := b.Bytes()
		f := frame{data: data, length: len(data)}
		m.add(&f, place{}, now)
	}
	ip := packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	later := ip.Fragment(8, false, 7).NextHeader(packet.ProtoUDP).Payload(1)
	add(ip.Fragment(0, true, 7).UDP(1, 2), 0)
	for _, tc := range []struct {
		now  int64
		lost uint64
	}{{0, 0}, {fragmentLifetime, 0}, {fragmentLifetime + 1, 1}} {
		add(later, tc.now)
		if lost := m.amounts()["fragment_unmatched"].Packets; lost != tc.lost {
			t.Errorf("after %v: %d fragments are unmatched, want %d", time.Duration(tc.now), lost, tc.lost)
		}
	}
}

// The first fragments that are remembered are the latest ones.
func TestFragmentFlood(t *testing.T) {
	m := newMeter(Default(), rand.Uint32)
	add := func(b packet.Builder) {
		data := b.Bytes()
		f := frame{data: data, length: len(data)}
		m.add(&f, place{}, 1)
	}
	ip := packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	for i := range uint32(fragmentsMax + 1) {
		add(ip.Fragment(0, true, i).UDP(1, 2))
	}
	add(ip.Fragment(8, false, fragmentsMax).NextHeader(packet.ProtoUDP).Payload(1))
	if lost := m.amounts()["fragment_unmatched"].Packets; lost != 0 {
		t.Error("the latest was forgotten")
	}
	add(ip.Fragment(8, false, 0).NextHeader(packet.ProtoUDP).Payload(1))
	if lost := m.amounts()["fragment_unmatched"].Packets; lost != 1 {
		t.Error("the oldest was not forgotten")
	}
}
