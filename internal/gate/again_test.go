package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// likeRules ask all that rules may ask about a packet; the last one drops what is left.
const likeRules = "pass len 1000-1500\npass dscp 3\npass tcp flags syn+ack\ndrop src 192.0.2.1 udp dst port 53 len 60\n" +
	"drop src 2001:db8::/32 udp src port 7\npass fragment\ncount udp dst port 54\nlimit 1000000/s burst 1000000 udp dst port 55\nsample udp dst port 56\n" +
	"detect 100000000/s per src udp dst port 57\ndrop udp\ndrop tcp\n"

// alike are frames in runs, as floods have them, each followed by some that differ from it in one bit or in their length.
func alike(r *rand.Rand) (frames [][]byte) {
	v4, v6 := packet.Eth().IPv4("192.0.2.1", "198.51.100.2"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	kinds := []packet.Builder{
		v4.UDP(7, 53).Payload(32), v4.UDP(7, 54).Payload(40), v4.UDP(7, 55).Payload(40), v4.UDP(7, 56).Payload(40), v4.UDP(7, 57).Payload(40),
		v4.TCP(7, 80).Flags(packet.SYN), v4.TCP(7, 80).Flags(packet.ACK).Payload(30),
		v6.UDP(7, 53).Payload(32), v6.UDP(9, 53).Payload(32), v6.TCP(7, 80).Flags(packet.SYN), v6.HopByHop().UDP(7, 53).Payload(30), v6.DestOpts().TCP(7, 80).Payload(30),
		packet.Eth().VLAN(5).IPv4("192.0.2.1", "198.51.100.2").UDP(7, 53).Payload(32),
	}
	run := func(f []byte) {
		for range 1 + r.IntN(5) {
			frames = append(frames, f)
		}
	}
	for i, k := range kinds {
		f := k.Bytes()
		run(f)
		run(append(f[:len(f):len(f)], make([]byte, 6)...)) // padded
		for bit := i % 4; bit < 8*min(len(f), 90); bit += 4 {
			other := append([]byte{}, f...)
			other[bit/8] ^= 1 << (bit % 8)
			run(f)
			run(other)
		}
	}
	return frames
}

// TestPacketsAlike: packets that are like the one before get the verdict, the counters and the flow record that each of them
// would get alone. At tc, where none is remembered, the same frames say what these are; and the reference of rules does.
func TestPacketsAlike(t *testing.T) {
	cfg := small()
	cfg.Dropped = 1 << 16
	b := open(t, cfg)
	defer datapathtest.OnOneProcessor(t)() // that remembers
	rs, _, err := rules.Parse("f", likeRules, rules.Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	frames := alike(rand.New(rand.NewPCG(1, 2)))
	counts := map[string]map[string]Counts{}
	drops := map[string]map[flow.Key]flow.Counts{}
	for _, h := range hooks {
		b.apply(t, "pass") // counters begin again
		if err := b.Apply(rs); err != nil {
			t.Fatal(err)
		}
		b.drain(t)
		b.forgetFragments(t)
		before, err := b.Counters()
		if err != nil {
			t.Fatal(err)
		}
		repeated, unasked := uint64(0), 0
		for i, f := range frames {
			dropped, ran := b.run(t, h, f)
			p := rules.ReadEthernet(f)
			p.Iface = "lo"
			if d := rs.Decide(p, rules.State{Now: time.Now()}); ran && dropped != (d.Verdict == rules.VerdictDrop) {
				t.Fatalf("%s: frame %d: dropped %t, want %v\n%x", h.name, i, dropped, d.Verdict, f)
			}
			repeated = max(repeated, b.remembered(t))
			if b.unasked() {
				unasked++
			}
		}
		if (repeated > 0) != (h.name == "xdp") || (unasked > 0) != (h.name == "xdp") {
			t.Errorf("%s: %d packets were like others, flows said what becomes of %d", h.name, repeated, unasked)
		}
		c, err := b.Counters()
		if err != nil {
			t.Fatal(err)
		}
		c.Passed.Packets -= before.Passed.Packets
		c.Passed.Bytes -= before.Passed.Bytes
		counts[h.name] = map[string]Counts{"passed": c.Passed}
		for _, one := range c.Rules {
			counts[h.name][one.Rule.Text] = one.Counts
		}
		got := newRecorded()
		if err := b.dp.Drain(func(d *flow.Delta) {
			if d.Dropped > 0 { // tc also counts what passes
				got.add(d)
			}
		}); err != nil {
			t.Fatal(err)
		}
		drops[h.name] = measured(got, got)
		if got.lost.Dropped != 0 {
			t.Errorf("%s: %d packets have no flow", h.name, got.lost.Dropped)
		}
	}
	for _, diff := range []string{gocmp.Diff(counts["tc"], counts["xdp"]), gocmp.Diff(drops["tc"], drops["xdp"])} {
		if diff != "" {
			t.Errorf("(-tc +xdp):\n%s", diff)
		}
	}
}

// remembered is how many packets were like others since a flow has counted them.
func (b *bench) remembered(t require) (n uint64) {
	for i := range b.dropped.parts.Values {
		a := &b.dropped.parts.Values[i].Again
		n += a.Packets - a.Settled
	}
	return n
}

// unasked is whether the flow of the last packet says what becomes of others.
func (b *bench) unasked() bool {
	return slices.ContainsFunc(b.dropped.parts.Values, func(p engine.DropPart) bool { return p.Known != 0 })
}

// TestNothingIsAlikeAfterAChange: whatever changes a verdict, or who sees it, has packets be looked at again, whether they are
// of one flow, or of two in turns.
func TestNothingIsAlikeAfterAChange(t *testing.T) {
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 53).Payload(30).Bytes()
	other := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(2, 53).Payload(30).Bytes()
	endsAfterAChange(t, "drop udp dst port 53", frame, frame, func(b *bench) bool { return b.remembered(t) > 0 })
	endsAfterAChange(t, "drop udp dst port 53 len 20-1500", frame, other, (*bench).unasked)
}

// endsAfterAChange sends two frames in turns.
func endsAfterAChange(t *testing.T, drops string, frame, other []byte, remembers func(*bench) bool) {
	cfg := small()
	cfg.CaptureRate = 10000
	b := open(t, cfg)
	defer datapathtest.OnOneProcessor(t)()
	const sent = 10
	flood := func() (dropped uint64) {
		t.Helper()
		for i := range sent {
			if d, _ := b.run(t, hooks[0], [][]byte{frame, other}[i%2]); d {
				dropped++
			}
		}
		return dropped
	}
	place := Place{Iface: lo, Name: "lo", hooks: engine.HookXDP | engine.HookTC}
	enter := func(p Place) {
		if err := b.do(func() error { return b.enter(p) }); err != nil {
			t.Fatal(err)
		}
	}
	banned := netip.MustParsePrefix("192.0.2.1/32")
	ctx, stop := context.WithCancel(t.Context())
	ended, captured := make(chan error, 1), make(chan *Packet, 2*sent)
	for _, c := range []struct {
		name       string
		do, undo   func()
		drops      uint64 // of the flood after it
		rule, bans uint64 // of these
		exempt     uint64
	}{
		{"rules that pass", func() { b.apply(t, "pass") }, func() { b.apply(t, drops) }, 0, 0, 0, 0},
		{"twice other rules", func() { b.apply(t, "pass"); b.apply(t, "drop tcp") }, func() { b.apply(t, drops) }, 0, 0, 0, 0},
		{
			"another interface of that name", func() {
				b.apply(t, "drop iface lo udp")
				flood()
				p := place
				p.Name = "eth7"
				enter(p)
			},
			func() { enter(place); b.apply(t, drops) }, 0, 0, 0, 0,
		},
		{
			"a ban", func() {
				if err := b.Ban(Ban{Prefix: netip.MustParsePrefix("203.0.113.1/32"), Since: time.Now()}); err != nil { // its length is in use
					t.Fatal(err)
				}
				flood()
				if err := b.Ban(Ban{Prefix: banned, Since: time.Now()}); err != nil {
					t.Fatal(err)
				}
			},
			func() {
				if err := b.Unban(banned, netip.MustParsePrefix("203.0.113.1/32")); err != nil {
					t.Fatal(err)
				}
			}, sent, 0, sent, 0,
		},
		{
			"a ban of an allowed source", func() {
				b.apply(t, drops+"\npass src 192.0.2.1")
				flood()
				if err := b.Ban(Ban{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Since: time.Now()}); err != nil {
					t.Fatal(err)
				}
			},
			func() {
				if err := b.Unban(netip.MustParsePrefix("192.0.2.0/24")); err != nil {
					t.Fatal(err)
				}
			}, sent, sent, 0, sent,
		},
		{
			"a capture", func() {
				go func() { ended <- b.Capture(ctx, WhatDropped, func(p *Packet) { captured <- p }) }()
				await.True(t, "the reader", func() bool { return b.capture.change(func() {}) != 0 })
			},
			func() {
				await.True(t, "what was captured", func() bool { return len(captured) == sent })
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}, sent, sent, 0, 0,
		},
	} {
		b.apply(t, drops)
		b.drain(t)
		if n := flood(); n != sent || !remembers(b) {
			t.Fatalf("before %s: %d dropped, remembered: %t", c.name, n, remembers(b))
		}
		c.do()
		before := b.decided(t)
		if n := flood(); n != c.drops {
			t.Errorf("after %s: %d were dropped, want %d", c.name, n, c.drops)
		}
		after := b.decided(t)
		for i, want := range []uint64{c.rule, c.bans, c.exempt} {
			if got := after[i] - before[i]; got != want {
				t.Errorf("after %s: %s: %d packets, want %d", c.name, []string{"the rule", "bans", "exempt"}[i], got, want)
			}
		}
		c.undo()
	}
	// A flow is evicted with what was remembered for it, and another one takes its place.
	b.apply(t, drops)
	b.drain(t)
	flood()
	for i := range 3000 {
		src := fmt.Sprintf("10.%d.%d.1", i/200, i%200)
		if _, err := b.program(t, hooks[0].code).Run(&ebpf.RunOptions{Data: packet.Eth().IPv4(src, "192.0.2.2").UDP(1, 53).Payload(30).Bytes()}); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			b.run(t, hooks[0], other)
			flood()
		}
	}
	got := b.drain(t)
	var dropped uint64
	for _, c := range got.flows {
		dropped += c.Dropped
	}
	if want := uint64(sent + 3000 + 30*(1+sent)); dropped+got.lost.Dropped != want {
		t.Errorf("%d packets are in flows and %d in sums, want %d", dropped, got.lost.Dropped, want)
	}
}

// decided are packets that the rules in effect dropped, that bans dropped, and that were exempt of bans.
func (b *bench) decided(t require) [3]uint64 {
	c, err := b.Counters()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return [3]uint64{b.ruleDrops(t), c.Banned.Dropped, c.Exempt.Packets}
}
