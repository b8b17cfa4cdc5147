package gate

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/gate/rules/rulestest"
)

func init() { datapath.ReadOnce() }

func slogDiscard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// lo is the interface of test runs.
const lo = flow.Iface(1)

// bench is a gate whose programs are run by BPF_PROG_TEST_RUN.
type bench struct {
	*Gate
	dp *datapath.Datapath
}

// open makes a gate with packets of lo. Each program is loaded when a test first runs it, which takes longer than most tests.
func open(t testing.TB, cfg Config) *bench {
	t.Helper()
	log := slogDiscard()
	b := &bench{Gate: New(cfg, log)}
	d := datapath.New(datapath.Config{MaxEntries: 1024, RingSize: 4096 * 16, Stages: []*datapath.Stage{b.Stage(func(string) bool { return true })}}, log)
	b.dp = d
	if err := d.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if err := b.do(func() error {
		return b.enter(Place{Iface: lo, Name: "lo", hooks: engine.HookXDP | engine.HookTC})
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

func small() Config {
	return Config{Tables: engine.Limits{Lines: 1 << 14, Rules: 1024, Pages: 1024}, Sources: 1 << 12, Bans: 64}
}

// Verdicts of the hooks.
const (
	xdpDrop, xdpPass = 1, 2
	tcShot           = 2
)

// at is a hook of a test run.
type at struct {
	name string
	code *datapath.Program
	drop uint32
}

var hooks = []at{
	{"xdp", datapath.Early, xdpDrop},
	{"tc", datapath.Ingress, tcShot},
}

func (b *bench) program(t require, code *datapath.Program) *ebpf.Program {
	p, err := b.dp.Copy(code)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return p
}

// run sends a frame; false: the hook has no such frames in a test run.
func (b *bench) run(t require, h at, frame []byte) (dropped, ran bool) {
	verdict, err := b.program(t, h.code).Run(&ebpf.RunOptions{Data: frame, Repeat: 1})
	if errors.Is(err, unix.EINVAL) {
		return false, false
	}
	if err != nil {
		t.Fatalf("%s: %d bytes: %v", h.name, len(frame), err)
	}
	return verdict == h.drop, true
}

type require interface{ Fatalf(string, ...any) }

// The reference gathers no tokens: limits of 1/s are exact within a second. A machine that is slower sends less of a
// rule set's frames, and does not judge one that it did not get to the end of in time.
const (
	enough = 400 * time.Millisecond
	slow   = 800 * time.Millisecond
)

// want are the counters that the reference expects.
type want struct {
	rules         map[uint32]*Counts
	passed, notIP uint64
	noFlow        uint64 // that have no record for that reason
}

// decide has the reference decide about a packet.
func (w *want) decide(rs *rules.Ruleset, p *rules.Packet, s rules.State, h at) rules.Decision {
	d := rs.Decide(p, s)
	if d.NoFlow && (h.name == "tc" || d.Verdict == rules.VerdictDrop) { // what goes on at XDP is for tc to count
		w.noFlow++
	}
	for _, r := range d.Counted {
		c := w.rules[r.ID]
		if c == nil {
			c = &Counts{}
			w.rules[r.ID] = c
		}
		c.Packets++
		if r == d.Rule && d.Verdict == rules.VerdictDrop {
			c.Dropped++
		}
	}
	switch {
	case p.Family == 0:
		w.notIP++
	case d.Rule == nil:
		w.passed++
	}
	return d
}

// TestKernelDecidesAsRules: at both hooks, for random rules and for frames that are sound,
// damaged or cut anywhere, the programs decide and count as the reference does.
func TestKernelDecidesAsRules(t *testing.T) {
	cfg := small()
	cfg.Sources = 1 << 18 // 700 rules have thousands of buckets
	b := open(t, cfg)
	actions := []string{
		"pass", "drop", "drop", "count", "count", "limit 1/s burst 3", "limit 1/s burst 2 per src",
		"no-flow", "only-flow", "sample", "sample every 2", "tap",
		"limit 1 bytes/s burst 2000", "limit 1 bytes/s burst 700 per src/16/32",
	}
	marks := openMarks(t, b)
	defer datapathtest.OnOneProcessor(t)() // whose memory has them
	sent, refused, dropped, tapped, judged, sets := 0, 0, 0, 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		frames := rulestest.Frames(r, 40)
		rs := rulestest.Ruleset(r, frames, actions, time.Now())
		if err := b.Apply(rs); err != nil {
			r.Fatal(err)
		}
		before, err := b.Counters()
		if err != nil {
			r.Fatal(err)
		}
		unrecorded := b.reasons(r)["no_flow"]
		now := time.Now()
		buckets := rules.NewBuckets()
		state := rules.State{Now: now, Exceeds: func(rule *rules.Rule, p *rules.Packet) bool { return buckets.Exceeds(rule, p, now) }}
		w := want{rules: map[uint32]*Counts{}}
		says := slices.ContainsFunc(rs.Rules, func(r *rules.Rule) bool { return r.Action == rules.ActionSample || r.Action == rules.ActionTap })
		for _, f := range frames {
			for n := len(f); n >= 14 && time.Since(now) < enough; n -= 1 + n/8 { // test runs take no less
				p := rules.ReadEthernet(f[:n])
				p.Iface = "lo"
				for _, h := range hooks {
					if says {
						marks.forget(r)
					}
					got, ran := b.run(r, h, f[:n])
					if !ran {
						refused++
						continue
					}
					sent++
					d := w.decide(rs, p, state, h)
					if should := d.Verdict == rules.VerdictDrop; got != should && time.Since(now) < slow {
						r.Fatalf("%s: dropped %v, want %v\n%x\n%+v\n%s\n%s", h.name, got, should, f[:n], p, rs, d.Rule)
					}
					if says {
						tapped += marks.check(r, h, &d)
					}
					if got {
						dropped++
					}
				}
			}
		}
		if time.Since(now) > slow {
			r.Skip("too slow for limits that gather nothing")
		}
		after, err := b.Counters()
		if err != nil {
			r.Fatal(err)
		}
		if time.Since(now) < enough {
			sets++
		}
		judged++
		if after.Forgotten != before.Forgotten {
			r.Skip("the reference never forgets the bucket of a source")
		}
		if got := after.Passed.Packets - before.Passed.Packets; got != w.passed {
			r.Errorf("passed %d, want %d", got, w.passed)
		}
		if got := after.NotIP.Packets - before.NotIP.Packets; got != w.notIP {
			r.Errorf("not IP: %d, want %d", got, w.notIP)
		}
		if got := b.reasons(r)["no_flow"] - unrecorded; got != w.noFlow {
			r.Errorf("%d packets have no record for that reason, want %d\n%s", got, w.noFlow, rs)
		}
		for _, c := range after.Rules {
			exp := w.rules[c.Rule.ID]
			if exp == nil {
				exp = &Counts{}
			}
			if c.Packets != exp.Packets || c.Dropped != exp.Dropped {
				r.Errorf("%s: %+v, want %+v", c.Rule.Text, c.Counts, *exp)
			}
		}
	})
	t.Logf("%d packets, %d of them dropped, %d tapped, to %d rule sets, all frames to %d; test runs refused %d frames", sent, dropped, tapped, judged, sets, refused)
	drops, taps := 100, 10 // of a rule set
	if sets < 20 {
		drops, taps = 25, 0 // few random ones differ much
	}
	if sent < 500*sets || dropped < drops*sets || refused > sent/2 || tapped < taps*sets {
		t.Errorf("too few packets: %d, dropped %d, refused %d, tapped %d", sent, dropped, refused, tapped)
	}
}
