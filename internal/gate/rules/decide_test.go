package rules

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func tcp() *Packet {
	return &Packet{
		Family: 4, Src: addr("192.0.2.1"), Dst: addr("198.51.100.2"), Length: 60, Proto: 6, HasProto: true,
		Sport: 40000, Dport: 443, HasPorts: true, TCPFlags: 2, HasTCPFlags: true, Iface: "eth0",
	}
}

// Which rule decides, which count: numbers of lines.
func TestDecide(t *testing.T) {
	later := tcp()
	later.Fragment, later.HasPorts, later.HasTCPFlags = true, false, false
	broken := &Packet{Family: 4, Iface: "eth0"}
	for _, c := range []struct {
		text   string
		packet *Packet
		want   string // verdict, rule that decided, rules that counted
	}{
		{"drop tcp dst port 443", tcp(), "drop 1 1"},
		{"drop tcp dst port 444", tcp(), "pass 0 "},
		{"count\ncount tcp\npass src 192.0.2.1\ndrop", tcp(), "pass 3 1,2,3"},
		{"sample tcp\ndrop dry-run\nsyncookie tcp dst port 443", tcp(), "syncookie 3 1,2,3"},
		{"limit 1/s\ndrop", tcp(), "drop 2 1,2"},
		{"limit 2/s tcp\npass", tcp(), "drop 1 1"}, // exceeds: see below
		{"drop for 1h", tcp(), "drop 1 1"},
		{"drop until 2026-01-01T00:00:00Z", tcp(), "pass 0 "},
		{"drop tcp dst port 443\ndrop tcp dst port not 80\npass fragment", later, "pass 3 3"},
		{"drop tcp flags none/rst\npass tcp not fragment\ndrop tcp", later, "drop 3 3"},
		{"drop ip6\ndrop src not 10/8\ndrop len < 9999\ndrop not tcp\npass ip", broken, "pass 5 5"},
		{"drop vlan not 7\ndrop not vlan 7", tcp(), "pass 0 "},
		{"drop", &Packet{}, "pass 0 "},
		{"set s { 192.0.2.0/24 for 1h, 192.0.2.0/28 }\ndrop src not @s\npass src @s", tcp(), "pass 3 3"},
		{"drop iface veth*\ndrop iface eth?", tcp(), "drop 2 2"},
	} {
		rs, _ := parse(t, c.text)
		d := rs.Decide(c.packet, State{Now: now, Exceeds: func(r *Rule, _ *Packet) bool { return r.Limit.Rate == 2 }})
		var counted []string
		line := func(r *Rule) string { return strings.TrimPrefix(r.Pos.String()[2:], ":")[:1] }
		for _, r := range d.Counted {
			counted = append(counted, line(r))
		}
		by := "0"
		if d.Rule != nil {
			by = line(d.Rule)
		}
		if got := d.Verdict.String() + " " + by + " " + strings.Join(counted, ","); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// Which packets have a flow record.
func TestFlowRules(t *testing.T) {
	for text, noFlow := range map[string]bool{
		"pass": false, "no-flow tcp": true, "no-flow udp": false, "only-flow tcp": false, "only-flow udp": true,
		"only-flow tcp\nno-flow": false, "no-flow tcp\nonly-flow tcp": true, "no-flow dry-run": false, "pass\nonly-flow tcp": true,
	} {
		rs, _ := parse(t, text)
		if d := rs.Decide(tcp(), State{Now: now}); d.NoFlow != noFlow {
			t.Errorf("%s: %v", text, d.NoFlow)
		}
	}
}

// A rule that is said to cover another matches what that one matches.
func TestCoverIsTrue(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := ruleGen.Draw(r, "first") + "\n" + ruleGen.Draw(r, "second")
		rs, _, err := Parse("f", allSets+text, Options{Now: now, Open: open})
		if err != nil || !newCoverer(rs).covers(0, 1) {
			return
		}
		for range 20 {
			p := packetGen.Draw(r, "packet")
			if rs.Matches(&rs.Rules[1].Match, p, now) && !rs.Matches(&rs.Rules[0].Match, p, now) {
				r.Fatalf("%s\nmatches not: %+v", text, p)
			}
		}
	})
}

// packetGen draws packets near the rules of ruleGen.
var packetGen = rapid.Custom(func(t *rapid.T) *Packet {
	num := func(values ...uint16) uint16 { return rapid.SampledFrom(values).Draw(t, "number") }
	yes := func() bool { return rapid.Bool().Draw(t, "bool") }
	ends := []string{"192.0.2.1", "192.0.2.4", "10.0.0.1", "203.0.113.9"}
	p := &Packet{Family: 4}
	if yes() {
		p.Family, ends = 6, []string{"2001:db8::1", "2001:db8:bad::1", "::1"}
	}
	p.Src, p.Dst = addr(rapid.SampledFrom(ends).Draw(t, "src")), addr(rapid.SampledFrom(ends).Draw(t, "dst"))
	p.Proto, p.HasProto = uint8(num(1, 6, 17, 47, 58)), true
	p.HasPorts, p.HasTCPFlags = p.Proto == 6 || p.Proto == 17, p.Proto == 6
	p.HasICMPType = p.Proto == 1 && p.Family == 4 || p.Proto == 58 && p.Family == 6
	p.Sport, p.Dport, p.ICMPType = num(7, 80, 443, 5000), num(80, 81, 90, 2000), uint8(num(3, 8, 128))
	p.TCPFlags, p.Length, p.DSCP = uint8(num(0, 2, 16, 18)), num(7, 9, 64, 1500), uint8(num(0, 10, 46))
	p.Fragment, p.Tagged, p.VLAN = yes(), yes(), num(7, 10)
	p.Iface = rapid.SampledFrom([]string{"eth0", "src", "b"}).Draw(t, "iface")
	return p
})

// A bucket passes its burst at once and its rate in the long run.
func TestBuckets(t *testing.T) {
	rs, _ := parse(t, "limit 10/s burst 5 per src/24")
	r := rs.Rules[0]
	b := NewBuckets()
	at, passed := now, 0
	for range 1000 { // 100 packets/s for 10 s
		p := tcp()
		if !b.Exceeds(r, p, at) {
			passed++
		}
		at = at.Add(10 * time.Millisecond)
	}
	if passed != 5+99 {
		t.Errorf("passed %d of 1000", passed)
	}
	for last, want := range map[string]bool{"192.0.2.200": true, "192.0.3.1": false} {
		p := tcp()
		p.Src = addr(last)
		b = NewBuckets()
		for range 5 {
			b.Exceeds(r, tcp(), now)
		}
		if b.Exceeds(r, p, now) != want {
			t.Errorf("%s: not %v", last, want)
		}
	}
}
