package pdm

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/pdm/pdmtest"
	"github.com/waymark-net/waymark/wire/pdm"
)

// marking is a configuration that marks as fast as tests send.
func marking() *Config {
	return &Config{MaxEntries: 4096, Lifetime: time.Minute, NewPerSecond: 1 << 20}
}

// unlimited marks every packet.
func unlimited() Config {
	cfg := Default()
	cfg.MarksPerSecond = 0
	return cfg
}

// egress is a copy of the program at egress for a network namespace.
func (b *pdmBench) egress(t testing.TB, netns uint32) *ebpf.Program {
	t.Helper()
	if b.copies[netns] == nil {
		coll, err := b.Alongside(datapath.Egress.Load, func(spec *ebpf.CollectionSpec) error {
			return errors.Join(spec.Variables["cfg_netns"].Set(netns), spec.Variables["cfg_iface"].Set(uint32(flow.NewIface(netns, 0))))
		})
		if err != nil {
			t.Fatalf("%+v", err)
		}
		b.copies[netns] = coll
	}
	return b.copies[netns].Programs[datapath.Egress.Name]
}

// moment is now.
func moment(t testing.TB) datapath.Moment {
	t.Helper()
	now, err := datapath.Now()
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// epoch is the one that programs fill, from the word that controls them.
func (b *pdmBench) epoch(t testing.TB) uint32 {
	t.Helper()
	control, err := b.pdm.core.Map(".data.control")
	if err != nil {
		t.Fatal(err)
	}
	var epoch uint32
	if err := control.Lookup(uint32(0), &epoch); err != nil {
		t.Fatal(err)
	}
	return epoch
}

// batch is an array of cases that a program works through at once.
func batch[T any](t testing.TB, coll *ebpf.Collection, name string) (cases []T, write, read func()) {
	t.Helper()
	m := coll.Maps[name]
	cases = make([]T, pdmtest.Cases)
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&cases[0])), len(cases)*int(unsafe.Sizeof(cases[0])))
	if int(m.ValueSize()) != len(raw) {
		t.Fatalf("%s has %d bytes, the cases %d", name, m.ValueSize(), len(raw))
	}
	write = func() {
		if err := m.Put(uint32(0), raw); err != nil {
			t.Fatal(err)
		}
	}
	read = func() {
		out, err := m.LookupBytes(uint32(0))
		if err != nil {
			t.Fatal(err)
		}
		copy(raw, out)
	}
	return cases, write, read
}

// loadCases is what pdmtest has for batch.
func loadCases(t testing.TB, program string) *ebpf.Collection {
	t.Helper()
	coll, err := load(t, *marking()).Alongside(pdmtest.Load, only(program))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	return coll
}

func runCases(t testing.TB, coll *ebpf.Collection, program string) {
	t.Helper()
	verdict, err := coll.Programs[program].Run(&ebpf.RunOptions{Data: make([]byte, 64)})
	if err != nil || int32(verdict) != -1 {
		t.Fatalf("%s: verdict %d, %v", program, int32(verdict), err)
	}
}

// randomTime is of any magnitude: small, large, and around powers of two.
func randomTime(r *rand.Rand, bits int) uint64 {
	n := uint64(1) << r.IntN(bits)
	switch r.IntN(4) {
	case 0:
		return n - uint64(r.IntN(3))%(n+1)
	case 1:
		return n
	default:
		return n + r.Uint64N(n)
	}
}

const millionCases = 1_000_000

