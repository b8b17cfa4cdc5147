package pdm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/wire/pdm"
)

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
		s, err := h.pdm.Stats()
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
	cfg := unlimited()
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
			if err := h.pdm.reader.drain(h.epoch(t), datapath.Moment{Mono: int64(now)}, func(*flow.Delta) {}); err != nil {
				t.Fatal(err)
			}
		}
		if s%30 == 20 {
			for n := range uint32(established) {
				send(n)
			}
		}
	}
	s, err := h.pdm.Stats()
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
	h := newBenchHost(t, 1, "test_taken")
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
	// A packet that comes while the other processor makes the state leaves unmarked, and counted.
	if early := h.why(t)["new_failed"]; sum+int(early) != 2*each {
		t.Errorf("%d packets were marked and %d came early, want %d in all", sum, early, 2*each)
	}
	if n := h.states(t); n != 1 {
		t.Errorf("%d states", n)
	}
}

// repeatHere runs a program n times on a frame that it puts back.
func (h *benchHost) repeatHere(program string, frame []byte, n int) error {
	return h.veth.Do(func() error {
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
	p := h.egress(t, 0)
	err := h.veth.Do(func() error {
		for i := range flows {
			var ctx [48]uint32
			ctx[10] = uint32(h.ifindex)
			opts := ebpf.RunOptions{Data: flowFrame(1<<24 + i), DataOut: make([]byte, 256), Context: ctx}
			if _, err := p.Run(&opts); err != nil {
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

// A storm of new flows, many times what there is room for, drops nothing, uses no more memory than it may,
// and does not touch the flows that live; and it is noticed.
func TestStorm(t *testing.T) {
	const storm, chunk, established = 300_000, 10_000, 100
	// No state expires, however long the storm takes.
	budget := unlimited()
	budget.Lifetime = time.Hour
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"with a budget", budget},
		{"without", Config{MaxEntries: 65536, Lifetime: time.Hour, NewPerSecond: 1 << 30, Evict: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newBenchHostOf(t, c.cfg, storm, "bench_egress")
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
			s, err := h.pdm.Stats()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", s)
			slack, err := stateSlack(c.cfg.MaxEntries)
			if err != nil {
				t.Fatal(err)
			}
			slack += c.cfg.far()
			if !c.cfg.Evict {
				slack = 0
			}
			if s.States > uint64(c.cfg.MaxEntries+slack) {
				t.Errorf("%d states, at most %d are allowed", s.States, c.cfg.MaxEntries)
			}
			if s.Alerts == 0 {
				t.Error("nobody noticed")
			}
			// A run that a signal interrupts is done again, and sends new flows once more:
			// how many packets there were, the kernel's own counts say.
			packets, repeated := s.Marked+s.Refused, uint64(established*storm/chunk)
			if packets < storm+established+repeated || s.Created+s.Refused != packets-repeated {
				t.Errorf("%d states and %d refused, of %d packets", s.Created, s.Refused, packets)
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

// Whatever is drained at whatever time, each delay is reported once.
func TestDelaysAreDrainedExactly(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor: nothing to test")
	}
	const each, slices = 200_000, 40
	h := newBenchHost(t, 1, "bench_egress", "test_answer")
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
			t.Errorf("flow %d was not reported", cpu)
			continue
		}
		var inBuckets uint64
		for _, b := range p.Network.Buckets {
			inBuckets += b.Count
		}
		if p.Received != sent[cpu] || p.Network.Count != sent[cpu] || inBuckets != sent[cpu] || p.Suspicious != 0 {
			t.Errorf("flow %d: of %d packets %d were received, %d reported round trips, %d in buckets, %d suspicious",
				cpu, sent[cpu], p.Received, p.Network.Count, inBuckets, p.Suspicious)
		}
		if p.Network.Min == 0 || p.Network.Min > p.Network.Max || p.Network.Sum < p.Network.Min*p.Network.Count {
			t.Errorf("flow %d: %+v", cpu, p.Network)
		}
	}
}
