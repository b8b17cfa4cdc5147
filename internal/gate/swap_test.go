package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/soak"
)

// stays are rules of all sets: they count what is offered, kind by kind.
const stays = "count udp dst port 53\ncount udp dst port 80\ncount udp dst port 9\nlimit 1000/s tcp\nsample udp dst port 9\n"

// swapped are sets in each of which one rule drops port 53, and one passes port 80: a packet that meets half a set gets
// another verdict.
var swapped = []string{
	"pass src 192.0.2.128/25\npass udp dst port 80\ndrop udp dst port 40-60 src 192.0.2.0/24",
	"pass udp dst port 79-81 src 192.0.2.1\ndrop udp dst port 53 len 28-1500 src 192.0.2.0/24\ndrop icmp",
	"drop sctp\npass src 198.51.100.0/24\ndrop ip udp src 192.0.2.1,192.0.2.3,192.0.2.5 dst port 53 src port 1-2000\npass udp dst port 80 src port not 5",
}

// swapKind is a kind of packets, and what became of them.
type swapKind struct {
	name             string
	frame            []byte
	offered, dropped atomic.Uint64
}

func swapKinds() []*swapKind {
	udp := func(port uint16) []byte {
		return packet.Eth().IPv4("192.0.2.1", "198.51.100.2").UDP(1000, port).Payload(10).Bytes()
	}
	return []*swapKind{
		{name: "dropped", frame: udp(53)},
		{name: "passed", frame: udp(80)},
		{name: "sampled", frame: udp(9)},
		{name: "limited", frame: packet.Eth().IPv4("192.0.2.1", "198.51.100.2").TCP(1000, 22).Bytes()},
	}
}

// TestSwapsUnderLoad: while packets run at both hooks, rules are replaced as a whole. The counters of each rule, and flow
// records, account for each packet that was offered: those passed, dropped and sampled.
func TestSwapsUnderLoad(t *testing.T) {
	swapUnderLoad(t, soak.Times(40, 1000), uint64(soak.Times(100_000, 10_000_000)), true)
	if soak.Whole() {
		swapUnderLoad(t, 1000, 10_000_000, false)
	}
}

