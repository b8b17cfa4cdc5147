package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/gate/rules/rulestest"
)

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

var roomy = Options{Limits: Limits{Lines: 1 << 20, Rules: MaxRules, Pages: 2048}}

// matching are the rules that match a packet, tried one after another.
func matching(rs *rules.Ruleset, p *rules.Packet, now time.Time) (list []*rules.Rule) {
	for _, r := range rs.Rules {
		if (r.Until.IsZero() || now.Before(r.Until)) && rs.Matches(&r.Match, p, now) {
			list = append(list, r)
		}
	}
	return list
}

// TestTablesAsRules: the tables find the rules that match, in both copies, now and when
// some have ended, for frames that are sound, damaged or cut.
func TestTablesAsRules(t *testing.T) {
	found := 0
	rapid.Check(t, func(r *rapid.T) {
		frames := rulestest.Frames(r, 30)
		rs := rulestest.Ruleset(r, frames, []string{"count"}, now)
		found += findAll(r, rs, frames)
	})
	if found < 10000 {
		t.Errorf("only %d rules matched", found)
	}
}

// findAll compares the tables with the rules, and returns how often rules match.
func findAll(t require, rs *rules.Ruleset, frames [][]byte) (found int) {
	for which := range Copies {
		o := roomy
		o.Copy, o.Now = which, now.Add(time.Duration(which)*2*time.Hour)
		table, err := Compile(rs, o)
		if err != nil {
			t.Fatalf("%v", err)
		}
		for _, f := range frames {
			p := rules.ReadEthernet(f)
			p.Iface = []string{"eth0", "lo"}[len(f)%2]
			if p.Family == 0 {
				continue
			}
			want := matching(rs, p, o.Now)
			got, err := table.Find(p)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s\n%x\n%+v\n got %s, %v\nwant %s", rs, f, p, texts(got), err, texts(want))
			}
			found += len(want)
		}
	}
	return found
}

type require interface{ Fatalf(string, ...any) }

func texts(list []*rules.Rule) string {
	var all []string
	for _, r := range list {
		all = append(all, r.Text)
	}
	return strings.Join(all, "; ")
}

// A rule set that does not fit is refused with what to do.
func TestTooLarge(t *testing.T) {
	rs, _, err := rules.Parse("f", "count src 192.0.2.0/25\ncount src 192.0.2.64/26\ncount dst 192.0.2.1,192.0.2.3,192.0.2.5,192.0.2.7 dscp ef\ncount udp dst port 53", rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limits Limits
		want   string
	}{
		{Limits{1, 100, 100}, "gate.table_memory"},
		{Limits{100, 3, 100}, "the rule set has 4 rules, and gate.max_rules is 3: raise it"},
		{Limits{100, 100, 1}, "pages"},
	} {
		if _, err := Compile(rs, Options{Limits: c.limits}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.limits, err)
		}
	}
	for len(rs.Rules) <= int(MaxRules) {
		rs.Rules = append(rs.Rules, rs.Rules...)
	}
	if _, err := Compile(rs, roomy); err == nil || !strings.Contains(err.Error(), "at most 16384 fit") {
		t.Error(err)
	}
}

// The table says when it is out of date.
func TestNext(t *testing.T) {
	rs, _, err := rules.Parse("f", "set s { 192.0.2.1 for 3h, 192.0.2.2 for 1h }\ndrop src @s for 2h\ndrop udp for 4h", rules.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	for hours, want := range []int{1, 2, 4, 4, 0} {
		o := roomy
		o.Now = now.Add(time.Duration(hours) * time.Hour)
		table, err := Compile(rs, o)
		if err != nil {
			t.Fatal(err)
		}
		if at := now.Add(time.Duration(want) * time.Hour); want == 0 && !table.Next.IsZero() || want > 0 && !table.Next.Equal(at) {
			t.Errorf("after %d h: %v", hours, table.Next)
		}
	}
}
