package datapath

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

// RFC 8250 section 3.5.1: nobody is made to mark by being sent a mark.
func TestReceiptMakesNoState(t *testing.T) {
	h := newPDMHost(t, *marking())
	h.receive(t, inserted(t, aToB().Bytes(), pdm.Option{PSNTP: 1}))
	if n := h.states(t); n != 0 {
		t.Errorf("%d states", n)
	}
	if got := h.why(t); !maps.Equal(got, map[string]uint64{"no_state": 1}) {
		t.Errorf("counted %v", got)
	}
	// Nor is the answer marked unless a policy names it.
	if err := h.SetPolicies(nil); err != nil {
		t.Fatal(err)
	}
	answer := bToA().Bytes()
	if out := h.send(t, answer); !bytes.Equal(out, answer) {
		t.Error("the answer was marked")
	}
}

// The same addresses and ports in another namespace are another flow.
func TestNamespacesShareNoState(t *testing.T) {
	h := newPDMHost(t, *marking())
	if err := h.pdm.attach(flow.NewIface(1, uint32(h.ifindex)), "from"); err != nil {
		t.Fatal(err)
	}
	if err := h.SetPolicies([]policy.Policy{everything}); err != nil {
		t.Fatal(err)
	}
	p, err := h.variant(variant{netns: 1, iface: uint32(flow.NewIface(1, 0))})
	if err != nil {
		t.Fatal(err)
	}
	h.coll.Programs["elsewhere"] = p.egress
	defer delete(h.coll.Programs, "elsewhere")
	h.send(t, aToB().Bytes())
	h.pass(t, "elsewhere", aToB().Bytes())
	for netns := range uint16(2) {
		key := udpKey(hostA, hostB, portA, portB)
		key.Netns = netns
		if _, ok := h.state(t, key); !ok {
			t.Errorf("namespace %d has no state", netns)
		}
	}
	if n := h.states(t); n != 2 {
		t.Errorf("%d states, want one of each namespace", n)
	}
}

// Options that are read wherever they stand, and others that are counted.
func TestRead(t *testing.T) {
	given := pdm.Option{PSNTP: 100, PSNLR: 3, DeltaTLS: 1, ScaleDTLS: 40}
	next := func() packet.Option {
		given.PSNTP++
		return pdmOption(given)
	}
	ip := func() packet.Builder { return packet.Eth().IPv6(hostB, hostA) }
	udp := func(b packet.Builder) packet.Builder { return b.UDP(portB, portA).Payload(20) }
	pad1 := packet.Option{Type: 1, Data: make([]byte, 1)}
	for _, c := range []struct {
		name   string
		frame  packet.Builder
		reason string
	}{
		{"alone", udp(ip().DestOpts(next())), ""},
		{"behind padding", udp(ip().DestOpts(pad1, next())), ""},
		{"behind another option", udp(ip().DestOpts(unknown(5), next())), ""},
		{"before another option", udp(ip().DestOpts(next(), unknown(5))), ""},
		{"behind hop-by-hop", udp(ip().HopByHop(unknown(4)).DestOpts(next())), ""},
		{"before routing", udp(ip().DestOpts(next()).Routing(hostA)), ""},
		{"in the second header", udp(ip().DestOpts(unknown(4)).Routing(hostA).DestOpts(next())), ""},
		{"in a first fragment", udp(ip().DestOpts(next()).Fragment(0, true, 9)), ""},
		{"in hop-by-hop, where it means nothing", udp(ip().HopByHop(next())), "-"},
		{"none", udp(ip()), "-"},
		{"a later fragment", ip().DestOpts(next()).Fragment(8, false, 10).Payload(16), "fragment"},
		{"PDMv2", udp(ip().DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 0x12)})), "version2"},
		{"of another length", udp(ip().DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 9)})), "malformed"},
		{"twice", udp(ip().DestOpts(next(), next())), "malformed"},
		{"twice, in two headers", udp(ip().DestOpts(next()).Routing(hostA).DestOpts(next())), "malformed"},
		{"beyond its header", udp(ip().DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 10)}).Set(3, 30)), "malformed"},
		{"of another flow", packet.Eth().IPv6(hostB, hostA).DestOpts(next()).UDP(portB, 1).Payload(20), "no_state"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newPDMHost(t, *marking())
			h.putState(t, keyA, 1)
			frame := c.frame.Bytes()
			if out := h.receive(t, frame); !bytes.Equal(out, frame) {
				t.Errorf("changed:\n%x\n%x", frame, out)
			}
			s, _ := h.state(t, keyA)
			if read := s.Received == 1; read != (c.reason == "") {
				t.Errorf("read: %t", read)
			}
			if c.reason == "" {
				o, err := pdm.Find(frame[etherLen:])
				if err != nil || uint16(s.Rx) != o.PSNTP || s.Highest != o.PSNTP {
					t.Errorf("number %d, want %d (%v)", uint16(s.Rx), o.PSNTP, err)
				}
			}
			want := map[string]uint64{c.reason: 1}
			if c.reason == "" || c.reason == "-" {
				want = map[string]uint64{}
			}
			if got := h.why(t); !maps.Equal(got, want) {
				t.Errorf("counted %v, want %v", got, want)
			}
		})
	}
}

