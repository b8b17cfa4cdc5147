package policy_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband/policy"
)

func to(prefix string) policy.Policy {
	return policy.Policy{To: netip.MustParsePrefix(prefix), For: time.Hour}
}

func TestCheck(t *testing.T) {
	ports := to("2001:db8::/32")
	ports.Ports = make([]policy.Ports, policy.MaxPorts+1)
	icmp := to("2001:db8::/32")
	icmp.Protos, icmp.Ports = []uint8{58}, []policy.Ports{{From: 1, To: 1}}
	glob := to("2001:db8::/32")
	glob.Interface = "eth["
	for _, c := range []struct {
		name string
		p    policy.Policy
		want string // part of the error; empty: none
	}{
		{"sound", to("2001:db8::/32"), ""},
		{"IPv4", to("192.0.2.0/24"), "IPv4"},
		{"IPv4 in IPv6", to("::ffff:192.0.2.0/120"), "IPv4"},
		{"no prefix", policy.Policy{For: 1}, "no prefix"},
		{"no time", policy.Policy{To: netip.MustParsePrefix("::/0")}, "ends before"},
		{"past time", policy.Policy{To: netip.MustParsePrefix("::/0"), For: -1}, "ends before"},
		{"too many ports", ports, "ranges"},
		{"ports of ICMPv6", icmp, "protocol 58"},
		{"interface", glob, "pattern"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.p.Check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestOverlaps(t *testing.T) {
	with := func(change func(*policy.Policy)) policy.Policy {
		p := to("2001:db8::/32")
		change(&p)
		return p
	}
	tcp := with(func(p *policy.Policy) { p.Protos = []uint8{6} })
	udp := with(func(p *policy.Policy) { p.Protos = []uint8{17} })
	web := with(func(p *policy.Policy) { p.Ports = []policy.Ports{{From: 443, To: 443}, {From: 8000, To: 8099}} })
	dns := with(func(p *policy.Policy) { p.Ports = []policy.Ports{{From: 53, To: 53}} })
	ping := with(func(p *policy.Policy) { p.Protos = []uint8{58} })
	eth := with(func(p *policy.Policy) { p.Interface = "eth*" })
	eth0 := with(func(p *policy.Policy) { p.Interface = "eth0" })
	veth := with(func(p *policy.Policy) { p.Interface = "veth*" })
	for _, c := range []struct {
		name string
		a, b policy.Policy
		want bool
	}{
		{"the same", tcp, tcp, true},
		{"inside", to("::/0"), to("2001:db8::/32"), true},
		{"alongside", to("2001:db8::/33"), to("2001:db8:8000::/33"), false},
		{"other protocols", tcp, udp, false},
		{"all protocols", tcp, to("::/0"), true},
		{"other ports", web, dns, false},
		{"a port in a range", web, with(func(p *policy.Policy) { p.Ports = []policy.Ports{{From: 8050, To: 9000}} }), true},
		{"ports, and a protocol without", web, ping, false},
		{"ports, and a protocol with", web, tcp, true},
		{"interface in a pattern", eth, eth0, true},
		{"interface not in a pattern", veth, eth0, false},
		{"patterns apart", veth, eth, false},
		{"one pattern in the other", eth, with(func(p *policy.Policy) { p.Interface = "*" }), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.a.Overlaps(c.b); got != c.want {
				t.Errorf("overlap %t, want %t", got, c.want)
			}
			if got := c.b.Overlaps(c.a); got != c.want {
				t.Errorf("the other way round: %t, want %t", got, c.want)
			}
			err := policy.CheckAll([]policy.Policy{c.a, c.b})
			if (err != nil) != c.want {
				t.Errorf("of the list: %v", err)
			}
		})
	}
}

func TestCheckAllBounds(t *testing.T) {
	if err := policy.CheckAll(make([]policy.Policy, policy.Max+1)); err == nil {
		t.Error("too many policies passed")
	}
}

func TestParse(t *testing.T) {
	for _, s := range []string{"192.0.2.0/24", "::ffff:192.0.2.1", "2001:db8::1/32", "fe80::1%eth0", "2001:db8::/129", "host", ""} {
		if p, err := policy.ParsePrefix(s); err == nil {
			t.Errorf("prefix %q is %v", s, p)
		}
	}
	for s, want := range map[string]string{"2001:db8::/32": "2001:db8::/32", "2001:db8::1": "2001:db8::1/128", "::/0": "::/0"} {
		if p, err := policy.ParsePrefix(s); err != nil || p.String() != want {
			t.Errorf("prefix %q is %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "-", "1-", "-1", "2-1", "65536", "http", "1-2-3", "+1"} {
		if p, err := policy.ParsePorts(s); err == nil {
			t.Errorf("ports %q are %v", s, p)
		}
	}
	for _, s := range []string{"", "ip", "256", "-1"} {
		if p, err := policy.ParseProto(s); err == nil {
			t.Errorf("protocol %q is %v", s, p)
		}
	}
	if p, err := policy.ParseProto("tcp"); err != nil || len(p) != 1 || p[0] != 6 {
		t.Errorf("tcp is %v, %v", p, err)
	}
	if p, err := policy.ParseProto(policy.AnyProto); err != nil || p != nil {
		t.Errorf("any is %v, %v", p, err)
	}
}

// What is written is read again.
func TestPortsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Uint16().Draw(t, "from")
		want := policy.Ports{From: from, To: rapid.Uint16Range(from, 65535).Draw(t, "to")}
		if got, err := policy.ParsePorts(want.String()); err != nil || got != want {
			t.Fatalf("%v became %v, %v", want, got, err)
		}
	})
}
