package gate

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/packet"
)

// swaps is how often rules are replaced.
const swaps = 1000

// TestSwapsUnderLoad: while packets run at both hooks, rules are replaced as a whole. In
// each of the sets one rule decides about each packet, so that a packet that meets half a
// set would pass; and the counters account for each packet that was sent.
func TestSwapsUnderLoad(t *testing.T) {
	b := open(t, small())
	var sets []*rules.Ruleset
	for _, text := range []string{
		"count udp\npass src 192.0.2.128/25\ndrop udp dst port 53 src 192.0.2.0/24",
		"count udp\ndrop udp dst port 53 len 28-1500 src 192.0.2.0/24\ndrop tcp",
		"drop tcp\npass src 198.51.100.0/24\ncount udp\ndrop src 192.0.2.1,192.0.2.3,192.0.2.5 ip udp src port 1-2000\ndrop udp",
	} {
		rs, _, err := rules.Parse("f", text, rules.Options{Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		sets = append(sets, rs)
	}
	if err := b.Apply(sets[0]); err != nil {
		t.Fatal(err)
	}
	frame := packet.Eth().IPv4("192.0.2.1", "198.51.100.2").UDP(1000, 53).Payload(10).Bytes()
	var offered atomic.Uint64
	var stop atomic.Bool
	var senders sync.WaitGroup
	for _, h := range hooks {
		senders.Go(func() {
			for !stop.Load() {
				// One by one: a run that a signal interrupts begins again.
				verdict, err := h.program(b).Run(&ebpf.RunOptions{Data: frame})
				if err != nil || verdict != h.drop {
					t.Errorf("%s: verdict %d, %v", h.name, verdict, err)
					return
				}
				offered.Add(1)
			}
		})
	}
	var inFlows uint64 // of both epochs
	dropped := func(d *flow.Delta) { inFlows += d.Dropped }
	for i := range swaps {
		if err := b.Apply(sets[i%len(sets)]); err != nil {
			t.Error(err)
			break
		}
		if i%50 == 0 {
			if err := b.dp.Drain(dropped); err != nil {
				t.Error(err)
			}
		}
	}
	stop.Store(true)
	senders.Wait()
	if err := b.dp.Drain(dropped); err != nil {
		t.Error(err)
	}
	if inFlows != offered.Load() {
		t.Errorf("%d dropped packets are in flows, of %d", inFlows, offered.Load())
	}
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	// All rules that were removed drop.
	gone := c.Removed.Dropped
	for _, r := range c.Rules {
		gone += r.Dropped
		if r.Rule.Action == rules.ActionCount && r.Packets != offered.Load() {
			t.Errorf("the rule of all sets counted %d packets of %d", r.Packets, offered.Load())
		}
	}
	if c.Passed.Packets != 0 || gone != offered.Load() || gone < swaps {
		t.Errorf("offered %d: dropped %d, passed %d", offered.Load(), gone, c.Passed.Packets)
	}
	if used := len(c.Rules) + len(b.free); used != 2*1024 {
		t.Errorf("%d slots of counters, want 2048", used)
	}
	t.Logf("%d swaps while %d packets ran", swaps, offered.Load())
}