func swapUnderLoad(t *testing.T, swaps int, packets uint64, captures bool) {
	cfg := small()
	cfg.CaptureRate = 1000
	b := open(t, cfg)
	var sets []*rules.Ruleset
	for _, text := range swapped {
		rs, _, err := rules.Parse("f", stays+text, rules.Options{Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, rs)
	}
	b.apply(t, stays+swapped[0])
	stopCapture := func() uint64 { return 0 }
	if captures {
		stopCapture = b.captured(t, WhatSampled)
	}
	kinds := swapKinds()
	stop := b.offer(t, kinds)
	inFlows := &flow.Delta{}
	note := func(d *flow.Delta) {
		inFlows.Packets, inFlows.Dropped = inFlows.Packets+d.Packets, inFlows.Dropped+d.Dropped
	}
	drain := func() {
		if err := b.dp.Drain(note); err != nil {
			t.Error(err)
		}
	}
	for i := range swaps {
		if err := b.Apply(sets[i%len(sets)]); err != nil {
			t.Error(err)
			break
		}
		if i%50 == 0 {
			drain()
		}
		await.True(t, "packets", func() bool { return t.Failed() || sumOf(kinds).offered >= packets*uint64(i+1)/uint64(swaps) })
	}
	atXDP := stop()
	drain()
	sum := sumOf(kinds)
	t.Logf("%d swaps while %d packets ran; %d were dropped", swaps, sum.offered, sum.dropped)
	// What passes at XDP is counted at tc, which does not see it here.
	if inFlows.Dropped != sum.dropped || inFlows.Packets != sum.offered-(atXDP.offered-atXDP.dropped) {
		t.Errorf("%d packets in flows, %d dropped; offered %+v, of these at XDP %+v", inFlows.Packets, inFlows.Dropped, sum, atXDP)
	}
	read := stopCapture()
	b.checkSwapped(t, kinds, captures, read)
}

// swapSum is what became of all kinds.
type swapSum struct{ offered, dropped uint64 }

func sumOf(kinds []*swapKind) (s swapSum) {
	for _, k := range kinds {
		s.offered, s.dropped = s.offered+k.offered.Load(), s.dropped+k.dropped.Load()
	}
	return s
}

// offer sends packets of all kinds at both hooks, until stop is called, which returns what became of those at XDP.
func (b *bench) offer(t *testing.T, kinds []*swapKind) (stop func() swapSum) {
	var over atomic.Bool
	var senders sync.WaitGroup
	var atXDP swapSum
	for _, h := range hooks {
		p := b.program(t, h.code)
		senders.Go(func() {
			for i := 0; !over.Load(); i++ {
				k := kinds[i%len(kinds)]
				// One by one: a run that a signal interrupts begins again.
				verdict, err := p.Run(&ebpf.RunOptions{Data: k.frame})
				dropped := verdict == h.drop
				if err != nil || k.name != "limited" && dropped != (k.name == "dropped") {
					t.Errorf("%s, %s: verdict %d, %v", h.name, k.name, verdict, err)
					return
				}
				one := swapSum{offered: 1}
				if dropped {
					one.dropped = 1
				}
				k.dropped.Add(one.dropped)
				k.offered.Add(1)
				if h.name == "xdp" {
					atXDP.offered, atXDP.dropped = atXDP.offered+1, atXDP.dropped+one.dropped
				}
			}
		})
	}
	return func() swapSum {
		over.Store(true)
		senders.Wait()
		return atXDP
	}
}

// captured reads what is captured, until stop is called, which returns how many packets that were.
func (b *bench) captured(t *testing.T, what What) (stop func() uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	ended, read := make(chan error, 1), atomic.Uint64{}
	go func() { ended <- b.Capture(ctx, what, func(*Packet) { read.Add(1) }) }()
	await.True(t, "the reader", func() bool { return b.capture.change(func() {}) != 0 })
	return func() uint64 {
		await.True(t, "what was captured", func() bool {
			c, err := b.Captures()
			return err != nil || read.Load() == c.Packets
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return read.Load()
	}
}

// checkSwapped compares the counters of rules with what was offered.
func (b *bench) checkSwapped(t *testing.T, kinds []*swapKind, captures bool, read uint64) {
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range c.Rules[:len(kinds)] {
		if k := kinds[i]; r.Packets != k.offered.Load() {
			t.Errorf("%s: the rule of all sets counted %d packets of %d", k.name, r.Packets, k.offered.Load())
		}
	}
	limit, decided, dropped := c.Rules[3], c.Removed.Packets, c.Removed.Dropped
	for _, r := range c.Rules[len(kinds)+1:] {
		decided, dropped = decided+r.Packets, dropped+r.Dropped
	}
	at := func(i int) uint64 { return kinds[i].offered.Load() }
	if dropped != at(0) || decided != at(0)+at(1) || limit.Dropped != kinds[3].dropped.Load() || limit.Dropped == at(3) {
		t.Errorf("rules decided about %d packets of %d, dropped %d of %d, and the limit %d of %d", decided, at(0)+at(1), dropped, at(0), limit.Dropped, at(3))
	}
	if c.Passed.Packets != at(2)+at(3)-limit.Dropped {
		t.Errorf("no rule decided about %d packets of %d", c.Passed.Packets, at(2)+at(3)-limit.Dropped)
	}
	sampled, err := b.Captures()
	if all := sampled.Packets + sampled.Limited + sampled.Full; captures && all != at(2) || err != nil || read != sampled.Packets {
		t.Errorf("%+v were captured of %d, and %d read; %v", sampled, at(2), read, err)
	}
	if used, want := len(c.Rules)+len(b.free)+len(b.leaving), int(b.slotCount()-uint32(engine.FirstSlot)); used != want {
		t.Errorf("%d slots of counters, want %d", used, want)
	}
}
