package pdm

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

// unknownPath is a host whose clock the test advances, and that knows of no path.
type unknownPath struct {
	*pdmHost
	now time.Duration
}

func newUnknownPath(t testing.TB) *unknownPath {
	h := newPDMHost(t, *marking())
	h.unknown = true
	return &unknownPath{h, time.Second}
}

func (h *unknownPath) wait(t testing.TB, d time.Duration) {
	t.Helper()
	h.now += d
	h.set(t, uint64(h.now))
}

// marks sends a packet, and delivers it if it arrives. It reports whether it is marked.
func (h *unknownPath) marks(t testing.TB, b packet.Builder, arrives bool) bool {
	t.Helper()
	frame := b.Bytes()
	out := h.send(t, frame)
	if arrives {
		h.receive(t, out)
	}
	return !bytes.Equal(out, frame)
}

// path is what is known of a service of hostB, or with proto 0 of all that is there.
func (h *unknownPath) path(t testing.TB, proto uint8, port uint16) (p abiMarkPath) {
	t.Helper()
	key := serviceKey(netip.MustParseAddr(hostB), proto, port)
	if err := h.pdm.maps["mark_paths"].Lookup(&key, &p); err != nil && !isGone(err) {
		t.Fatal(err)
	}
	return p
}

// takes lets a service of hostB be known to take marked packets.
func (h *unknownPath) takes(t testing.TB, proto uint8, port uint16) {
	t.Helper()
	key := serviceKey(netip.MustParseAddr(hostB), proto, port)
	if err := h.pdm.maps["mark_paths"].Put(&key, &abiMarkPath{Passed: uint64(h.now)}); err != nil {
		t.Fatal(err)
	}
}