// A ping is a flow of its own, by its identifier.
func TestPingIsAFlow(t *testing.T) {
	h := newPDMHost(t, *marking())
	ping := func(id uint16) []byte {
		return packet.Eth().IPv6(hostA, hostB).ICMPv6(128, 0, id, 1).Payload(16).Bytes()
	}
	first := option(t, h.send(t, ping(7)))
	h.send(t, ping(8))
	if again := option(t, h.send(t, ping(7))); again.PSNTP != first.PSNTP+1 {
		t.Errorf("numbers %d and %d", first.PSNTP, again.PSNTP)
	}
	// The reply, which has another type, is of the same flow.
	h.set(t, 2e9)
	reply := packet.Eth().IPv6(hostB, hostA).ICMPv6(129, 0, 7, 1).Payload(16).Bytes()
	h.receive(t, inserted(t, reply, pdm.Option{PSNTP: 5, PSNLR: first.PSNTP + 1}))
	if n := h.states(t); n != 2 {
		t.Errorf("%d states", n)
	}
	var keys []flow.Key
	if err := h.pdm.drain(h.table.filling.epoch, func(d *flow.Delta) { keys = append(keys, d.Key) }); err != nil {
		t.Fatal(err)
	}
	request, answer := flow.Key{}, flow.Key{}
	for _, k := range keys {
		switch {
		case k.Direction == flow.Ingress:
			answer = k
		case k.SrcPort == 7:
			request = k
		}
	}
	if request.DstPort != 128<<8 || answer.DstPort != 129<<8 || answer.SrcPort != 7 || answer != request.Reverse() {
		t.Errorf("keys %+v and %+v", request, answer)
	}
}

