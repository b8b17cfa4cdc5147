package rules

import (
	"net/netip"
	"path"
	"slices"
	"time"
)

// Packet is what rules may ask about a packet. What is not known is absent, and no
// condition about it holds.
type Packet struct {
	Family uint8 // by the EtherType, also of a packet whose header is malformed; 0: not IP
	// Src and Dst are valid if the IP header is whole and has the version of Family. Else
	// everything up to Iface is absent.
	Src, Dst netip.Addr
	Length   uint16 // Total Length of IPv4; 40 + Payload Length of IPv6
	DSCP     uint8
	Fragment bool // a part of a packet, the first included

	// Proto is the protocol of the upper layer, behind extension headers.
	Proto    uint8
	HasProto bool // false: an extension header is malformed or cut off

	// Ports, type and flags are absent in fragments but the first, and if cut off.
	Sport, Dport uint16
	HasPorts     bool // of TCP, UDP, UDP-Lite or SCTP
	ICMPType     uint8
	HasICMPType  bool // of ICMP in IPv4 or ICMPv6 in IPv6
	TCPFlags     uint8
	HasTCPFlags  bool

	VLAN   uint16 // VLAN of the outer tag
	Tagged bool
	Iface  string
}

// State is what a decision depends on besides the packet.
type State struct {
	Now time.Time
	// Exceeds reports whether the packet is beyond a rule's limit, and counts it there.
	// nil: no packet is.
	Exceeds func(*Rule, *Packet) bool
}

// Verdict is what becomes of a packet.
type Verdict uint8

// The verdicts.
const (
	VerdictPass Verdict = iota
	VerdictDrop
	VerdictSynCookie
)

func (v Verdict) String() string { return [...]string{"pass", "drop", "syncookie"}[v] }

// Decision is what a rule set does with a packet.
type Decision struct {
	Verdict Verdict
	Rule    *Rule   // that decided; nil: none, the packet passes
	Counted []*Rule // all that matched, in order, Rule included
	Samples []*Rule // of them, those that copy packets
	Taps    []*Rule // and those that give them to a socket, if they pass
	NoFlow  bool    // the packet is in no flow record
}

// Decide applies the rules to a packet by trying one after another. It is the reference
// for the tables of the engine.
//
//   - Each rule whose conditions hold counts the packet. Counting goes on up to and with
//     the rule that decides; later rules do not see the packet.
//   - pass, drop and syncookie decide. limit decides (drop) for a packet beyond the limit,
//     and only such packets take no token. The others do not decide.
//   - The first of no-flow and only-flow that matches determines whether the packet is in a flow
//     record. If none does, it is, unless the rule set has an only-flow rule in effect.
//   - A rule whose time has ended matches nothing. One in dry run counts, and that is all.
//   - Without a rule that decides the packet passes, and so does a frame that is not IP.
func (rs *Ruleset) Decide(p *Packet, s State) (d Decision) {
	if p.Family == 0 {
		return d
	}
	flowKnown := false
	for _, r := range rs.Rules {
		if ended(r.Until, s.Now) || !rs.Matches(&r.Match, p, s.Now) {
			continue
		}
		d.Counted = append(d.Counted, r)
		if r.DryRun {
			continue
		}
		switch r.Action {
		case ActionPass, ActionDrop, ActionSynCookie:
			d.Rule, d.Verdict = r, verdictOf[r.Action]
		case ActionLimit:
			if s.Exceeds != nil && s.Exceeds(r, p) {
				d.Rule, d.Verdict = r, VerdictDrop
			}
		case ActionSample:
			d.Samples = append(d.Samples, r)
		case ActionTap:
			d.Taps = append(d.Taps, r)
		case ActionNoFlow, ActionOnlyFlow:
			if !flowKnown {
				flowKnown, d.NoFlow = true, r.Action == ActionNoFlow
			}
		}
		if d.Rule != nil {
			break
		}
	}
	if !flowKnown {
		d.NoFlow = slices.ContainsFunc(rs.Rules, func(r *Rule) bool {
			return r.Action == ActionOnlyFlow && !r.DryRun && !ended(r.Until, s.Now)
		})
	}
	return d
}

var verdictOf = map[Action]Verdict{ActionPass: VerdictPass, ActionDrop: VerdictDrop, ActionSynCookie: VerdictSynCookie}

// decides reports whether the rule settles what becomes of each packet that matches.
func (r *Rule) decides() bool { return verdictOf[r.Action] != 0 || r.Action == ActionPass }

// Matches reports whether all conditions hold for a packet.
func (rs *Ruleset) Matches(m *Match, p *Packet, now time.Time) bool {
	header := p.Src.IsValid()
	return (m.Family == 0 || m.Family == p.Family) &&
		rs.addrHolds(&m.Src, p.Src, now) &&
		rs.addrHolds(&m.Dst, p.Dst, now) &&
		rs.rangesHold(&m.Sport, p.Sport, header && p.HasPorts) &&
		rs.rangesHold(&m.Dport, p.Dport, header && p.HasPorts) &&
		rs.rangesHold(&m.Proto, uint16(p.Proto), header && p.HasProto) &&
		rs.rangesHold(&m.ICMPType, uint16(p.ICMPType), header && p.HasICMPType) &&
		rs.rangesHold(&m.Length, p.Length, header) &&
		rs.rangesHold(&m.DSCP, uint16(p.DSCP), header) &&
		rs.rangesHold(&m.VLAN, p.VLAN, p.Tagged) &&
		(m.TCPFlags == nil || header && p.HasTCPFlags && p.TCPFlags&m.TCPFlags.Mask == m.TCPFlags.Value) &&
		(m.Fragment == nil || header && p.Fragment == *m.Fragment) &&
		(len(m.Ifaces) == 0 || slices.ContainsFunc(m.Ifaces, func(glob string) bool {
			is, _ := path.Match(glob, p.Iface) // an invalid pattern is refused when it is read
			return is
		}))
}

func (rs *Ruleset) addrHolds(c *Addrs, a netip.Addr, now time.Time) bool {
	if len(c.Prefixes)+len(c.Sets) == 0 {
		return true
	}
	if !a.IsValid() {
		return false
	}
	in := slices.ContainsFunc(c.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	for _, name := range c.Sets {
		in = in || rs.Set(name).Contains(a, now)
	}
	return in != c.Not
}

func (rs *Ruleset) rangesHold(c *Ranges, n uint16, known bool) bool {
	if len(c.List)+len(c.Sets) == 0 {
		return true
	}
	if !known {
		return false
	}
	in := inRanges(c.List, n)
	for _, name := range c.Sets {
		in = in || inRanges(rs.Set(name).Ports, n)
	}
	return in != c.Not
}

func inRanges(list []Range, n uint16) bool {
	return slices.ContainsFunc(list, func(r Range) bool { return r.First <= n && n <= r.Last })
}

// Set is the set of a name; of an unknown name one without members.
func (rs *Ruleset) Set(name string) *Set {
	for _, s := range rs.Sets {
		if s.Name == name {
			return s
		}
	}
	return &Set{}
}
