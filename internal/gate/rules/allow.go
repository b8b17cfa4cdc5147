package rules

import (
	"net/netip"
	"time"
)

// AllowList is the sources that cannot be banned: those of rules that pass all packets of a
// source, whatever else is true of them. ended reports which rules and members count no
// more.
func (rs *Ruleset) AllowList(ended func(until time.Time) bool) (list []netip.Prefix) {
	for _, r := range rs.Rules {
		if !r.allows() || ended(r.Until) {
			continue
		}
		add := func(p netip.Prefix) {
			if r.Match.Family == 0 || (r.Match.Family == 4) == p.Addr().Is4() {
				list = append(list, p)
			}
		}
		for _, p := range r.Match.Src.Prefixes {
			add(p)
		}
		for _, name := range r.Match.Src.Sets {
			for _, m := range rs.Set(name).Prefixes {
				if !ended(m.Until) {
					add(m.Prefix)
				}
			}
		}
	}
	return list
}

// allows reports whether a rule passes packets for their source alone.
func (r *Rule) allows() bool {
	m := &r.Match
	if r.Action != ActionPass || r.DryRun || m.Src.Not || len(m.Src.Prefixes)+len(m.Src.Sets) == 0 {
		return false
	}
	return m.Dst.free() && m.Sport.free() && m.Dport.free() && m.Proto.free() && m.ICMPType.free() && m.Length.free() &&
		m.VLAN.free() && m.DSCP.free() && m.TCPFlags == nil && m.Fragment == nil && len(m.Ifaces) == 0
}

func (a *Addrs) free() bool  { return len(a.Prefixes)+len(a.Sets) == 0 }
func (r *Ranges) free() bool { return len(r.List)+len(r.Sets) == 0 }
