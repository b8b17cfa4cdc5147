// Package rulestest draws frames, and rule sets that have something to do with them.
// Only tests call it.
package rulestest

import (
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/packet"
)

var lastID atomic.Uint32

// Frames draws Ethernet frames: sound, damaged and cut ones.
func Frames(t *rapid.T, n int) (list [][]byte) {
	for range n {
		list = append(list, packet.Random().Draw(t, "frame"))
	}
	return list
}

// Ruleset draws rules whose values are those of frames, or near them. Some end an hour after now.
func Ruleset(t *rapid.T, frames [][]byte, actions []string, now time.Time) *rules.Ruleset {
	d := drawer{T: t, actions: actions}
	for _, f := range frames {
		d.packets = append(d.packets, rules.ReadEthernet(f))
	}
	sets := []struct{ name, members string }{
		{"many", strings.Join(d.values(d.prefix, 40), ", ")},
		{"few", strings.Join(d.values(d.prefix, 2), ", ")},
		{"ended", strings.Join(d.values(d.prefix, 3), " for 1h, ") + " for 1h"},
		{"ports", strings.Join(d.values(d.port, 20), ", ")},
	}
	// define has the sets that a text names: to parse the others of each rule takes longer than all else.
	define := func(named func(set string) bool) (text string) {
		for _, s := range sets {
			if named("@" + s.name) {
				text += "set " + s.name + " { " + s.members + " }\n"
			}
		}
		return text
	}
	text := define(func(string) bool { return true })
	rs, _, err := rules.Parse("f", text, rules.Options{Now: now})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	// As many as one word of bits has, as half of all words have, and more.
	for range rapid.SampledFrom([]int{4, 30, 30, 60, 120, 700}).Draw(t, "rules") {
		// One after the other: a rule that cannot be is left out.
		line := d.rule()
		one, _, err := rules.Parse("f", define(func(set string) bool { return strings.Contains(line, set) })+line, rules.Options{Now: now})
		if err == nil {
			r := one.Rules[0]
			r.ID = lastID.Add(1) // no other has its counters
			rs.Rules = append(rs.Rules, r)
		}
	}
	return rs
}

// drawer draws the parts of rules.
type drawer struct {
	*rapid.T
	packets []*rules.Packet
	actions []string
}

func (d *drawer) below(n int) int { return rapid.IntRange(0, n-1).Draw(d.T, "n") }

func (d *drawer) packet() *rules.Packet { return d.packets[d.below(len(d.packets))] }

func (d *drawer) values(one func() string, n int) (list []string) {
	for range n {
		list = append(list, one())
	}
	return list
}

// prefix contains the address of a packet, or ends next to it.
func (d *drawer) prefix() string {
	p := d.packet()
	a := p.Src
	if d.below(2) == 0 {
		a = p.Dst
	}
	if !a.IsValid() || d.below(8) == 0 {
		a = netip.MustParseAddr([]string{"192.0.2.1", "2001:db8::1", "0.0.0.0", "::", "255.255.255.255", "ffff::ffff"}[d.below(6)])
	}
	switch d.below(4) {
	case 0:
		if next := a.Next(); next.IsValid() {
			a = next
		}
	case 1:
		if previous := a.Prev(); previous.IsValid() {
			a = previous
		}
	}
	if a.Is4In6() || a.Zone() != "" {
		a = netip.IPv6Unspecified()
	}
	bits := a.BitLen() - d.below(a.BitLen()+1)*d.below(2)
	return netip.PrefixFrom(a, bits).Masked().String()
}

func (d *drawer) port() string {
	p := d.packet()
	n := p.Dport
	if d.below(2) == 0 {
		n = p.Sport
	}
	return d.number(n, 65535)
}

// number is a number, one next to it, or a range that begins there.
func (d *drawer) number(near uint16, most int) string {
	n := min(max(int(near)+d.below(3)-1, 0), most)
	if d.below(3) == 0 {
		return fmt.Sprintf("%d-%d", n, min(most, n+d.below(300)))
	}
	return fmt.Sprint(n)
}

func (d *drawer) not() string { return []string{"", "", "not "}[d.below(3)] }

func (d *drawer) addrs() string {
	return d.not() + []string{"@many", "@few", "@ended", "@few,@ended," + d.prefix(), d.prefix(), d.prefix(), d.prefix() + "," + d.prefix()}[d.below(7)]
}

func (d *drawer) ports() string {
	return d.not() + []string{"@ports", "@ports," + d.port(), d.port(), d.port(), d.port() + "," + d.port()}[d.below(5)]
}

// rule is a line with up to four conditions, which may contradict each other.
func (d *drawer) rule() string {
	text := d.actions[d.below(len(d.actions))]
	p := d.packet()
	text += " " + []string{"", "", "tcp", "udp", "tcp,udp", "icmp", "icmp6", "proto " + d.number(uint16(p.Proto), 255), "not tcp", "sctp"}[d.below(10)]
	parts := [...]func() string{
		func() string { return "src " + d.addrs() },
		func() string { return "dst " + d.addrs() },
		func() string { return "src port " + d.ports() },
		func() string { return "dst port " + d.ports() },
		func() string { return "type " + d.not() + d.number(uint16(p.ICMPType), 255) },
		func() string { return "len " + d.not() + d.number(p.Length, 65535) },
		func() string { return "vlan " + d.not() + d.number(p.VLAN, 4095) },
		func() string { return "dscp " + d.not() + d.number(uint16(p.DSCP), 63) },
		func() string {
			return []string{"flags syn", "flags syn/syn+ack", "flags & ack == none", "flags & (fin|rst) == none"}[d.below(4)]
		},
		func() string { return d.not() + "fragment" },
		func() string { return []string{"iface eth*", "iface eth0", "iface lo,veth*"}[d.below(3)] },
		func() string { return []string{"ip", "ip6", "for 1h", "dry-run"}[d.below(4)] },
		func() string { return "" },
	}
	taken := map[int]bool{}
	for range d.below(5) {
		if n := d.below(len(parts)); !taken[n] {
			taken[n] = true
			text += " " + parts[n]()
		}
	}
	return text
}