// After its lifetime a state is as if it had never been, in the kernel at once
// and in memory at the next drain.
func TestLifetime(t *testing.T) {
	cfg := *marking()
	cfg.Lifetime = 10 * time.Second
	h := newPDMHost(t, cfg)
	h.send(t, aToB().Bytes())
	h.set(t, 5e9)
	h.receive(t, inserted(t, bToA().Bytes(), pdm.Option{PSNTP: 9}))
	h.set(t, 15e9) // 14 s since it was sent, 10 s since it was received
	if o := option(t, h.send(t, aToB().Bytes())); o.PSNLR != 9 || o.IsFirst() {
		t.Errorf("within the lifetime: %v", o)
	}
	h.set(t, 25e9+1)
	h.receive(t, inserted(t, bToA().Bytes(), pdm.Option{PSNTP: 10}))
	if got := h.why(t); !maps.Equal(got, map[string]uint64{"no_state": 1}) {
		t.Errorf("a packet to an old state: counted %v", got)
	}
	if o := option(t, h.send(t, aToB().Bytes())); o.PSNLR != 0 || !o.IsFirst() {
		t.Errorf("after the lifetime: %v", o)
	}
	s, err := h.PDMStats()
	if err != nil || s.Created != 2 || s.Expired != 1 || s.Evicted != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	drain := func(mono int64) PDMStats {
		t.Helper()
		if err := h.pdm.reader.drain(h.table.filling.epoch, moment{mono: mono}, func(*flow.Delta) {}); err != nil {
			t.Fatal(err)
		}
		s, err := h.PDMStats()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := drain(35e9); s.States != 1 || h.states(t) != 1 {
		t.Errorf("a drain within the lifetime: %+v", s)
	}
	if s := drain(35e9 + 2); s.States != 0 || s.Expired != 2 || s.Evicted != 0 || h.states(t) != 0 {
		t.Errorf("a drain after the lifetime: %+v", s)
	}
}

// flowFrame is a packet of the n-th flow.
func flowFrame(n uint32) []byte {
	frame := aToB().Bytes()
	binary.BigEndian.PutUint32(frame[etherLen+8+12:], n) // end of the source address
	return frame
}

// No more states begin in a second than allowed; flows that have one go on.
func TestBudget(t *testing.T) {
	cfg := *marking()
	cfg.NewPerSecond = 10
	h := newPDMHost(t, cfg)
	at := uint64(5e9)
	marked := func(from, to uint32) (n int) {
		for i := from; i < to; i++ {
			h.set(t, at)
			frame := flowFrame(i)
			if !bytes.Equal(h.send(t, frame), frame) {
				n++
			}
			at += 1e6
		}
		return n
	}
	if n := marked(0, 25); n != 10 {
		t.Errorf("%d of 25 flows began in one second", n)
	}
	if got := h.why(t); !maps.Equal(got, map[string]uint64{"new_refused": 15}) {
		t.Errorf("counted %v", got)
	}
	if n := marked(0, 10); n != 10 {
		t.Errorf("%d of the 10 flows go on", n)
	}
	at = 6e9
	if n := marked(10, 25); n != 10 {
		t.Errorf("%d of 15 flows began in the next second", n)
	}
	var alerts []uint64
	for range 2 {
		if err := h.Drain(func(*flow.Delta) {}); err != nil {
			t.Fatal(err)
		}
		s, err := h.PDMStats()
		if err != nil {
			t.Fatal(err)
		}
		alerts = append(alerts, s.Alerts)
		if s.Refused != 20 {
			t.Errorf("refused %d", s.Refused)
		}
	}
	if alerts[0] != 1 || alerts[1] != 1 {
		t.Errorf("alerts after each drain: %v, want one for the first", alerts)
	}
}

// Flows that pause keep their states, whatever new ones come; and while they do,
// some new flows of others find a place, too.
func TestFloodKeepsStates(t *testing.T) {
	const seconds, perSecond, established = 75, 100, 128
	cfg := DefaultPDM()
	cfg.MaxEntries = 1024 // as 6,400 new flows a second are to the default
	h := newPDMHost(t, cfg)
	now := 1000 * second
	sent := map[uint32]uint16{}
	send := func(n uint32) (marked bool) {
		h.set(t, now)
		frame := h.send(t, flowFrame(n))
		o, err := pdm.Find(frame[etherLen:])
		if err != nil {
			return false
		}
		if last, ok := sent[n]; ok && o.PSNTP != last+1 && n < established {
			t.Fatalf("flow %d begins again after %d s", n, (now-1000*second)/second)
		}
		sent[n] = o.PSNTP
		return true
	}
	for n := range uint32(established) {
		if now += second / 20; !send(n) {
			t.Fatalf("flow %d is not marked", n)
		}
	}
	next := uint32(1 << 16)
	for s := range seconds {
		begun := 0
		for range perSecond {
			next++
			now += second / perSecond
			if send(next) {
				begun++
			}
		}
		if begun == 0 {
			t.Errorf("no flow began in second %d", s)
		}
		if s%5 == 0 { // the agent's scan
			if err := h.pdm.reader.drain(h.table.filling.epoch, moment{mono: int64(now)}, func(*flow.Delta) {}); err != nil {
				t.Fatal(err)
			}
		}
		if s%30 == 20 {
			for n := range uint32(established) {
				send(n)
			}
		}
	}
	s, err := h.PDMStats()
	if err != nil || s.Evicted != 0 || s.States > uint64(cfg.MaxEntries) || s.Refused == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	// Some are left, though expired states wait for the next drain here.
	if free := uint64(cfg.MaxEntries) - s.States; free < uint64(cfg.MaxEntries)/20 {
		t.Errorf("%d entries are free", free)
	}
}

// onCPU runs f on a thread of its own that stays on a processor.
func onCPU(cpu int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with f
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			done <- fmt.Errorf("move to processor %d: %w", cpu, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Two processors that send on one flow never give a number twice.
func TestTwoProcessorsShareNoNumber(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor: nothing to test")
	}
	const each = 30_000 // twice that is less than all numbers
	h := newBenchHost(t, 1)
	var sending sync.WaitGroup
	for cpu := range 2 {
		sending.Go(func() {
			// In slices, so that the two meet often.
			for range 30 {
				if err := onCPU(cpu, func() error { return h.repeatHere("test_taken", aToB().Bytes(), each/30) }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
	var taken [1 << 16]uint32
	if err := h.coll.Maps[".data.taken"].Lookup(uint32(0), &taken); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for psn, n := range taken {
		sum += int(n)
		if n > 1 {
			t.Errorf("number %d was given %d times", psn, n)
		}
	}
	if sum != 2*each {
		t.Errorf("%d packets were marked, want %d", sum, 2*each)
	}
	if n := h.states(t); n != 1 {
		t.Errorf("%d states", n)
	}
}

// repeatHere runs a program n times on a frame that it puts back.
func (h *benchHost) repeatHere(program string, frame []byte, n int) error {
	return h.veth.do(func() error {
		var ctx [48]uint32
		ctx[10] = uint32(h.ifindex)
		verdict, err := h.programs[program].Run(&ebpf.RunOptions{Data: frame, Context: ctx, Repeat: uint32(n)})
		if err == nil && int32(verdict) != -1 {
			err = fmt.Errorf("%s: verdict %d", program, int32(verdict))
		}
		return err
	})
}

// numbers checks that flows keep counting by one.
type numbers struct {
	last map[uint32]uint16
}

func (n *numbers) send(t *testing.T, h *benchHost, flows uint32) {
	t.Helper()
	p, err := h.variant(variant{})
	if err != nil {
		t.Fatal(err)
	}
	err = h.veth.do(func() error {
		for i := range flows {
			var ctx [48]uint32
			ctx[10] = uint32(h.ifindex)
			opts := ebpf.RunOptions{Data: flowFrame(1<<24 + i), DataOut: make([]byte, 256), Context: ctx}
			if _, err := p.egress.Run(&opts); err != nil {
				return err
			}
			o, err := pdm.Find(opts.DataOut[etherLen:])
			if err != nil {
				return fmt.Errorf("flow %d: %w", i, err)
			}
			if last, ok := n.last[i]; ok && o.PSNTP != last+1 {
				return fmt.Errorf("flow %d: number %d after %d", i, o.PSNTP, last)
			}
			n.last[i] = o.PSNTP
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A storm of a million new flows drops nothing, uses no more memory than it may,
// and does not touch the flows that live; and it is noticed.
func TestStorm(t *testing.T) {
	const storm, chunk, established = 1_000_000, 10_000, 100
	for _, c := range []struct {
		name string
		cfg  PDM
	}{
		{"with a budget", DefaultPDM()},
		{"without", PDM{MaxEntries: 65536, Lifetime: time.Minute, NewPerSecond: 1 << 30, Evict: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newBenchHostOf(t, c.cfg, storm)
			n := numbers{last: map[uint32]uint16{}}
			n.send(t, h, established)
			for range storm / chunk {
				if err := h.repeatHere("bench_egress", aToB().Bytes(), chunk); err != nil {
					t.Fatal(err)
				}
				n.send(t, h, established)
			}
			if err := h.Drain(func(*flow.Delta) {}); err != nil {
				t.Fatal(err)
			}
			s, err := h.PDMStats()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", s)
			slack, err := stateSlack(c.cfg.MaxEntries)
			if err != nil {
				t.Fatal(err)
			}
			if !c.cfg.Evict {
				slack = 0
			}
			if s.States > uint64(c.cfg.MaxEntries+slack) {
				t.Errorf("%d states, at most %d are allowed", s.States, c.cfg.MaxEntries)
			}
			if s.Alerts == 0 {
				t.Error("nobody noticed")
			}
			// A run that a signal interrupts is done again, and sends new flows once more.
			again := s.Marked + s.Refused - (storm + established*(storm/chunk+1))
			if flows := storm + established + again; s.Created+s.Refused != flows || again > storm/100 {
				t.Errorf("%d states and %d refused, of %d flows", s.Created, s.Refused, flows)
			}
			if s.Evicted != s.Created-s.States {
				t.Errorf("%d evicted: %d created, %d are there", s.Evicted, s.Created, s.States)
			}
			if !c.cfg.Evict && s.Evicted > 0 {
				t.Errorf("%d states were pushed out in spite of the budget", s.Evicted)
			}
		})
	}
}

// Whatever is drained at whatever time, each delay is told once.
func TestDelaysAreDrainedExactly(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor: nothing to test")
	}
	const each, slices = 200_000, 40
	h := newBenchHost(t, 1)
	var sending sync.WaitGroup
	var sent [2]uint64
	for cpu := range sent {
		request := flowFrame(uint32(cpu))
		if err := h.repeatHere("bench_egress", request, 1); err != nil {
			t.Fatal(err)
		}
		answer := bToA().Bytes()
		copy(answer[etherLen+24:etherLen+40], request[etherLen+8:]) // to the source of the request
		answer = inserted(t, answer, pdm.Option{PSNTP: 1, DeltaTLR: 1, ScaleDTLR: 20, DeltaTLS: 1, ScaleDTLS: 20})
		sending.Go(func() {
			for i := range slices {
				// A run begins with the same packet each time: from a number on
				// that none has had.
				binary.BigEndian.PutUint16(answer[etherLen+40+6:], uint16(i*each/slices))
				if err := onCPU(cpu, func() error { return h.repeatHere("test_answer", answer, each/slices) }); err != nil {
					t.Error(err)
				}
				sent[cpu] += each / slices
			}
		})
	}
	got := map[[16]byte]*flow.PDM{}
	drain := func() {
		if err := h.Drain(func(d *flow.Delta) {
			if d.PDM == nil || d.Direction != flow.Ingress {
				return
			}
			if got[d.Dst] == nil {
				got[d.Dst] = &flow.PDM{}
			}
			got[d.Dst].Add(d.PDM)
		}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { sending.Wait(); close(done) }()
	drains := 0
	for running := true; running; drains++ {
		select {
		case <-done:
			running = false
		default:
		}
		drain()
	}
	drain() // what came after the last turn of the epoch
	t.Logf("%d drains", drains)
	for cpu := range sent {
		key := [16]byte(flowFrame(uint32(cpu))[etherLen+8:])
		p := got[key]
		if p == nil {
			t.Errorf("flow %d was not told", cpu)
			continue
		}
		var inBuckets uint64
		for _, b := range p.Network.Buckets {
			inBuckets += b.Count
		}
		if p.Received != sent[cpu] || p.Network.Count != sent[cpu] || inBuckets != sent[cpu] || p.Suspicious != 0 {
			t.Errorf("flow %d: of %d packets %d were received, %d told round trips, %d in buckets, %d suspicious",
				cpu, sent[cpu], p.Received, p.Network.Count, inBuckets, p.Suspicious)
		}
		if p.Network.Min == 0 || p.Network.Min > p.Network.Max || p.Network.Sum < p.Network.Min*p.Network.Count {
			t.Errorf("flow %d: %+v", cpu, p.Network)
		}
	}
}

// A packet that passes several interfaces on its way in is read on the first.
func TestReadOnOneInterface(t *testing.T) {
	h := newPDMHost(t, *marking())
	h.send(t, aToB().Bytes())
	receive := func(ifindex int, psn uint16) {
		t.Helper()
		h.ifindex = ifindex
		h.receive(t, inserted(t, bToA().Bytes(), pdm.Option{PSNTP: psn, DeltaTLS: 1, ScaleDTLS: 30}))
	}
	for psn := range uint16(3) {
		receive(h.veth.from, 100+psn)
		receive(h.veth.to, 100+psn)
	}
	s, _ := h.state(t, keyA)
	if got := h.why(t); s.Received != 3 || s.Duplicates != 0 || int(s.InIface) != h.veth.from || !maps.Equal(got, map[string]uint64{"elsewhere": 3}) {
		t.Errorf("%d read, the last on interface %d; %v passed over", s.Received, s.InIface, got)
	}
	// A later packet overtakes the way of one from port to bridge, and one comes again.
	receive(h.veth.from, 103)
	receive(h.veth.from, 104)
	receive(h.veth.to, 103)
	receive(h.veth.from, 104)
	s, _ = h.state(t, keyA)
	if got := h.why(t); s.Received != 6 || s.Duplicates != 1 || !maps.Equal(got, map[string]uint64{"elsewhere": 1}) {
		t.Errorf("%d read, %d twice; %v passed over", s.Received, s.Duplicates, got)
	}
}

// Single packets are told as often as was asked for, and no more.
func TestRawEventsAreLimited(t *testing.T) {
	cfg := *marking()
	cfg.Raw = 5
	h := newPDMHost(t, cfg)
	var events []PDMEvent
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	told := make(chan PDMEvent, 100)
	go func() { ended <- h.StreamPDM(ctx, func(e *PDMEvent) { told <- *e }) }()
	// On one processor: the limit is each one's own.
	if err := onCPU(0, func() error {
		for i := range 20 {
			h.set(t, uint64(3e9)+uint64(i)*1e6)
			if out, _, err := h.runHereOn("test_egress", packet.Frame{Data: aToB().Bytes()}); err != nil || len(out) == 0 {
				return fmt.Errorf("no packet: %w", err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for len(events) < 5 {
		select {
		case e := <-told:
			events = append(events, e)
		case <-time.After(5 * time.Second):
			t.Fatalf("%d events came", len(events))
		}
	}
	s, err := h.PDMStats()
	if err != nil || s.EventsLost != 15 || s.Marked != 20 {
		t.Errorf("%+v, %v", s, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for i, e := range events {
		if e.Direction != flow.Egress || e.Local.Port() != portA || e.Remote.Port() != portB || e.Proto != 17 ||
			e.Option.PSNTP != events[0].Option.PSNTP+uint16(i) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if err := newPDMHost(t, *marking()).StreamPDM(t.Context(), nil); !errors.Is(err, errNoRaw) {
		t.Errorf("a stream that nobody asked for: %v", err)
	}
}

// runHereOn is runHere in the namespace of the interface, on this thread's processor.
func (h *pdmHost) runHereOn(program string, f packet.Frame) (out []byte, verdict int32, err error) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return nil, 0, err
	}
	err = h.veth.do(func() (err error) {
		if err := unix.SchedSetaffinity(0, &cpus); err != nil {
			return err
		}
		out, verdict, err = h.runHere(program, f)
		return err
	})
	return out, verdict, err
}
