package datapath

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

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

// marks sends a packet, and delivers it if it arrives. It tells whether it is marked.
func (h *unknownPath) marks(t testing.TB, b packet.Builder, arrives bool) bool {
	t.Helper()
	frame := b.Bytes()
	out := h.send(t, frame)
	if arrives {
		h.receive(t, out)
	}
	return !bytes.Equal(out, frame)
}

func (h *unknownPath) fallbacks(t testing.TB) uint64 {
	t.Helper()
	s, err := h.PDMStats()
	if err != nil {
		t.Fatal(err)
	}
	return s.Fallbacks
}

// Where no mark of a flow is answered, few of its packets are marked, and fewer and
// fewer; nor are many of new flows to the same destination.
func TestMarksOfUnansweredDatagrams(t *testing.T) {
	for _, echo := range []bool{false, true} {
		h := newUnknownPath(t)
		flow := aToB()
		if echo {
			flow = packet.Eth().IPv6(hostA, hostB).ICMPv6(128, 0, 77, 1).Payload(8)
		}
		var marked [30]int // per minute
		for minute := range marked {
			for range 12 {
				h.wait(t, 5*time.Second)
				if h.marks(t, flow, false) {
					marked[minute]++
				}
			}
		}
		total, late := 0, 0
		for minute, n := range marked {
			total += n
			if minute >= 10 {
				late += n
			}
		}
		why := h.why(t)
		t.Logf("echo %t: marked %v, %v", echo, marked, why)
		if marked[0] != 4 || total < 12 || total > 48 || late > 20 || h.fallbacks(t) < 2 || why["fallback"] < 300 {
			t.Errorf("echo %t: marked %v, %v", echo, marked, why)
		}
	}
	h := newUnknownPath(t)
	marked := 0
	for port := range 100 {
		h.wait(t, 10*time.Millisecond)
		if h.marks(t, packet.Eth().IPv6(hostA, hostB).UDP(uint16(1000+port), portB).Payload(20), false) {
			marked++
		}
	}
	if marked != 8 {
		t.Errorf("of 100 flows to one destination %d were marked", marked)
	}
	// TCP, or another flow, shows that they arrive.
	h.prove(t, 1280, hostB)
	for range 50 {
		h.wait(t, time.Millisecond)
		if !h.marks(t, packet.Eth().IPv6(hostA, hostB).UDP(999, portB).Payload(20), false) {
			t.Fatal("not marked where marked packets arrive")
		}
	}
}

// A flow whose marks are answered loses no mark; once they are not answered any
// more it goes on without, and is marked again when they are.
func TestMarksOfAnsweredDatagrams(t *testing.T) {
	h := newUnknownPath(t)
	talk := func() (marked int) {
		t.Helper()
		for range 10 {
			h.wait(t, 10*time.Millisecond)
			for _, f := range []packet.Builder{aToB(), bToA()} {
				if h.marks(t, f, true) {
					marked++
				}
			}
		}
		return marked
	}
	if n := talk(); n != 20 {
		t.Fatalf("of 20 packets that arrive %d were marked", n)
	}
	// A burst without an answer shows nothing.
	for range 100 {
		if !h.marks(t, aToB(), false) {
			t.Fatal("a packet of a burst was not marked")
		}
	}
	talk()
	marked, began := 0, h.now
	for h.now < began+59*time.Second {
		h.wait(t, 50*time.Millisecond)
		if h.marks(t, aToB(), false) {
			marked++
		}
	}
	if marked < 8 || marked > 40 || h.fallbacks(t) != 1 {
		t.Errorf("%d were marked that did not arrive, %d flows fell back", marked, h.fallbacks(t))
	}
	h.wait(t, 2*time.Minute)
	talk()
	if n := talk(); n != 20 {
		t.Errorf("of 20 packets that arrive again %d were marked", n)
	}
}

// segments is a TCP flow to a host that is known to take marked packets.
type segments struct {
	*unknownPath
	seq uint32
	len int
}

func newSegments(t testing.TB, length int) *segments {
	h := newUnknownPath(t)
	h.prove(t, 1500, hostB)
	return &segments{h, 1000, length}
}

// next sends a segment, and again after each of these times. It tells whether it
// was marked at first, and the flow's state.
func (s *segments) next(t testing.TB, again ...time.Duration) (marked bool, state ingressPdmState) {
	t.Helper()
	b := packet.Eth().IPv6(hostA, hostB).TCP(portA, 443).Seq(s.seq).Payload(s.len)
	marked = s.marks(t, b, false)
	for _, after := range again {
		s.wait(t, after)
		if s.marks(t, b, false) {
			t.Error("marked when it was sent again")
		}
	}
	s.seq += uint32(s.len)
	key := udpKey(hostA, hostB, portA, 443)
	key.Proto = packet.ProtoTCP
	state, _ = s.state(t, key)
	return marked, state
}

// Losses are not forgotten because they are rare: a flow that says little falls
// back as well. An outage, which takes what is unmarked, too, is not counted.
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
		if marked != want || s.fallbacks(t) != fell {
			t.Errorf("outage %t: %d of 8 were marked, want %d; %d fell back", outage, marked, want, s.fallbacks(t))
		}
	}
}

// What is known of how long packets may be shrinks when one is lost.
func TestMarksShrinkWithThePath(t *testing.T) {
	const length = 1484 // unmarked
	s := newSegments(t, length-60)
	if marked, state := s.next(t, 200*time.Millisecond); !marked || state.Guard.Shown != 1500 {
		t.Fatalf("marked %t, longest %d", marked, state.Guard.Shown)
	}
	s.wait(t, 2*time.Second)
	if marked, state := s.next(t); marked || state.Guard.Shown != length {
		t.Errorf("a segment as long as the one lost: marked %t, longest known to arrive %d", marked, state.Guard.Shown)
	}
	var path ingressPdmPath
	key := ingressPdmPathKey{Remote: netip.MustParseAddr(hostB).As16()}
	if err := s.maps["pdm_paths"].Lookup(&key, &path); err != nil || path.Shown != length {
		t.Errorf("longest packet known of the path: %d, %v", path.Shown, err)
	}
	s.len = length - 60 - pdm.HeaderSize
	if marked, _ := s.next(t); !marked {
		t.Error("a shorter segment was not marked")
	}
}
