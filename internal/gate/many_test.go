package gate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/gate/rules/rulestest"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/soak"
)

// TestKernelDecidesAsManyRules: likewise for sets of up to 16,384 rules, whose rows have words in groups of one, two and four.
func TestKernelDecidesAsManyRules(t *testing.T) {
	cfg := small()
	cfg.Tables.Lines, cfg.Tables.Rules = 1<<19, engine.MaxRules
	b := open(t, cfg)
	actions := []string{"count", "count", "count", "sample every 2", "no-flow", "pass", "drop"}
	dropped, matched := 0, 0
	for i := range soak.Times(4, 60) {
		n := []int{65, 4096, 4097, 10_000, int(engine.MaxRules)}[i%5]
		rapid.Custom(func(r *rapid.T) int {
			frames := rulestest.Frames(r, 20)
			few := rulestest.Ruleset(r, frames, actions, time.Now())
			if len(few.Rules) == 0 {
				return 0
			}
			rs := rulestest.Many(r, few, n)
			if err := b.Apply(rs); err != nil {
				t.Fatal(err)
			}
			w := want{rules: map[uint32]*Counts{}}
			for _, f := range frames {
				p := rules.ReadEthernet(f)
				p.Iface = "lo"
				for _, h := range hooks {
					got, ran := b.run(t, h, f)
					if !ran {
						continue
					}
					if should := w.decide(rs, p, rules.State{Now: time.Now()}, h).Verdict == rules.VerdictDrop; got != should {
						t.Fatalf("%s: dropped %v, want %v\n%x\n%+v\n%s", h.name, got, should, f, p, few)
					}
					if got {
						dropped++
					}
				}
			}
			c, err := b.Counters()
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range c.Rules {
				exp := w.rules[one.Rule.ID]
				if exp == nil {
					exp = &Counts{}
				}
				if one.Packets != exp.Packets || one.Dropped != exp.Dropped {
					t.Errorf("%d rules: %s: %+v, want %+v", n, one.Rule.Text, one.Counts, *exp)
				}
				matched += int(one.Packets)
			}
			return 0
		}).Example(i)
	}
	if dropped < 10 || matched < 1000 {
		t.Errorf("too few packets: %d dropped, rules matched %d times", dropped, matched)
	}
}

// TestOtherRows: an interface whose name no rule names alike gets a row of its own, with words, after the rules were applied.
func TestOtherRows(t *testing.T) {
	b := open(t, small())
	text := "drop iface lo udp dst port 53\n"
	for range 99 {
		text += "count iface eth* len 40-1500\ncount iface other len 50-1500\n"
	}
	b.apply(t, text+"count iface lo udp")
	had := b.written
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 53).Payload(30).Bytes()
	for name, drops := range map[string]bool{"other": false, "lo": true, "eth7": false} {
		if err := b.do(func() error {
			return b.enter(Place{Iface: lo, Name: name, hooks: engine.HookXDP | engine.HookTC})
		}); err != nil {
			t.Fatal(err)
		}
		for _, h := range hooks {
			if dropped, ran := b.run(t, h, frame); !ran || dropped != drops {
				t.Errorf("%s at %s: dropped %t, want %t", name, h.name, dropped, drops)
			}
		}
	}
	if b.written.rows <= had.rows || b.written.lines <= had.lines {
		t.Errorf("no rows were added: %+v, then %+v", had, b.written)
	}
	counted := b.counted(t)
	for _, n := range counted[:len(counted)-2] {
		if n[0] != 2 {
			t.Errorf("a rule counted %d packets", n[0])
		}
	}
}

// BenchmarkManyRules reports what 10,000 rules of four conditions take to be read, compiled and put in place of others, and what
// packets cost then beyond an empty program.
func BenchmarkManyRules(b *testing.B) {
	const n = 10_000
	var text strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		src := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(1 + r.IntN(223)), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}), 20+r.IntN(13)).Masked()
		first := r.IntN(20000)
		fmt.Fprintf(&text, "drop %s src %s dst port %d-%d len %d-1500\n", []string{"tcp", "udp"}[i%2], src, first, first+r.IntN(2000), 40+i%100)
	}
	cfg := Default()
	cfg.Tables.Rules, cfg.Tables.Lines = n, Lines(128<<20)
	g := open(b, cfg)
	nothing := empty(b)
	for range b.N {
		began := time.Now()
		rs, _, err := rules.Parse("f", text.String(), rules.Options{Now: began})
		parsed := time.Now()
		if err != nil {
			b.Fatal(err)
		}
		use, err := g.Fit(rs)
		compiled := time.Now()
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Apply(rs); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(parsed.Sub(began).Seconds()*1e3, "ms-read")
		b.ReportMetric(compiled.Sub(parsed).Seconds()*1e3, "ms-compile")
		b.ReportMetric(time.Since(compiled).Seconds()*1e3, "ms-apply")
		b.ReportMetric(float64(use.Memory)/(1<<20), "MiB")
		b.ReportMetric(float64(use.Rows), "rows")
		for name, p := range map[string]*rules.Rule{"first": rs.Rules[0], "last": rs.Rules[n-1]} {
			m := &p.Match
			l4 := packet.Eth().IPv4(m.Src.Prefixes[0].Addr().String(), "192.0.2.2").UDP(1, m.Dport.List[0].First)
			if m.Proto.List[0].First == 6 {
				l4 = packet.Eth().IPv4(m.Src.Prefixes[0].Addr().String(), "192.0.2.2").TCP(1, m.Dport.List[0].First)
			}
			for what, size := range map[string]int{"drop": 200, "pass": 1} {
				frame := l4.Payload(size).Bytes()
				b.ReportMetric(float64((nanos(b, g.program(b, datapath.Early), frame) - nanos(b, nothing, frame)).Nanoseconds()), "ns-"+name+"-"+what)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}
