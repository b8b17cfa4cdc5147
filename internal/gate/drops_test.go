package gate

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/gate/rules/rulestest"
	"github.com/waymark-net/waymark/test/packet"
)

// recorded are what flows count between two drains.
type recorded struct {
	flows map[flow.Key]flow.Counts
	parts map[flow.Key]int // that the kernel kept of a flow: by processor and link header
	lost  flow.Counters    // packets whose flow could not be kept
	drops map[flow.Drop]uint64
}

func newRecorded() *recorded {
	return &recorded{flows: map[flow.Key]flow.Counts{}, parts: map[flow.Key]int{}, drops: map[flow.Drop]uint64{}}
}

func (r *recorded) add(d *flow.Delta) {
	if d.Drop != nil {
		r.drops[*d.Drop] += d.Dropped
	}
	if d.Unattributed {
		r.lost.Add(&d.Counters)
		return
	}
	r.parts[d.Key]++
	c := r.flows[d.Key]
	c.Add(&d.Counts)
	r.flows[d.Key] = c
}

// drain is what was counted since the drain before.
func (b *bench) drain(t require) *recorded {
	r := newRecorded()
	if err := b.dp.Drain(r.add); err != nil {
		t.Fatalf("%v", err)
	}
	return r
}

// reasons are the packets that are in no flow.
func (b *bench) reasons(t require) map[string]uint64 {
	list, err := b.dp.Uncounted()
	if err != nil {
		t.Fatalf("%v", err)
	}
	out := map[string]uint64{}
	for _, u := range list {
		out[u.Reason] += u.Packets
	}
	return out
}

// measured is what a flow counts, without what depends on when its packets came, or that they went on. Which packet was
// the first is not known where two parts of a flow began within a tick, here or in the other pass.
func measured(r, other *recorded) map[flow.Key]flow.Counts {
	out := maps.Clone(r.flows)
	for k, c := range out {
		if r.parts[k] > 1 || other.parts[k] > 1 {
			c.TOS, c.FlowLabel, c.VNI = 0, 0, 0
		}
		c.Dropped, c.DroppedBytes, c.Drop = 0, 0, nil
		c.First, c.Last, c.FirstSpread, c.RTT, c.Opening = 0, 0, 0, flow.RTT{}, 0
		out[k] = c
	}
	return out
}

// burst is a frame as tc sees it.
type burst struct {
	data []byte
	gso  packet.GSO
}

func (b *bench) send(t require, h at, f burst) bool {
	opts := &ebpf.RunOptions{Data: f.data}
	if f.gso.Segments > 0 {
		ctx := make([]byte, 192) // struct __sk_buff: gso_segs, gso_size
		binary.NativeEndian.PutUint32(ctx[164:], uint32(f.gso.Segments))
		binary.NativeEndian.PutUint32(ctx[176:], uint32(f.gso.Size))
		opts.Context = ctx
	}
	_, err := b.program(t, h.code).Run(opts)
	return err == nil
}