func (h *unknownPath) stats(t testing.TB) Stats {
	t.Helper()
	s, err := h.pdm.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func udpFrom(port int) packet.Builder {
	return packet.Eth().IPv6(hostA, hostB).UDP(uint16(port), portB).Payload(20)
}

// Where nobody names a marked datagram, few are marked, and none that it hurts to
// lose: not the first of a flow, and no two close to each other.
func TestMarksOfUnansweredDatagrams(t *testing.T) {
	for _, c := range []struct {
		flow  packet.Builder
		every time.Duration
	}{
		{aToB(), 5 * time.Second},
		{aToB(), 20 * time.Millisecond},
		{packet.Eth().IPv6(hostA, hostB).ICMPv6(128, 0, 77, 1).Payload(8), time.Second},
	} {
		h := newUnknownPath(t)
		var marked []time.Duration
		total, since := 0, 0 // packets, and those since one was marked
		long := min(10*time.Minute, 2000*c.every)
		for h.now < long {
			h.wait(t, c.every)
			total++
			since++
			if !h.marks(t, c.flow, false) {
				continue
			}
			if since < 4 || len(marked) > 0 && h.now-marked[len(marked)-1] < time.Second {
				t.Errorf("every %v: a packet is marked after %d that were not, the marks are at %v, %v", c.every, since-1, marked, h.now)
			}
			marked, since = append(marked, h.now), 0
		}
		why := h.why(t)
		first := 0
		for _, at := range marked {
			if at < time.Minute {
				first++
			}
		}
		if first < 1 || first > 4 || len(marked) > 12 || long > time.Minute && (len(marked) < 3 || h.stats(t).Fallbacks == 0) || why["unproven"]+why["fallback"] != uint64(total-len(marked)) {
			t.Errorf("every %v: of %d packets those at %v were marked, %v", c.every, total, marked, why)
		}
	}
	// Queries with a port each are not marked at all, and of flows that go on no
	// more than four a minute.
	h := newUnknownPath(t)
	for port := range 100 {
		h.wait(t, 10*time.Millisecond)
		if h.marks(t, udpFrom(1000+port), false) {
			t.Fatal("the first packet of a flow was marked")
		}
	}
	var marked []time.Duration
	for h.now < time.Minute {
		for port := range 20 {
			h.wait(t, 10*time.Millisecond)
			if h.marks(t, udpFrom(1000+port), false) {
				if n := len(marked); n > 0 && h.now-marked[n-1] < time.Second {
					t.Errorf("marked at %v and %v", marked[n-1], h.now)
				}
				marked = append(marked, h.now)
			}
		}
	}
	if len(marked) != 4 {
		t.Errorf("of 100 flows to one destination packets at %v were marked", marked)
	}
}

// talk has both ends of the flow send in turn, and counts the marked packets.
func (h *unknownPath) talk(t testing.TB, rounds int, every time.Duration) (marked int) {
	t.Helper()
	for range rounds {
		h.wait(t, every)
		for _, f := range []packet.Builder{aToB(), bToA()} {
			if h.marks(t, f, true) {
				marked++
			}
		}
	}
	return marked
}

// Two hosts that both mark find out within a few packets, and lose no mark; once
// the path drops marked packets, the flow goes on without, and so do others.
func TestMarksOfAnsweredDatagrams(t *testing.T) {
	h := newUnknownPath(t)
	if n := h.talk(t, 3, 10*time.Millisecond); n != 0 {
		t.Errorf("of the first 6 packets %d were marked", n)
	}
	if n := h.talk(t, 20, 10*time.Millisecond); n != 40 {
		t.Fatalf("of 40 packets that arrive %d were marked", n)
	}
	// However long it pauses: what was sent before has been named.
	if n := h.talk(t, 5, 10*time.Second); n != 10 {
		t.Errorf("of 10 packets that arrive, with pauses, %d were marked", n)
	}
	// A burst without an answer shows nothing.
	for range 100 {
		if !h.marks(t, aToB(), false) {
			t.Fatal("a packet of a burst was not marked")
		}
	}
	h.talk(t, 1, 10*time.Millisecond)
	// The path drops marked packets from here on.
	var marked []time.Duration
	began := h.now
	for h.now < began+59*time.Second {
		h.wait(t, 50*time.Millisecond)
		if h.marks(t, aToB(), false) {
			marked = append(marked, h.now-began)
		}
	}
	late := 0
	for _, at := range marked {
		if at > 1100*time.Millisecond {
			late++
		}
	}
	if len(marked)-late < 18 || late < 2 || late > 5 || h.stats(t).Fallbacks != 1 {
		t.Errorf("packets that did not arrive were marked after %v, %d flows fell back", marked, h.stats(t).Fallbacks)
	}
	if h.path(t, packet.ProtoUDP, portB).Passed != 0 || h.path(t, 0, 0).Passed != 0 {
		t.Error("the path is still said to take marked packets")
	}
	for range 3 {
		if h.marks(t, udpFrom(999), false) {
			t.Error("another flow is marked")
		}
	}
	h.wait(t, 2*time.Minute)
	h.talk(t, 30, 100*time.Millisecond)
	if n := h.talk(t, 10, 10*time.Millisecond); n != 20 {
		t.Errorf("of 20 packets that arrive again %d were marked", n)
	}
}

// A flow that is not marked keeps its state while it goes on, and no longer.
func TestStateOfUnmarkedFlows(t *testing.T) {
	h := newUnknownPath(t)
	lifetime := marking().Lifetime
	drain := func() int {
		t.Helper()
		at := datapath.Moment{Mono: int64(h.now)}
		if err := h.pdm.reader.drain(h.epoch(t), at, func(*flow.Delta) {}); err != nil {
			t.Fatal(err)
		}
		return h.states(t)
	}
	h.marks(t, aToB(), false)
	for range 2 {
		h.wait(t, lifetime*3/4)
		h.marks(t, aToB(), false)
		if n := drain(); n != 1 {
			t.Fatalf("%d states of a flow that goes on", n)
		}
	}
	h.wait(t, lifetime+time.Second)
	if n := drain(); n != 0 {
		t.Errorf("%d states after their lifetime", n)
	}
}

// segments is a TCP flow to a host that is known to take marked packets.
type segments struct {
	*unknownPath
	port uint16
	seq  uint32
	len  int
}

func newSegments(t testing.TB, length int) *segments {
	h := newUnknownPath(t)
	h.prove(t, 1500, hostB, 443)
	return &segments{h, portA, 1000, length}
}

// builder is the next segment.
func (s *segments) builder() packet.Builder {
	return packet.Eth().IPv6(hostA, hostB).TCP(s.port, 443).Seq(s.seq).Payload(s.len)
}

// next sends a segment, and again after each of these times. It reports whether it
// was marked at first, and the flow's state.
func (s *segments) next(t testing.TB, again ...time.Duration) (marked bool, state abiPdmState) {
	t.Helper()
	marked = s.marks(t, s.builder(), false)
	for _, after := range again {
		s.wait(t, after)
		if s.marks(t, s.builder(), false) {
			t.Error("marked when it was sent again")
		}
	}
	s.seq += uint32(s.len)
	key := udpKey(hostA, hostB, s.port, 443)
	key.Proto = packet.ProtoTCP
	state, _ = s.state(t, key)
	return marked, state
}

// Losses are not forgotten because they are rare: a flow that says little falls
// back as well, and datagrams no longer rely on what it showed before. An outage,
// which takes what is unmarked, too, is not counted.
func TestMarksOfSparseFlows(t *testing.T) {
	for _, outage := range []bool{false, true} {
		s := newSegments(t, 100)
		again := []time.Duration{200 * time.Millisecond}
		if outage {
			again = append(again, 400*time.Millisecond, 800*time.Millisecond)
		}
		marked := 0
		for range 8 {
			s.wait(t, 15*time.Second)
			if m, _ := s.next(t, again...); m {
				marked++
			}
		}
		want, fell := 3, uint64(1)
		if outage {
			want, fell = 8, 0
		}
		if marked != want || s.stats(t).Fallbacks != fell {
			t.Errorf("outage %t: %d of 8 were marked, want %d; %d fell back", outage, marked, want, s.stats(t).Fallbacks)
		}
	}
	s := newSegments(t, 100)
	s.next(t)
	for range 4 {
		s.wait(t, 2*time.Second)
		s.next(t, 200*time.Millisecond)
	}
	if p := s.path(t, packet.ProtoTCP, 443); p.Passed != 0 || p.Strikes != 1 {
		t.Errorf("the service is still said to take marked packets: %+v", p)
	}
}

// Two flows in a row whose marks are lost block their destination, once; two that
// lose everything do not.
func TestMarksToBlockedDestinations(t *testing.T) {
	for _, outage := range []bool{false, true} {
		h := newUnknownPath(t)
		again := []time.Duration{time.Second}
		if outage {
			again = append(again, 2*time.Second, 4*time.Second)
		}
		var fallen []*segments
		for round := range 2 {
			var flows []*segments
			for i := range 5 { // that begin before the first is known to have failed
				s := &segments{h, uint16(2000 + 10*round + i), 1000, 100}
				if marked, _ := s.next(t); marked != (i == 0) {
					t.Fatalf("round %d: flow %d is marked: %t", round, i, marked)
				}
				flows = append(flows, s)
			}
			s := flows[0]
			fallen = append(fallen, s)
			for _, after := range again {
				h.wait(t, after)
				s.seq -= uint32(s.len)
				s.next(t)
			}
			h.wait(t, 1500*time.Millisecond)
			s.next(t) // the segment before has arrived
			if outage {
				h.wait(t, 5*time.Minute)
			}
		}
		got := h.stats(t)
		fresh := &segments{h, 3000, 1000, 100}
		marked, _ := fresh.next(t)
		var blocked uint64
		if !outage {
			blocked = 1
		}
		if got.Blocked != blocked || got.Fallbacks != 2 || marked != outage {
			t.Errorf("outage %t: %d destinations blocked, %d flows fell back; another is marked: %t", outage, got.Blocked, got.Fallbacks, marked)
		}
		for range 4 {
			h.wait(t, 40*time.Second)
			for _, s := range fallen {
				if marked, _ := s.next(t); marked && !outage {
					t.Error("a flow is marked again before its service is")
				}
			}
		}
		h.wait(t, 5*time.Minute)
		if why := h.why(t); !outage && (h.marks(t, udpFrom(999), false) || h.why(t)["fallback"] != 1) {
			t.Errorf("a datagram to a blocked destination: %v", why)
		}
	}
}

// What could not be marked is not marked when it is sent again in another form; and
// what only repeats an acknowledgment is not said to be sent again.
func TestMarksOfSegmentsSentAgain(t *testing.T) {
	s := newSegments(t, 100)
	s.next(t)
	s.why(t)
	deep := packet.Eth().IPv6(hostA, hostB).AH(1, 1, 12).TCP(portA, 443).Seq(s.seq).Payload(s.len)
	if s.marks(t, deep, false) || s.why(t)["ah"] != 1 {
		t.Fatal("marked behind an AH header")
	}
	s.wait(t, 200*time.Millisecond)
	if s.marks(t, s.builder(), false) {
		t.Error("marked when it was sent again")
	}
	if got := s.why(t); got["resent"] != 1 || len(got) != 1 {
		t.Errorf("counted %v", got)
	}
	s.seq += uint32(s.len)
	for range 3 {
		s.marks(t, packet.Eth().IPv6(hostA, hostB).TCP(portA, 443).Seq(s.seq).Ack(5), false)
	}
	if got := s.why(t); got["dup_ack"] != 2 || len(got) != 1 {
		t.Errorf("counted %v", got)
	}
}

// What is known of how long packets may be shrinks when one is lost.
func TestMarksShrinkWithThePath(t *testing.T) {
	const length = 1484 // unmarked
	s := newSegments(t, length-60)
	datagram := packet.Eth().IPv6(hostA, hostB).UDP(999, portB).Payload(length - 48)
	s.takes(t, packet.ProtoUDP, portB)
	if !s.marks(t, datagram, false) {
		t.Error("a long datagram is not marked where packets as long arrive")
	}
	if marked, state := s.next(t, 200*time.Millisecond); !marked || state.Guard.Shown != 1500 {
		t.Fatalf("marked %t, longest %d", marked, state.Guard.Shown)
	}
	s.wait(t, 2*time.Second)
	if marked, state := s.next(t); marked || state.Guard.Shown != length {
		t.Errorf("a segment as long as the one lost: marked %t, longest known to arrive %d", marked, state.Guard.Shown)
	}
	if p := s.path(t, 0, 0); p.Shown != length {
		t.Errorf("longest packet known of the path: %d", p.Shown)
	}
	if s.marks(t, datagram, false) {
		t.Error("a long datagram is marked where packets as long are lost")
	}
	s.len = length - 60 - pdm.HeaderSize
	if marked, _ := s.next(t); !marked {
		t.Error("a shorter segment was not marked")
	}
}

// UDP without a checksum, as tunnels send it (RFC 6935), is read where this host
// sends so, too.
func TestTunnelsWithoutChecksum(t *testing.T) {
	h := newPDMHost(t, *marking())
	without := func(b packet.Builder) []byte { return b.Checksum(0).Payload(20).Bytes() }
	there, back := packet.Eth().IPv6(hostA, hostB).UDP(portA, portB), packet.Eth().IPv6(hostB, hostA).UDP(portB, portA)
	for range 2 {
		for _, b := range []packet.Builder{there, back} {
			frame := without(b)
			out := h.send(t, frame)
			if bytes.Equal(out, frame) {
				t.Fatal("not marked")
			}
			h.receive(t, out)
		}
	}
	if s, _ := h.state(t, keyA); s.Received != 2 {
		t.Errorf("of 2 packets %d were read, passed over %v", s.Received, h.why(t))
	}
}
