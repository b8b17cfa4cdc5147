package gate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/packet"
)

// crowded are as many rules as there may be, with ranges of ports and lengths. Of neighbours, which each dimension has others
// of, the ranges overlap, those of lengths for the first rules: so each dimension has a row for each rule and each such pair.
func crowded(overlap int, also map[int]string) string {
	const n = uint32(engine.MaxRules)
	var text strings.Builder
	for i := range n {
		dport, length := i*5%n, i*11%n
		last := 4*length + 3
		if int(length) < overlap {
			last += 2
		}
		fmt.Fprintf(&text, "%s udp src port %d-%d dst port %d-%d len %d-%d%s\n", []string{"drop", "pass"}[i%2],
			4*i, min(4*i+5, 65535), 4*dport, min(4*dport+5, 65535), 4*length, min(last, 65535), also[int(i)])
	}
	return text.String()
}

// TestFullTables: rules that take the last row of the tables, and the last rule, decide as the reference does, in both copies.
// One more row, or one more rule, is refused before anything changes, and says why; then other rules can be applied, and
// the full tables again.
func TestFullTables(t *testing.T) {
	cfg := small()
	cfg.Tables.Lines, cfg.Tables.Rules = 1<<18, engine.MaxRules
	b := open(t, cfg)
	parse := func(text string) *rules.Ruleset {
		rs, _, err := rules.Parse("f", text, rules.Options{Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	bare, err := b.Fit(parse(crowded(0, nil)))
	if err != nil {
		t.Fatal(err)
	}
	tag := map[int]string{0: " vlan 5"} // a row of all rules but one
	overlap := int(engine.MaxRows) - bare.Rows - 1
	full := parse(crowded(overlap, tag))
	use, err := b.Fit(full)
	if err != nil || use.Rows != int(engine.MaxRows) || use.Rules != int(engine.MaxRules) || int(use.MaxRows) != use.Rows || use.MaxRules != engine.MaxRules {
		t.Fatalf("%+v, %v; without overlap %d rows", use, err, bare.Rows)
	}
	decides := func() {
		t.Helper()
		dropped, sent := 0, 0
		for length := uint32(8); length < 300; length += 17 {
			for i := range full.Rules {
				if uint32(i)*11%uint32(engine.MaxRules) != length {
					continue
				}
				for _, off := range []uint16{0, 3, 5, 6} {
					dport := uint16(4 * (uint32(i) * 5 % uint32(engine.MaxRules)))
					frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(uint16(4*i)+off, dport+off).Payload(int(4*length) - 28 + int(off)).Bytes()
					p := rules.ReadEthernet(frame)
					p.Iface = "lo"
					got, _ := b.run(t, hooks[0], frame)
					if want := full.Decide(p, rules.State{Now: time.Now()}).Verdict == rules.VerdictDrop; got != want {
						t.Fatalf("rule %d, %d beyond its first numbers: dropped %t, want %t", i, off, got, want)
					}
					sent++
					if got {
						dropped++
					}
				}
			}
		}
		if dropped < sent/8 || dropped > sent*7/8 {
			t.Errorf("%d of %d packets were dropped", dropped, sent)
		}
	}
	refused := map[string]*rules.Ruleset{
		"16385 rules, and at most 16384 fit":       parse(crowded(overlap, tag) + "drop\n"),
		"in more than 65536 ways: use fewer rules": parse(crowded(overlap, map[int]string{0: tag[0], 1: " dscp 3"})),
	}
	var had uint32
	for round := range 2 { // in each copy
		if err := b.Apply(full); err != nil {
			t.Fatal(err)
		}
		if copyOf := b.control.Copy % engine.Copies; round > 0 && copyOf == had {
			t.Error("the second copy is not used")
		} else {
			had = copyOf
		}
		decides()
		if round > 0 {
			continue
		}
		for what, rs := range refused {
			if err := b.Apply(rs); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want %q", err, what)
			}
		}
		decides()
		b.apply(t, "drop udp")
		b.apply(t, "drop udp\ndrop tcp") // and the other copy again
	}
	b.apply(t, "drop icmp")
	if dropped, _ := b.run(t, hooks[0], packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(0, 0).Payload(100).Bytes()); dropped {
		t.Error("a rule of before is in effect")
	}
}
