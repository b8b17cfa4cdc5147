package datapath

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/test/packet"
)

// scale makes the tests of exactness smaller, for emulated machines.
var scale = flag.Float64("exact.scale", 1, "part of the packets and flows that tests of exactness send")

func scaled(n uint64) uint64 { return max(1, uint64(float64(n)**scale)) }

// Offsets in an Ethernet/IPv4/UDP frame, for vary() in bpf/test/vary.h.
const (
	addressOffset = 14 + 12 // all four bytes of the source address
	portsOffset   = 14 + 20
	ipHeaders     = 20 + 8
)

// sending is traffic that a program of bpf/test/bench.bpf.c makes of one frame.
type sending struct {
	t       testing.TB
	program *ebpf.Program
	senders *ebpf.Variable
	flows   uint64
	// frames[cpu] is sent on that processor: they differ in length, so that
	// bytes counted for the wrong packet show.
	frames [][]byte
}

// sendOver loads the named program over d.
func sendOver(t testing.TB, d *Datapath, name string, flows uint64, adapt func(*ebpf.CollectionSpec) error) *sending {
	t.Helper()
	var frames [][]byte
	for cpu := range d.cpus {
		payload := 100 + 300*int(cpu%4)
		frames = append(frames, packet.Eth().IPv4("10.0.0.0", "192.0.2.1").UDP(0, 53).Payload(payload).Bytes())
	}
	coll, err := d.Alongside(program.Bench, func(spec *ebpf.CollectionSpec) error {
		maps.DeleteFunc(spec.Programs, func(n string, _ *ebpf.ProgramSpec) bool { return n != name })
		if err := program.Vary(spec, frames[0], addressOffset, portsOffset, flows); err != nil {
			return err
		}
		if adapt != nil {
			return adapt(spec)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	return &sending{t: t, program: coll.Programs[name], senders: coll.Variables["senders"], flows: flows, frames: frames}
}

// run repeats the program n times on a processor. A signal may make that some
// more: what was sent tells.
func (s *sending) run(cpu int, n uint64) error {
	runtime.LockOSThread() // permanently: the thread ends with its goroutine
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("moving to processor %d: %w", cpu, err)
	}
	// Between two runs programs are seen to end: a grace period passes soon.
	const chunk = 8192
	for done := uint64(0); done < n; done += chunk {
		repeat := uint32(min(chunk, n-done))
		if _, err := s.program.Run(&ebpf.RunOptions{Data: s.frames[cpu], Repeat: repeat}); err != nil {
			return fmt.Errorf("sending on processor %d: %w", cpu, err)
		}
	}
	return nil
}

// amounts are packets and IP bytes by flow number, and in all.
type amounts struct {
	packets, bytes           []uint64
	totalPackets, totalBytes uint64
}

func newAmounts(flows uint64) *amounts {
	return &amounts{packets: make([]uint64, flows), bytes: make([]uint64, flows)}
}

func (a *amounts) add(number, packets, bytes uint64) {
	a.packets[number] += packets
	a.bytes[number] += bytes
	a.totalPackets += packets
	a.totalBytes += bytes
}

// truth is what the programs say they sent.
func (s *sending) truth() *amounts {
	s.t.Helper()
	var senders program.Senders
	if err := s.senders.Get(&senders); err != nil {
		s.t.Fatal(err)
	}
	sent := newAmounts(s.flows)
	for cpu, frame := range s.frames {
		for i := range senders.Cpu[cpu].Packets {
			sent.add(i*program.Stride%s.flows, 1, uint64(len(frame)-14))
		}
	}
	return sent
}

// collector adds up deltas. Its add may be called from several goroutines.
type collector struct {
	mu           sync.Mutex
	flows        *amounts
	unattributed amounts
	evicted      uint64 // deltas
	deltas       uint64
	wrong        error // the first delta that cannot be
}

func (c *collector) add(d *flow.Delta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deltas++
	if d.Evicted {
		c.evicted++
	}
	if d.Unattributed {
		c.unattributed.totalPackets += d.Packets
		c.unattributed.totalBytes += d.Bytes
		return
	}
	number := uint64(binary.BigEndian.Uint32(d.Src[12:]) & 0xffffff)
	if number >= uint64(len(c.flows.packets)) || d.SrcPort != uint16(number) || d.DstPort != 53 || d.Proto != 17 ||
		d.PayloadBytes != d.Bytes-ipHeaders*d.Packets || d.WireBytes != d.Bytes+14*d.Packets || d.First > d.Last {
		if c.wrong == nil {
			c.wrong = fmt.Errorf("delta that nobody sent: %+v", *d)
		}
		return
	}
	c.flows.add(number, d.Packets, d.Bytes)
}

// drainWhile sends packets from two processors while it drains d every
// interval, and returns what was sent and what was counted.
func drainWhile(t *testing.T, d *Datapath, flows, packets uint64, interval time.Duration) (sent *amounts, got *collector) {
	t.Helper()
	if d.cpus < 2 {
		t.Skip("one processor is online: two are needed to send at the same time")
	}
	s := sendOver(t, d, "bench_ingress", flows, nil)
	got = &collector{flows: newAmounts(flows)}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var reading errgroup.Group
	reading.Go(func() error { return d.Stream(ctx, got.add) })

	var sending errgroup.Group
	for cpu := range 2 {
		sending.Go(func() error { return s.run(cpu, packets/2) })
	}
	done := make(chan error, 1)
	go func() { done <- sending.Wait() }()

	drains := 0
	drain := func() {
		drains++
		if err := d.Drain(got.add); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		case <-tick.C:
			drain()
		}
	}
	drain()
	stop()
	if err := reading.Wait(); err != nil {
		t.Fatal(err)
	}
	if got.wrong != nil {
		t.Error(got.wrong)
	}
	sent = s.truth()
	t.Logf("%d packets sent, %d drains: %d deltas, %d of them evicted; %d packets unattributed",
		sent.totalPackets, drains, got.deltas, got.evicted, got.unattributed.totalPackets)
	if sent.totalPackets < packets/2*2 {
		t.Errorf("%d packets sent, want at least %d", sent.totalPackets, packets)
	}
	checkTotals(t, d, sent, got)
	return sent, got
}

// checkTotals: every packet and byte is in a delta, none twice, and the probe's
// own counters tell of the deltas that came.
func checkTotals(t *testing.T, d *Datapath, sent *amounts, got *collector) {
	t.Helper()
	packets := got.flows.totalPackets + got.unattributed.totalPackets
	bytes := got.flows.totalBytes + got.unattributed.totalBytes
	if packets != sent.totalPackets || bytes != sent.totalBytes {
		t.Errorf("%d packets and %d bytes were sent; %d and %d are in deltas", sent.totalPackets, sent.totalBytes, packets, bytes)
	}
	stats, err := d.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if stats.Evicted != got.evicted {
		t.Errorf("the probe evicted %d flows, %d came through the ring", stats.Evicted, got.evicted)
	}
	if stats.Unattributed != got.unattributed.totalPackets {
		t.Errorf("the probe tells of %d unattributed packets, deltas hold %d", stats.Unattributed, got.unattributed.totalPackets)
	}
	uncounted, err := d.Uncounted()
	if err != nil || len(uncounted) > 0 {
		t.Errorf("packets that are in no flow: %+v, %v", uncounted, err)
	}
}

// checkFlows: each flow has exactly the packets and bytes that were sent on it.
func checkFlows(t *testing.T, sent *amounts, got *collector) {
	t.Helper()
	wrong := 0
	for i := range sent.packets {
		if sent.packets[i] != got.flows.packets[i] || sent.bytes[i] != got.flows.bytes[i] {
			if wrong++; wrong <= 3 {
				t.Errorf("flow %d: %d packets, %d bytes sent; %d, %d counted",
					i, sent.packets[i], sent.bytes[i], got.flows.packets[i], got.flows.bytes[i])
			}
		}
	}
	if wrong > 3 {
		t.Errorf("%d of %d flows have wrong counts", wrong, len(sent.packets))
	}
}

// Every packet and byte is in a delta, none twice, whatever the way of waiting
// for programs and however often the table is drained.
func TestExact(t *testing.T) {
	for _, tc := range []struct {
		name     string
		grace    func() (*kernel.Grace, error)
		interval time.Duration
	}{
		{"every 20 ms", kernel.NewGrace, 20 * time.Millisecond},
		{"without pause", kernel.NewGrace, time.Nanosecond},
		{"waiting by a map of maps", kernel.NewMapGrace, 20 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Default()
			cfg.WholeTable = true
			d := load(t, cfg)
			d.grace.Close()
			var err error
			if d.grace, err = tc.grace(); err != nil {
				t.Fatal(err)
			}
			sent, got := drainWhile(t, d, scaled(100_000), scaled(3_000_000), tc.interval)
			if got.unattributed.totalPackets > 0 {
				t.Errorf("%d packets are unattributed: the table has room for all flows", got.unattributed.totalPackets)
			}
			checkFlows(t, sent, got)
		})
	}
}

// More flows than the table holds: totals are still exact, and unattributed packets
// are reported.
func TestExactWhenFlowsDontFit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		ring     uint32
		tooSmall bool
	}{
		{"ring of 64 MiB", 64 << 20, false},
		{"ring of one page", uint32(unix.Getpagesize()), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := load(t, Config{MaxEntries: uint32(scaled(65_536)), RingSize: tc.ring})
			sent, got := drainWhile(t, d, scaled(1_000_000), scaled(2_000_000), 20*time.Millisecond)
			if got.evicted == 0 {
				t.Error("no flow was evicted from a table that is too small")
			}
			if tooSmall := got.unattributed.totalPackets > 0; tooSmall != tc.tooSmall {
				t.Errorf("%d packets are unattributed with a ring of %d bytes", got.unattributed.totalPackets, tc.ring)
			}
			for i := range sent.packets {
				if got.flows.packets[i] > sent.packets[i] || got.flows.bytes[i] > sent.bytes[i] {
					t.Fatalf("flow %d: %d packets sent, %d counted", i, sent.packets[i], got.flows.packets[i])
				}
			}
			if !tc.tooSmall {
				checkFlows(t, sent, got)
			}
		})
	}
}
