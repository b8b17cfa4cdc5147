package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/suggest"
)

const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoICMPv6  = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

func comparePositions(a, b Position) int {
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// check examines what only the whole text shows. Rules with an error in their syntax are
// left out: what else is wrong with them may follow from it.
func (p *parser) check() {
	for _, r := range p.read {
		if r.broken {
			continue
		}
		before := len(p.errs)
		p.checkSets(r)
		if len(p.errs) > before {
			continue
		}
		for _, one := range []func(*ruleText) *Error{
			p.checkPorts, p.checkType, p.checkFlags, p.checkFamily, p.checkCookie,
		} {
			if err := one(r); err != nil {
				p.errs = append(p.errs, err)
				break
			}
		}
		p.out.Rules = append(p.out.Rules, r.Rule)
	}
}

// checkSets examines the sets that a rule names.
func (p *parser) checkSets(r *ruleText) {
	for _, u := range r.uses {
		name := strings.TrimPrefix(u.name.text, "@")
		s := p.sets[name]
		switch {
		case s == nil:
			p.errs = append(p.errs, p.undefined(u.name, name))
		case u.ports && len(s.Prefixes) > 0:
			p.errs = append(p.errs, p.fail(u.name, "the set %s has addresses, not ports: write src @%s or dst @%s", name, name, name))
		case !u.ports && len(s.Ports) > 0:
			p.errs = append(p.errs, p.fail(u.name, "the set %s has ports, not addresses: write src port @%s or dst port @%s", name, name, name))
		}
	}
}

func (p *parser) undefined(t token, name string) *Error {
	var known []string
	for _, s := range p.out.Sets {
		known = append(known, s.Name)
	}
	slices.Sort(known)
	if name == "" {
		return p.fail(t, "expected the name of a set behind @, such as @blocked")
	}
	if near := suggest.Nearest(name, known); near != "" {
		return p.fail(t, "the set %s is not defined: did you mean @%s?", name, near)
	}
	return p.fail(t, "the set %s is not defined: define it in a line of its own, such as set %s { 192.0.2.0/24 }", name, name)
}

// onlyProtos reports whether all packets that match are of one of the protocols.
func (m *Match) onlyProtos(protos ...uint16) bool {
	for _, r := range m.Proto.List {
		for n := int(r.First); n <= int(r.Last); n++ {
			if !slices.Contains(protos, uint16(n)) {
				return false
			}
		}
	}
	return len(m.Proto.List) > 0 && !m.Proto.Not
}

func (p *parser) checkPorts(r *ruleText) *Error {
	for _, k := range []*kind{&kindSport, &kindDport} {
		if t, given := r.parts[k.name]; given && !r.Match.onlyProtos(protoTCP, protoUDP, protoSCTP, protoUDPLite) {
			return p.fail(t, "ports need a protocol that has them: write tcp, udp, tcp,udp, sctp or udplite in front of %s", k.name)
		}
	}
	return nil
}

func (p *parser) checkType(r *ruleText) *Error {
	if t, given := r.parts[kindType.name]; given && !r.Match.onlyProtos(protoICMP) && !r.Match.onlyProtos(protoICMPv6) {
		return p.fail(t, "a type needs icmp or icmp6 in front of it, such as icmp6 type 128")
	}
	return nil
}

func (p *parser) checkFlags(r *ruleText) *Error {
	if t, given := r.parts["flags"]; given && !r.Match.onlyProtos(protoTCP) {
		return p.fail(t, "flags need tcp in front of them, such as tcp flags syn")
	}
	return nil
}

// checkFamily reports conditions of which one requires IPv4 and another IPv6.
func (p *parser) checkFamily(r *ruleText) *Error {
	m := &r.Match
	family := m.Family
	for _, v := range []struct {
		proto  uint16
		family uint8
		remedy string
	}{{protoICMP, 4, "icmp is of IPv4: write icmp6"}, {protoICMPv6, 6, "icmp6 is of IPv6: write icmp"}} {
		if !m.onlyProtos(v.proto) {
			continue
		}
		if family != 0 && family != v.family {
			return p.fail(r.parts[kindProto.name], "never true: %s, or leave the version out", v.remedy)
		}
		family = v.family
	}
	for _, end := range []struct {
		name  string
		addrs *Addrs
	}{{"src", &m.Src}, {"dst", &m.Dst}} {
		has := p.families(end.addrs)
		if has == 0 {
			continue
		}
		if family != 0 && has&familyBit(family) == 0 {
			return p.fail(r.parts[end.name], "%s has no address of IPv%d, which the rest of the rule requires: write one, or a rule of its own", end.name, family)
		}
		if has != familyBit(4)|familyBit(6) && !end.addrs.Not {
			family = 4
			if has == familyBit(6) {
				family = 6
			}
		}
	}
	return nil
}

func familyBit(family uint8) uint8 { return 1 << (family / 6) }

// families are the versions of the addresses that a condition names.
func (p *parser) families(a *Addrs) (has uint8) {
	add := func(is4 bool) {
		if is4 {
			has |= familyBit(4)
		} else {
			has |= familyBit(6)
		}
	}
	for _, prefix := range a.Prefixes {
		add(prefix.Addr().Is4())
	}
	for _, name := range a.Sets {
		for _, m := range p.sets[name].Prefixes {
			add(m.Prefix.Addr().Is4())
		}
	}
	return has
}

func (p *parser) checkCookie(r *ruleText) *Error {
	if r.Action != ActionSynCookie {
		return nil
	}
	m := &r.Match
	if !m.onlyProtos(protoTCP) || len(m.Dport.List)+len(m.Dport.Sets) == 0 || m.Dport.Not {
		return p.fail(r.action, "syncookie protects ports of a service: write them, such as syncookie dst 192.0.2.1 tcp dst port 443")
	}
	for _, name := range []string{"flags", "src port"} {
		if t, given := r.parts[name]; given {
			return p.fail(t, "syncookie must see each packet of a connection: leave %s out", name)
		}
	}
	return nil
}
