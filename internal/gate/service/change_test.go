package service

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// What changes make of rules: their text, or an error.
func TestChange(t *testing.T) {
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	before, _, err := parse("f", "set s { 192.0.2.1 for 1h, 192.0.2.2 }\ncount src @s\ndrop udp for 1h\npass tcp", now)
	if err != nil {
		t.Fatal(err)
	}
	id := func(n int) uint32 { return before.Rules[n].ID }
	whole := "set n { 10.0.0.0/8 }\ndrop src @n"
	ssh := []Connection{{netip.MustParseAddrPort("192.0.2.9:50000"), netip.MustParseAddrPort("192.0.2.10:22")}}
	for _, c := range []struct {
		name   string
		change Change
		after  time.Duration
		want   string // rules, or part of the error
	}{
		{"behind", Change{Add: "drop icmp"}, 0, "count src @s; drop udp until 2026-03-01T11:00:00Z; pass tcp; drop icmp"},
		{"in front", Change{Add: "drop icmp\ndrop sctp", First: true}, 0, "drop icmp; drop sctp; count src @s; drop udp until 2026-03-01T11:00:00Z; pass tcp"},
		{"before", Change{Add: "set t { 1 }\ndrop udp dst port @t", Before: id(1)}, 0, "count src @s; drop udp dst port @t; drop udp until 2026-03-01T11:00:00Z; pass tcp"},
		{"ended", Change{Add: "drop src @s"}, 2 * time.Hour, "count src @s; pass tcp; drop src @s"},
		{"delete", Change{Delete: []uint32{id(2), id(0)}}, 0, "drop udp until 2026-03-01T11:00:00Z"},
		{"apply", Change{Apply: &whole}, 0, "drop src @n"},
		{"unknown id", Change{Delete: []uint32{id(0), 1}}, 0, "there is no rule 1"},
		{"unknown place", Change{Add: "drop", Before: 1}, 0, "there is no rule 1"},
		{"nothing", Change{}, 0, "changes nothing"},
		{"only a set", Change{Add: "set t { 1 }"}, 0, "there is no rule in set t"},
		{"error", Change{Add: "drop upd"}, 0, "did you mean udp?"},
		{"file", Change{Add: "set t from \"/etc/shadow\"\ndrop src @t"}, 0, "reads no files for others"},
		{"cuts off", Change{Add: "drop tcp", First: true, Connections: ssh}, 0, `"drop tcp" would drop your connection from 192.0.2.9:50000; put pass src 192.0.2.9 in front`},
		{"does not", Change{Add: "drop tcp", Connections: ssh}, 0, "count src @s; drop udp until 2026-03-01T11:00:00Z; pass tcp; drop tcp"},
		{"forced", Change{Add: "drop tcp", First: true, Connections: ssh, Force: true}, 0, "drop tcp; count src @s; drop udp until 2026-03-01T11:00:00Z; pass tcp"},
		{"removes what protects", Change{Delete: []uint32{id(2)}, Connections: ssh}, 0, "count src @s; drop udp until 2026-03-01T11:00:00Z"},
	} {
		at := now.Add(c.after)
		next, _, err := c.change.of(lasting(before, at), at)
		if err == nil {
			err = c.change.check(next, at)
		}
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = texts(next)
		}
		if err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func texts(rs *rules.Ruleset) string {
	var list []string
	for _, r := range rs.Rules {
		list = append(list, r.Text)
	}
	return strings.Join(list, "; ")
}