// Scales, their inverse and the buckets of histograms are the same in C and Go.
func TestNumbersAgree(t *testing.T) {
	coll := loadCases(t, "test_scale")
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	cases, write, read := batch[pdmtest.Number](t, coll, ".data.numbers")
	check := func(c *pdmtest.Number) {
		delta, scale := pdm.Scale(c.Ns)
		if c.OutDelta != delta || c.OutScale != scale {
			t.Fatalf("%d ns: C %04x scale %d, Go %04x scale %d", c.Ns, c.OutDelta, c.OutScale, delta, scale)
		}
		// Routers read these bits of a burst as the length of a TCP header in words.
		if words := c.BurstDelta >> 12; words < 5 || words > (pdm.HeaderSize+20)/4 {
			t.Fatalf("%d ns: a burst has DTLS %04x", c.Ns, c.BurstDelta)
		}
		burst := pdm.Option{DeltaTLS: c.BurstDelta, ScaleDTLS: c.BurstScale}
		exact, _ := pdm.Nanoseconds(delta, scale)
		if ns, _ := pdm.Nanoseconds(c.BurstDelta, c.BurstScale); ns > exact || exact-ns > exact>>14+1 || burst.IsFirst() != (c.Ns == 0) {
			t.Fatalf("%d ns: a burst has DTLS %v, a packet %d ns", c.Ns, burst, exact)
		}
		if bucket := inband.Bucket(c.Ns); int(c.Bucket) != bucket {
			t.Fatalf("%d ns: bucket %d in C, %d in Go", c.Ns, c.Bucket, bucket)
		}
		ns, ok := pdm.Nanoseconds(c.Delta, c.Scale)
		if !ok {
			ns = ^uint64(0)
		}
		if c.Back != ns {
			t.Fatalf("%04x scale %d: %d ns in C, %d in Go", c.Delta, c.Scale, c.Back, ns)
		}
	}
	golden := []uint64{39838e3, 32311072e3, 3e9, 4e9, 12e9, 1, 1e3, 1e6, 1e9, 0, 1<<43 - 1, 1 << 43, ^uint64(0)}
	for done := 0; done < millionCases; done += len(cases) {
		for i := range cases {
			cases[i] = pdmtest.Number{Ns: randomTime(r, 64), Delta: uint16(randomTime(r, 16)), Scale: uint8(r.IntN(256))}
			if done == 0 && i < len(golden) {
				cases[i].Ns = golden[i]
			}
		}
		write()
		runCases(t, coll, "test_scale")
		read()
		for i := range cases {
			check(&cases[i])
		}
	}
}

// A flow's state takes the same steps in C and Go, whatever is sent and received.
func TestStepsAgree(t *testing.T) {
	coll := loadCases(t, "test_steps")
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(2, seed))
	events, write, read := batch[pdmtest.Event](t, coll, ".data.events")
	g := &stepGenerator{r: r}
	for done := 0; done < millionCases; done += len(events) {
		want := make([]pdmtest.Event, len(events))
		for i := range events {
			events[i], want[i] = g.next()
		}
		write()
		runCases(t, coll, "test_steps")
		read()
		for i := range events {
			if events[i] != want[i] {
				t.Fatalf("seed %d, step %d:\n C %+v\nGo %+v", seed, done+i, events[i], want[i])
			}
		}
		var state pdmtest.State
		if err := coll.Maps[".data.state"].Lookup(uint32(0), &state); err != nil {
			t.Fatal(err)
		}
		g.compare(t, &state)
	}
}

// stepGenerator draws steps, and has Go take them.
type stepGenerator struct {
	r        *rand.Rand
	endpoint *inband.Endpoint
	now      uint64
	peer     uint16 // what the peer sends next
	left     int    // steps before a new flow begins
	words    uint32
}

func (g *stepGenerator) next() (in, out pdmtest.Event) {
	if g.left == 0 {
		g.left = 1 + g.r.IntN(200)
		g.endpoint = &inband.Endpoint{State: pdm.State{PSN: uint16(g.r.Uint32())}, Lifetime: uint64(marking().Lifetime)}
		g.now = 1 + g.r.Uint64N(1<<62)
		g.peer = uint16(g.r.Uint32())
		in.Step = uint32(pdmtest.StepBegin)
		in.Option.Psntp = g.endpoint.PSN
		return in, in
	}
	g.left--
	g.now += randomTime(g.r, 38) // at least 1: the kernel's clock goes on from packet to packet
	in.Now = g.now
	if g.r.IntN(2) == 0 {
		in.Step = uint32(pdmtest.StepSend)
		send := g.endpoint.Send
		if g.r.IntN(4) == 0 {
			in.Bare, send = 1, g.endpoint.SendAcknowledgment
		}
		out = in
		setOption(&out, send(g.now))
		return in, out
	}
	in.Step = uint32(pdmtest.StepReceive)
	in.Word = g.word()
	o := g.option()
	setOption(&in, o)
	out = in
	receive := g.endpoint.Receive
	if g.r.IntN(4) == 0 {
		in.Bare, out.Bare = 1, 1
		receive = g.endpoint.Acknowledge
	}
	s := receive(o, in.Word, g.now)
	out.Arrival, out.Suspicion = uint8(s.Arrival), uint8(s.Suspicion)
	out.Server, out.Network = s.Server, s.Network
	if s.HasServer {
		out.Has |= 1
	}
	if s.HasNetwork {
		out.Has |= 2
	} else {
		out.Network = 0
	}
	return in, out
}