// forgetFragments has no fragment belong to a flow of frames that were sent before.
func (b *bench) forgetFragments(t require) {
	m, err := b.core.Map("fragments")
	if err != nil {
		t.Fatalf("%v", err)
	}
	var keys, values []byte // of any type
	var all [][]byte
	for each := m.Iterate(); each.Next(&keys, &values); {
		all = append(all, keys)
		keys = nil
	}
	for _, key := range all {
		if err := m.Delete(key); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// ruleDrops is what the rules in effect dropped.
func (b *bench) ruleDrops(t require) (n uint64) {
	c, err := b.Counters()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, r := range c.Rules {
		n += r.Dropped
	}
	return n
}

// TestDroppedPacketsAreInFlows: what rules drop is in the same flows, with the same counts, as what goes on: at both
// hooks, in both epochs, for sound, damaged, fragmented and cut frames, and for bursts at tc.
func TestDroppedPacketsAreInFlows(t *testing.T) {
	cfg := small()
	cfg.Dropped = 1 << 14
	b := open(t, cfg)
	text := map[string]*rules.Ruleset{}
	for _, s := range []string{"count", "drop"} {
		rs, _, err := rules.Parse("f", s, rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text[s] = rs
	}
	id, packets := text["drop"].Rules[0].ID, uint64(0)
	rapid.Check(t, func(r *rapid.T) {
		var frames []burst
		for _, f := range rulestest.Frames(r, 15) {
			frames = append(frames, burst{data: f})
		}
		bursts := []burst{}
		for range 3 {
			f := packet.RandomBurst().Draw(r, "burst").Frame
			if f.Tag == nil && !f.L3 {
				bursts = append(bursts, burst{f.Data, f.GSO})
			}
		}
		for _, h := range hooks {
			sent := frames
			if h.name == "tc" {
				sent = append(sent, bursts...)
			}
			b.drain(r)
			all := func(s string, at at) (*recorded, map[string]uint64) {
				if err := b.Apply(text[s]); err != nil {
					r.Fatal(err)
				}
				b.forgetFragments(r)
				before := b.reasons(r)
				for _, f := range sent {
					b.send(r, at, f)
				}
				after := b.reasons(r)
				for reason, n := range before {
					after[reason] -= n
				}
				return b.drain(r), after
			}
			want, _ := all("count", hooks[1]) // only tc counts what goes on
			got, why := all("drop", h)
			if diff := gocmp.Diff(measured(want, got), measured(got, want)); diff != "" {
				r.Fatalf("%s (-passed +dropped):\n%s", h.name, diff)
			}
			var dropped uint64
			for k, c := range got.flows {
				dropped += c.Dropped
				if c.Dropped != c.Packets || c.DroppedBytes != c.Bytes || c.Drop == nil || c.Drop.Rule != id || c.Drop.Verdict != flow.VerdictDrop || c.Drop.Text != "drop" {
					r.Fatalf("%+v: %+v, %+v", k, c.Counters, c.Drop)
				}
			}
			packets += dropped
			if got.lost.Packets != 0 {
				r.Fatalf("%d packets have no flow", got.lost.Packets)
			}
			// What cannot be parsed is counted by reason.
			if rule := b.ruleDrops(r); rule != dropped+why["dropped_by_rule"] {
				r.Fatalf("%s: the rule dropped %d packets, %d are in flows, and %v", h.name, rule, dropped, why)
			}
		}
	})
	if packets < 1000 {
		t.Errorf("only %d packets were dropped", packets)
	}
}

// TestFloodKeepsFlows: a flood of forged sources takes no more than the table of dropped flows has, evicts neither measured
// flows nor one that is dropped all the time, and is counted to the packet.
func TestFloodKeepsFlows(t *testing.T) {
	const sent, every = 20000, 8
	cfg := small()
	cfg.Dropped = 256
	b := open(t, cfg)
	b.apply(t, "drop udp dst port 53\nlimit 1/s burst 1 udp dst port 54")
	udp := func(src uint32, dport uint16) burst {
		a := netip.AddrFrom4([4]byte{10, byte(src >> 16), byte(src >> 8), byte(src)})
		return burst{data: packet.Eth().IPv4(a.String(), "198.51.100.2").UDP(1000, dport).Payload(10).Bytes()}
	}
	defer datapathtest.OnOneProcessor(t)() // each has a table
	for _, h := range hooks {
		for i := range uint32(10) {
			b.send(t, hooks[1], udp(1<<20|i, 55))
		}
		last, longest := time.Now(), time.Duration(0)
		for i := range uint32(sent) {
			b.send(t, h, udp(i, 53))
			if i%every == 0 {
				b.send(t, h, udp(1<<21, 53))
				longest, last = max(longest, time.Since(last)), time.Now()
			}
		}
		got := b.drain(t)
		var dropped, passed uint64
		flows := 0
		for k, c := range got.flows {
			dropped += c.Dropped
			switch {
			case k.DstPort == 53:
				flows++
			case k.DstPort == 55:
				passed += c.Packets
			}
		}
		steady := got.flows[flow.Key{Src: netip.MustParseAddr("10.32.0.0").As16(), Dst: netip.MustParseAddr("198.51.100.2").As16(), SrcPort: 1000, DstPort: 53, Iface: lo, Proto: 17}]
		if most := int(b.cpus * b.dropSets() * 4); flows > most || flows < 10 {
			t.Errorf("%s: %d flows, want at most %d", h.name, flows, most)
		}
		if passed != 10 {
			t.Errorf("%s: %d of 10 measured packets", h.name, passed)
		}
		if dropped+got.lost.Dropped != sent+sent/every || got.lost.Dropped != got.lost.Packets {
			t.Errorf("%s: %d packets in flows and %d in sums, of %d", h.name, dropped, got.lost.Dropped, sent+sent/every)
		}
		// A flow keeps its place for 64 ticks, of a millisecond or more, without packets.
		if steady.Dropped != sent/every && longest < 50*time.Millisecond {
			t.Errorf("%s: the flow that is dropped all the time has %d packets of %d", h.name, steady.Dropped, sent/every)
		}
		if len(got.drops) != 1 {
			t.Errorf("%s: rules %v", h.name, got.drops)
		}
	}
	// Sums keep rules apart, and say how they came to drop.
	for i := range uint32(3000) {
		b.send(t, hooks[0], udp(i, 53+uint16(i%2)))
	}
	got := map[string]uint64{}
	for d, n := range b.drain(t).drops {
		got[fmt.Sprint(d.Verdict, " ", d.Text)] += n
	}
	if n := got["limit limit 1/s udp dst port 54"]; got["drop drop udp dst port 53"] != 1500 || n < 1500-uint64(time.Minute/time.Second) || n > 1499 || len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// TestDropsOfRemovedRules: a rule that is gone when its packets are drained has them nevertheless.
func TestDropsOfRemovedRules(t *testing.T) {
	b := open(t, small())
	frame := burst{data: packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()}
	for _, text := range []string{"drop udp", "drop src 192.0.2.1", "drop dst 192.0.2.2", "pass"} {
		b.apply(t, text)
		b.send(t, hooks[0], frame)
	}
	got := b.drain(t)
	if len(got.drops) != 3 {
		t.Errorf("%v", got.drops)
	}
	for _, c := range got.flows {
		if c.Dropped != 3 || c.Drop.Rule != 0 || c.Drop.Verdict != flow.VerdictDrop {
			t.Errorf("%+v %+v", c.Counters, c.Drop)
		}
	}
	if len(b.dropped.rules) != 1 { // that of bans
		t.Errorf("rules that are gone and drained stay: %v", b.dropped.rules)
	}
}
