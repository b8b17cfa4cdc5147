package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is likely a mistake, and what is not.
func TestWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"drop src 10/8\npass src 10.1.0.0/16":                                    "2:1: warning: this rule never matches: \"drop src 10.0.0.0/8\" in line 1 decides",
		"drop src 10/8\ncount tcp src 10.1.0.0/16":                               "decides about all its packets",
		"drop src 10/8\ndrop src 10.1.0.0/16":                                    "is redundant",
		"drop udp\npass udp":                                                     "contradicts",
		"drop udp\npass udp src 10/8":                                            "never matches",
		"drop src 10/8,192.0.2.0/24\npass src 192.0.2.7,203.0.113.1":             "192.0.2.7 is dropped by \"drop src 10.0.0.0/8,192.0.2.0/24\" in line 1 before this rule passes it",
		"drop src not 0.0.0.0/0,::/0":                                            "no address is left",
		"drop tcp dst port not 0-65535":                                          "no dst port is left",
		"drop ip src not 0/0":                                                    "no address is left",
		"limit 9 bytes/s burst 100":                                              "packets longer than the burst",
		"set s { 192.0.2.1 }\npass":                                              "1:1: warning: no rule names the set s",
		"set s { 192.0.2.0/24 }\nset t { 192.0.2.7 }\ndrop src @s\npass src @t":  "never matches",
		"drop tcp flags syn\npass tcp flags syn/syn+ack":                         "never matches",
		"drop iface eth*\npass iface eth0":                                       "never matches",
		"drop src not 10/8\npass src 192.0.2.1":                                  "never matches",
		"drop src not 10/8\npass src not 10/7":                                   "never matches",
		"drop len > 100\npass len 200-300":                                       "never matches",
		"drop not fragment\npass udp not fragment":                               "never matches",
		"drop ip\npass src 10/8":                                                 "never matches",
		"set s { 10.0.0.0/8 for 1h }\ndrop src @s\npass src 10.1.0.0/16 len 9":   "10.1.0.0/16 is dropped by",
		"drop udp until 2020-01-01T00:00:00Z":                                    "1:1: warning: this rule has ended: 2020-01-01T00:00:00Z is over",
		"pass src 10/8 until 2020-01-01T00:00:00Z\ndrop src 10/8":                "1:1: warning: this rule has ended",
		"set s { 192.0.2.1, 192.0.2.2 until 2020-01-01T00:00:00Z }\ndrop src @s": "1:1: warning: a member of the set s has ended: 192.0.2.2 until 2020-01-01T00:00:00Z",
		// No warnings:
		"drop udp until 2200-01-01T00:00:00Z":            "",
		"pass src 10.1.0.0/16\ndrop src 10/8":            "",
		"drop src 10/8 dry-run\npass src 10.1.0.0/16":    "",
		"drop src 10/8 for 1h\npass src 10.1.0.0/16":     "",
		"count src 10/8\npass src 10.1.0.0/16":           "",
		"limit 9/s src 10/8\npass src 10.1.0.0/16":       "",
		"drop tcp dst port 80\npass tcp":                 "",
		"drop tcp dst port 0-65535\npass tcp":            "", // later fragments have no ports
		"drop tcp flags syn/syn+ack\npass tcp flags syn": "",
		"drop iface eth0\npass iface eth*":               "",
		"drop ip6\npass src 10/8":                        "",
		"drop src not 10/8\npass src 10.0.0.1":           "",
		"drop vlan 0-4095\npass":                         "", // untagged frames
	} {
		_, warnings := parse(t, text)
		var got []string
		for _, w := range warnings {
			got = append(got, w.String())
		}
		all := strings.Join(got, "\n")
		if (all == "") != (want == "") || !strings.Contains(all, want) {
			t.Errorf("%s\n got %s\nwant %s", text, all, want)
		}
	}
}

// The outlines of rules keep no conflict from being found: pairs are judged alike with and without them.
func TestOutlines(t *testing.T) {
	text := []string{
		"src 10.0.0.0/8", "src 10.1.0.0/16", "src 10.1.0.0/16,192.0.2.7", "src not 10/8", "src 0/0", "ip", "ip6", "src ::/0", "src 2001:db8::/32",
		"src 2001:db8::7", "src ffff::/16", "src 255.255.255.255,2001:db8::1", "dst 10.1.0.0/16", "dst 10.1.2.0/24 udp", "udp", "udp dst port 5", "udp dst port 5-9",
		"udp dst port not 7", "udp dst port 0-65535", "udp dst port 5 len > 99", "vlan 7", "len 0-65535", "",
	}
	var lines []string
	for i, what := range append(text, text...) {
		lines = append(lines, []string{"drop ", "pass "}[(i+i/len(text))%2]+what)
	}
	rs, _ := parse(t, strings.Join(lines, "\n"))
	c := newCoverer(rs)
	found := 0
	for j := range rs.Rules {
		for i := range rs.Rules {
			may := c.outlines[i].mayConflict(&c.outlines[j])
			_, meet := overlap(c.rules[i].src.list, c.rules[j].src.list)
			is := c.covers(i, j) || c.rules[i].rule.Action == ActionDrop && c.rules[j].rule.Action == ActionPass && c.bans(i, j) && meet
			if is {
				found++
			}
			if is && !may {
				t.Errorf("%q and %q are not compared", rs.Rules[i].Text, rs.Rules[j].Text)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d pairs", found)
	}
}

// BenchmarkWarnings is of as many rules as there can be.
func BenchmarkWarnings(b *testing.B) {
	for name, line := range map[string]func(i int) string{
		"sources": func(i int) string { return fmt.Sprintf("drop udp src 10.%d.%d.0/24 dst port 9\n", i>>8, i&255) },
		"ports":   func(i int) string { return fmt.Sprintf("drop udp src 10.0.0.0/8 dst port %d\n", i) },
	} {
		var text strings.Builder
		for i := range 10240 {
			text.WriteString(line(i))
		}
		b.Run(name, func(b *testing.B) {
			rs, _, err := Parse("f", text.String(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				rs.Warnings(time.Now())
			}
		})
	}
}