// word is new for most packets, and that of the one before for some.
func (g *stepGenerator) word() uint32 {
	if g.r.IntN(4) > 0 {
		g.words++
	}
	return g.words
}

// option is mostly what a peer would send next, an answer to the latest packet.
func (g *stepGenerator) option() pdm.Option {
	o := pdm.Option{PSNTP: g.peer, PSNLR: g.endpoint.LastSent()}
	g.peer++
	switch g.r.IntN(16) {
	case 0: // one or more are lost
		o.PSNTP += uint16(1 + g.r.IntN(100))
		g.peer = o.PSNTP + 1
	case 1: // late or twice
		o.PSNTP -= uint16(1 + g.r.IntN(100))
		g.peer--
	case 2: // out of all order
		o.PSNTP = uint16(g.r.Uint32())
		if g.r.IntN(2) == 0 {
			g.peer = o.PSNTP + 1
		}
	case 3, 4:
		o.PSNLR -= uint16(g.r.IntN(20))
	case 5:
		o.PSNLR += uint16(g.r.IntN(20))
	case 6:
		o.PSNLR = uint16(g.r.Uint32())
	}
	switch elapsed := g.now - g.endpoint.TLS; g.r.IntN(8) {
	case 0:
		o.DeltaTLR, o.ScaleDTLR = uint16(g.r.Uint32()), uint8(g.r.Uint32())
	case 1:
		o.DeltaTLR, o.ScaleDTLR = pdm.Scale(elapsed + elapsed>>uint(9+g.r.IntN(4)))
	case 2: // it had received nothing
		o.PSNLR = 0
	default:
		o.DeltaTLR, o.ScaleDTLR = pdm.Scale(g.r.Uint64N(elapsed%(1<<40) + 1))
	}
	if g.r.IntN(8) > 0 {
		o.DeltaTLS, o.ScaleDTLS = uint16(g.r.Uint32()), uint8(g.r.Uint32())
	}
	return o
}

func setOption(e *pdmtest.Event, o pdm.Option) {
	e.Option.Psntp, e.Option.Psnlr = o.PSNTP, o.PSNLR
	e.Option.Dtlr.Delta, e.Option.Dtlr.Scale = o.DeltaTLR, o.ScaleDTLR
	e.Option.Dtls.Delta, e.Option.Dtls.Scale = o.DeltaTLS, o.ScaleDTLS
}

// compare checks what both counted of the running flow.
func (g *stepGenerator) compare(t *testing.T, s *pdmtest.State) {
	t.Helper()
	e := g.endpoint
	for _, c := range []struct {
		name   string
		c, go_ uint64
	}{
		{"received", uint64(s.Received), e.Peer.Packets},
		{"lost", uint64(s.Lost), e.Peer.Lost},
		{"reordered", uint64(s.Reordered), e.Peer.Reordered},
		{"duplicates", uint64(s.Duplicates), e.Peer.Duplicates},
		{"copies", uint64(s.Copies), e.Peer.Copies},
		{"late", uint64(s.Late), e.Peer.Late},
		{"wild", uint64(s.Wild), e.Peer.Wild},
		{"restarts", uint64(s.Restarts), e.Peer.Restarts},
		{"discarded", uint64(s.Discarded), e.Discarded},
		{"suspicious", uint64(s.Suspicious), e.Suspicious},
		{"next number", uint64(uint16(s.Psn)), uint64(e.PSN)},
	} {
		if c.c != c.go_ {
			t.Fatalf("%s: %d in C, %d in Go", c.name, c.c, c.go_)
		}
	}
}
