package pdm

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/wire/pdm"
)

// exchange is a flow between two hosts that share a table: a request every 500 ms
// that is answered after 20 ms, with 1 ms of network each way.
type exchange struct {
	*pdmHost
	now     uint64
	serving int // interface that requests come by
	asking  int // interface that answers come by
}

func newExchange(t *testing.T, cfg Config) *exchange {
	t.Helper()
	h := newPDMHost(t, cfg)
	x := &exchange{pdmHost: h, now: 1000 * second, serving: h.ifindex, asking: h.ifindex}
	x.begin(t)
	return x
}

// begin lets both hosts restart.
func (x *exchange) begin(t *testing.T) {
	t.Helper()
	x.putState(t, keyA, 100)
	x.putState(t, keyB, 60000)
}

// receiveBy receives a frame on an interface.
func (x *exchange) receiveBy(t *testing.T, ifindex int, frame []byte) {
	t.Helper()
	own := x.ifindex
	x.ifindex = ifindex
	x.receive(t, frame)
	x.ifindex = own
}

// run takes n exchanges, with something between request and answer.
func (x *exchange) run(t *testing.T, n int, between func()) {
	t.Helper()
	const ms = second / 1000
	for range n {
		x.set(t, x.now)
		request := x.send(t, aToB().Bytes())
		x.set(t, x.now+ms)
		x.receiveBy(t, x.serving, request)
		between()
		x.set(t, x.now+21*ms)
		answer := x.send(t, bToA().Bytes())
		if o := option(t, answer); o.PSNLR != option(t, request).PSNTP {
			t.Fatalf("the answer to %v is %v", option(t, request), o)
		}
		x.set(t, x.now+22*ms)
		x.receiveBy(t, x.asking, answer)
		between()
		x.now += 500 * ms
	}
}

func nothing() {}

