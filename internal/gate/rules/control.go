package rules

import (
	"fmt"
	"net/netip"
)

// Connection is one that the operator uses to reach this host.
type Connection struct {
	Remote, Local netip.AddrPort
	Iface         string // that receives its packets; empty: not known, rules of all interfaces are examined
}

// Conflict is a connection whose packets a rule drops, or may drop.
type Conflict struct {
	Connection Connection
	Rule       *Rule
}

// Warning is what to tell the operator.
func (c *Conflict) Warning() Warning {
	from := c.Connection.Remote
	return Warning{c.Rule.Pos, fmt.Sprintf("this rule would drop your connection from %s: put pass src %s in front of it", from, from.Addr().Unmap().WithZone(""))}
}

// ControlConflicts reports which TCP connections rules would cut off: a packet of them is
// dropped, whatever its flags and length. Limits cut nothing off.
func (rs *Ruleset) ControlConflicts(connections []Connection, s State) (list []Conflict) {
	for _, c := range connections {
		if r := rs.cuts(c, s); r != nil {
			list = append(list, Conflict{c, r})
		}
	}
	return list
}

// controlFlags are the TCP flags of packets that a connection cannot do without: data,
// acknowledgements, and for the next connection a SYN.
var controlFlags = []uint8{0x18, 0x10, 0x02}

// controlLengths are lengths of its packets: an acknowledgement, a key press, a full one.
var controlLengths = []uint16{52, 72, 100, 1500}

func (rs *Ruleset) cuts(c Connection, s State) *Rule {
	for _, flags := range controlFlags {
		for _, length := range controlLengths {
			p := &Packet{
				Family: 6, Src: c.Remote.Addr().Unmap().WithZone(""), Dst: c.Local.Addr().Unmap().WithZone(""), Length: length, Proto: protoTCP, HasProto: true,
				Sport: c.Remote.Port(), Dport: c.Local.Port(), HasPorts: true, TCPFlags: flags, HasTCPFlags: true, Iface: c.Iface,
			}
			if p.Src.Is4() {
				p.Family = 4
			}
			in := rs
			if c.Iface == "" {
				in = rs.anywhere()
			}
			if d := in.Decide(p, State{Now: s.Now}); d.Verdict == VerdictDrop {
				return rs.byID(d.Rule.ID)
			}
		}
	}
	return nil
}

// anywhere is the rule set with rules that drop extended to all interfaces, and without
// those that pass on some only.
func (rs *Ruleset) anywhere() *Ruleset {
	out := &Ruleset{Sets: rs.Sets}
	for _, r := range rs.Rules {
		wide := *r
		wide.Match.Ifaces = nil
		if len(r.Match.Ifaces) == 0 || r.Action == ActionDrop {
			out.Rules = append(out.Rules, &wide)
		}
	}
	return out
}

func (rs *Ruleset) byID(id uint32) *Rule {
	for _, r := range rs.Rules {
		if r.ID == id {
			return r
		}
	}
	return nil
}
