package gate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/packet"
)

// manyRules are 512 rules of several conditions each, with 10,000 prefixes of both versions.
func manyRules(t testing.TB, r *rand.Rand) *rules.Ruleset {
	t.Helper()
	var text strings.Builder
	for i := range 512 {
		var prefixes []string
		for n := range 10000/512 + 1 {
			a := netip.AddrFrom4([4]byte{byte(r.IntN(223) + 1), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
			bits := []int{16, 20, 22, 24, 24, 24, 28, 32}[r.IntN(8)]
			if n%5 == 0 {
				b := [16]byte{0x20, byte(r.IntN(4)), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}
				a, bits = netip.AddrFrom16(b), []int{32, 40, 48, 48, 56, 64}[r.IntN(6)]
			}
			prefixes = append(prefixes, netip.PrefixFrom(a, bits).Masked().String())
		}
		fmt.Fprintf(&text, "drop %s src %s dst port %d-%d len %d-1500\n", []string{"tcp", "udp", "proto tcp,udp"}[i%3], strings.Join(prefixes, ","), r.IntN(1000), 1000+r.IntN(60000), 40+i)
	}
	rs, _, err := rules.Parse("f", text.String(), rules.Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// empty does nothing with a packet.
func empty(t testing.TB) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "of_others", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// nanos is the least time per run of several.
func nanos(t testing.TB, p *ebpf.Program, frame []byte) (least time.Duration) {
	t.Helper()
	least = time.Hour
	for range 15 {
		_, per, err := p.Benchmark(frame, 200000, func() {})
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, per)
	}
	return least
}

// TestVerified: with the gate, programs are within what the kernel takes, and leave it time for their other stages.
func TestVerified(t *testing.T) {
	const most = 100_000
	b := open(t, small())
	for name, code := range map[string]*datapath.Program{"xdp": datapath.Early, "tc ingress": datapath.Ingress} {
		info, err := b.program(t, code).Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		t.Logf("%s: %d", name, n)
		if ok && n > most {
			t.Errorf("%s: the verifier looked at %d instructions, want at most %d", name, n, most)
		}
	}
}

// TestRulesOfAllWords: a packet meets the rules of each word of the tables, in order, and words without one that matches
// between them.
func TestRulesOfAllWords(t *testing.T) {
	const most = 1024 // of small()
	var text strings.Builder
	for i := range most - 1 {
		port := 54
		if i%128 == 3 {
			port = 53
		}
		fmt.Fprintf(&text, "count udp dst port %d len 40-%d\n", port, 1000+i)
	}
	text.WriteString("drop udp dst port 53")
	b := open(t, small())
	b.apply(t, text.String())
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 53).Payload(30).Bytes()
	for i, h := range hooks {
		if dropped, ran := b.run(t, h, frame); !ran || !dropped {
			t.Errorf("%s: dropped %t, ran %t", h.name, dropped, ran)
		}
		c, err := b.Counters()
		if err != nil {
			t.Fatal(err)
		}
		for n, r := range c.Rules {
			want := uint64(0)
			if n%128 == 3 || n == most-1 {
				want = uint64(i + 1)
			}
			if r.Packets != want {
				t.Errorf("%s: rule %d counted %d packets, want %d", h.name, n, r.Packets, want)
			}
		}
	}
}

// BenchmarkGate reports what packets cost beyond an empty program, for 512 rules of four conditions with 10,000 prefixes.
func BenchmarkGate(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	g := open(b, Default())
	many := manyRules(b, r)
	one, _, err := rules.Parse("f", "drop udp dst port 9", rules.Options{Now: time.Now()})
	if err != nil {
		b.Fatal(err)
	}
	nothing := empty(b)
	within := many.Rules[300].Match.Src.Prefixes[9].Addr().String()
	for _, c := range []struct {
		name  string
		rules *rules.Ruleset
		frame packet.Builder
	}{
		{"one rule/drop, like the one before", one, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 9).Payload(30)},
		{"one rule/drop", one, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").TOS(3).UDP(1, 9).Payload(30)}, // none is like one with "congestion experienced"
		{"one rule/pass", one, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 8).Payload(30)},
		{"512 rules/IPv4 of no prefix", many, packet.Eth().IPv4("224.0.2.1", "192.0.2.2").UDP(1, 2).Payload(30)},
		{"512 rules/IPv4 between prefixes", many, packet.Eth().IPv4("101.0.2.1", "192.0.2.2").TCP(1, 2).Payload(30)},
		{"512 rules/IPv4 of one, too short", many, packet.Eth().IPv4(within, "192.0.2.2").TCP(1, 1000).Payload(30)},
		{"512 rules/IPv4 of one, drop, like the one before", many, packet.Eth().IPv4(within, "192.0.2.2").TCP(1, 1000).Payload(1400)},
		{"512 rules/IPv4 of one, drop", many, packet.Eth().IPv4(within, "192.0.2.2").TOS(3).TCP(1, 1000).Payload(1400)},
		{"512 rules/IPv6 between prefixes", many, packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1, 2).Payload(30)},
	} {
		b.Run(c.name, func(b *testing.B) {
			if err := g.Apply(c.rules); err != nil {
				b.Fatal(err)
			}
			frame := c.frame.Bytes()
			d := c.rules.Decide(rules.ReadEthernet(frame), rules.State{Now: time.Now()})
			b.ReportMetric(float64((nanos(b, g.program(b, datapath.Early), frame) - nanos(b, nothing, frame)).Nanoseconds()), "ns/packet")
			b.ReportMetric(float64(len(d.Counted)), "matches")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(g.table.Rows)), "rows")
			b.ReportMetric(float64(len(g.table.Lines)), "lines")
		})
	}
}