// reported is what the drain tells of packets that the first host received.
func (x *exchange) reported(t *testing.T) (got flow.PDM) {
	t.Helper()
	if err := x.pdm.reader.drain(x.epoch(t), datapath.Moment{Mono: int64(x.now)}, func(d *flow.Delta) {
		if d.Direction == flow.Ingress && d.Src == keyA.Remote {
			got.Add(d.PDM)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// forged is a packet to the first host with an option of the attacker's choice.
func forged(t *testing.T, o pdm.Option) []byte { return inserted(t, bToA().Bytes(), o) }

// Somebody who knows the 5-tuple and sees no packet changes nothing of what is
// measured or sent: with restarts, numbers at random, and runs of them.
func TestForgedPacketsChangeNothing(t *testing.T) {
	x := newExchange(t, *marking())
	x.run(t, 2, nothing)
	x.reported(t)
	r := rand.New(rand.NewPCG(1, 2))
	sent := uint64(0)
	before := x.pdm.reader.stats
	x.run(t, 40, func() {
		for range 11 {
			o := pdm.Option{PSNTP: uint16(r.Uint32())}
			if r.IntN(2) == 0 {
				o.PSNLR, o.DeltaTLR, o.DeltaTLS = 20000+uint16(r.IntN(1<<15)), 1, uint16(r.IntN(2))
			}
			if d := int16(o.PSNTP - 60000); d > -64 && d < 128 {
				continue // not a guess
			}
			for range 3 {
				o.PSNTP++
				x.receive(t, forged(t, o))
				sent++
			}
		}
	})
	got := x.reported(t)
	if got.Server.Count != 40 || got.Network.Count != 40 || got.Received != 40 || got.Lost != 0 || got.Reordered+got.Duplicates+got.Discarded != 0 {
		t.Errorf("%+v", got)
	}
	if got.Server.Max > 20e6 || got.Server.Min < 199e5 || got.Network.Max > 21e5 || got.Network.Min < 2e6 {
		t.Errorf("server %d to %d ns, network %d to %d ns", got.Server.Min, got.Server.Max, got.Network.Min, got.Network.Max)
	}
	s, _ := x.state(t, keyA)
	if got.Suspicious+uint64(s.Late) != sent || got.Suspicious < sent*9/10 {
		t.Errorf("%d of %d forged packets are suspicious, and %d late", got.Suspicious, sent, s.Late)
	}
	if after := x.pdm.reader.stats; after.Alerts != before.Alerts {
		t.Errorf("%+v", after)
	}
}

// Numbers that jump are suspicious, not lost; what one packet can tell is bounded;
// and no count is ever negative.
func TestForgedLoss(t *testing.T) {
	x := newExchange(t, *marking())
	x.run(t, 10, nothing)
	x.reported(t)
	s, _ := x.state(t, keyA)
	last := uint16(s.Psn - 1)
	for i := range uint16(200) {
		// Also by somebody who does see what the host sends.
		x.receive(t, forged(t, pdm.Option{PSNTP: s.Highest + 1024*(i+1), PSNLR: last, DeltaTLR: 1, DeltaTLS: 1}))
	}
	if got := x.reported(t); got.Lost != 0 || got.Suspicious < 100 {
		t.Errorf("%+v", got)
	}
	x.receive(t, forged(t, pdm.Option{PSNTP: s.Highest + 64, PSNLR: last, DeltaTLR: 1, DeltaTLS: 1}))
	if got := x.reported(t); got.Lost != 63 {
		t.Errorf("one packet reports %d lost", got.Lost)
	}
	x.receive(t, forged(t, pdm.Option{PSNTP: s.Highest + 1, PSNLR: last, DeltaTLR: 1, DeltaTLS: 1}))
	x.receive(t, forged(t, pdm.Option{PSNTP: s.Highest + 65, PSNLR: last, DeltaTLR: 1, DeltaTLS: 1}))
	if got := x.reported(t); got.Lost != 0 || got.Reordered != 1 || got.Received != 2 {
		t.Errorf("one that comes late: %+v", got)
	}
	x.receive(t, forged(t, pdm.Option{PSNTP: s.Highest + 68, PSNLR: last, DeltaTLR: 1, DeltaTLS: 1}))
	if got := x.reported(t); got.Lost != 1 {
		t.Errorf("two lost after one was taken back: %+v", got)
	}
	s, _ = x.state(t, keyA)
	s.Lost += 5e9
	x.setState(t, keyA, s)
	x.receive(t, forged(t, pdm.Option{PSNTP: s.Highest + 1, PSNLR: last, DeltaTLR: 1, DeltaTLS: 1}))
	if got := x.reported(t); got.Lost != 5e9 {
		t.Errorf("5e9 lost in one interval are reported as %d", got.Lost)
	}
}

// A flow is read where its packets come first; it moves with one that is believed,
// and not with one that is forged.
func TestForgedPacketsMoveNoFlow(t *testing.T) {
	x := newExchange(t, *marking())
	other := x.veth.To
	x.run(t, 2, nothing)
	x.reported(t)
	psn := uint16(0)
	x.run(t, 20, func() {
		psn += 3001
		x.receiveBy(t, other, forged(t, pdm.Option{PSNTP: psn, PSNLR: psn, DeltaTLR: 1}))
	})
	s, _ := x.state(t, keyA)
	if got := x.reported(t); got.Network.Count != 20 || got.Lost != 0 || int(s.InIface) != x.veth.From {
		t.Errorf("read on interface %d: %+v", s.InIface, got)
	}
	if got := x.why(t); len(got) > 0 {
		t.Errorf("passed over %v", got)
	}
	// The other link takes over.
	x.asking = other
	x.run(t, 20, nothing)
	s, _ = x.state(t, keyA)
	if got := x.reported(t); got.Network.Count != 20 || got.Lost != 0 || int(s.InIface) != other {
		t.Errorf("read on interface %d: %+v", s.InIface, got)
	}
}

// What was read while another processor held the state is not lost.
func TestContendedIsNotLost(t *testing.T) {
	x := newExchange(t, *marking())
	x.run(t, 10, nothing)
	x.reported(t)
	s, _ := x.state(t, keyA)
	first, last := s.Highest+1, uint16(s.Psn-1)
	receive := func(n uint16, held bool) {
		t.Helper()
		if held {
			s, _ := x.state(t, keyA)
			s.Lock = 1
			x.setState(t, keyA, s)
		}
		x.receive(t, forged(t, pdm.Option{PSNTP: first + n, PSNLR: last, DeltaTLR: 1, DeltaTLS: 1}))
		if held {
			s, _ := x.state(t, keyA)
			s.Lock = 0
			x.setState(t, keyA, s)
		}
	}
	contended := uint64(0)
	total := uint64(0)
	lost := int64(0)
	check := func(name string, more int64) {
		t.Helper()
		lost += more
		got := x.reported(t)
		if got.Lost != more || got.Received != total || got.Duplicates+got.Reordered+got.Suspicious != 0 {
			t.Errorf("%s: %+v; want %d received, %d lost", name, got, total, more)
		}
		if got := x.why(t)["contended"]; got != contended {
			t.Errorf("%s: %d contended, want %d", name, got, contended)
		}
		total, contended = 0, 0
	}
	n := uint16(0)
	one := func(held bool) {
		receive(n, held)
		n++
		total++
		if held {
			contended++
		}
	}
	one(false)
	one(true)
	one(false)
	check("one", 0)
	for range 20 {
		one(true)
	}
	n++ // lost
	one(false)
	check("some, and one that is lost", 1)
	n++
	one(false) // overtakes the next
	receive(n-2, true)
	total++
	contended++
	one(false)
	check("one that was overtaken", 0)
	for range 60 {
		one(true)
	}
	one(false)
	check("as many as the window has", 0)
	// What nobody would believe is not noted.
	receive(n+30000, true)
	s, _ = x.state(t, keyA)
	if s.Missed != 0 || s.MissedFar != 0 {
		t.Errorf("%x, %d noted", s.Missed, s.MissedFar)
	}
}

// UDP without a checksum, which the stack drops, changes nothing.
func TestNoChecksumIsNotRead(t *testing.T) {
	x := newExchange(t, *marking())
	x.run(t, 3, nothing)
	before, _ := x.state(t, keyA)
	frame := forged(t, pdm.Option{PSNTP: before.Highest + 1, PSNLR: uint16(before.Psn - 1), DeltaTLR: 1, DeltaTLS: 1})
	binary.BigEndian.PutUint16(frame[etherLen+40+pdm.HeaderSize+6:], 0)
	x.receive(t, frame)
	if after, _ := x.state(t, keyA); after != before {
		t.Errorf("%+v, before %+v", after, before)
	}
	if got := x.why(t); !maps.Equal(got, map[string]uint64{"checksum": 1}) {
		t.Errorf("counted %v", got)
	}
}

// A stamp has 48 bits, which is 78 hours: a flow that goes on longer in one
// direction is neither forgotten nor mistaken for a new one.
func TestDaysInOneDirection(t *testing.T) {
	cfg := *marking()
	cfg.Lifetime = 24 * time.Hour
	x := newExchange(t, cfg)
	for hours := uint64(12); hours < 120; hours += 12 {
		x.begin(t)
		x.run(t, 2, nothing)
		begin := x.now
		s, _ := x.state(t, keyA)
		psn, last := s.Highest, uint16(s.Psn-1)
		for at := uint64(0); at < hours; at += 12 {
			x.now = begin + at*3600*second
			x.set(t, x.now)
			psn++
			x.receive(t, forged(t, pdm.Option{PSNTP: psn, PSNLR: last, DeltaTLR: 1, ScaleDTLR: 40, DeltaTLS: 1}))
			x.reported(t)
		}
		if s, ok := x.state(t, keyA); !ok || s.Highest != psn || s.Lost != 0 {
			t.Fatalf("after %d hours: %+v, %t", hours, s, ok)
		}
		o := option(t, x.send(t, aToB().Bytes()))
		ns, _ := pdm.Nanoseconds(o.DeltaTLS, o.ScaleDTLS)
		if want := min(hours-12, 36) * 3600 * second; ns < want-want>>10 || ns > (want+3600*second)*11/10 {
			t.Errorf("after %d hours: the packet before was sent %v ago", hours, time.Duration(ns))
		}
	}
	// Likewise where nothing comes.
	x.begin(t)
	x.run(t, 2, nothing)
	for at := range uint64(10) {
		x.now += 12 * 3600 * second
		x.set(t, x.now)
		o := option(t, x.send(t, aToB().Bytes()))
		x.reported(t)
		ns, _ := pdm.Nanoseconds(o.DeltaTLR, o.ScaleDTLR)
		if want := min((at+1)*12, 36) * 3600 * second; ns < want-want>>10 || o.IsFirst() {
			t.Errorf("after %d hours: the packet before was received %v ago, %v", at*12, time.Duration(ns), o)
		}
	}
}
