package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/suggest"
)

// set reads a definition.
func (p *parser) set(keyword token) *Error {
	t := p.next()
	if t.kind != tokenWord || !ValidName(t.text) {
		return p.fail(t, "expected the name of the set: letters, digits, - and _, such as set blocked { 192.0.2.0/24 }")
	}
	s := &Set{Name: t.text, Pos: p.position(keyword)}
	if first := p.sets[s.Name]; first != nil {
		p.errs = append(p.errs, p.fail(t, "the set %s is defined in %s already: give this one another name", s.Name, first.Pos))
		s.Name = "" // only read
	} else {
		p.sets[s.Name] = s
		p.out.Sets = append(p.out.Sets, s)
	}
	if p.accept("from") {
		return p.setFile(s)
	}
	open := p.tok()
	if !p.accept("{") {
		return p.fail(open, `expected { and the members, or from and a file, such as set %s from "/etc/waymark/drop.txt"`, t.text)
	}
	before := len(p.errs)
	if err := p.members(s, open); err != nil {
		return err
	}
	if len(s.Prefixes)+len(s.Ports) == 0 && len(p.errs) == before {
		return p.fail(t, "the set %s is empty: name at least one member, or remove the set and its rules", t.text)
	}
	s.Prefixes = mergeMembers(s.Prefixes)
	return nil
}

// ValidName reports whether a set can have the name.
func ValidName(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if ('a' > c || c > 'z') && (i == 0 || ('0' > s[i] || s[i] > '9') && s[i] != '-' && s[i] != '_') {
			return false
		}
	}
	return s != "" && len(s) < 64
}

// setFile reads from "file".
func (p *parser) setFile(s *Set) *Error {
	t := p.next()
	if t.kind != tokenQuoted && t.kind != tokenWord || t.text == "" {
		return p.fail(t, `expected the name of a file in quotes, such as from "/etc/waymark/drop.txt"`)
	}
	s.File = t.text
	f, err := p.options.Open(s.File)
	if err != nil {
		return p.fail(t, "read the block list: %v", err)
	}
	list, errs := ReadList(s.File, f, p.options.Now)
	_ = f.Close() // only read from
	p.errs = append(p.errs, errs...)
	if len(errs) == 0 && len(list) == 0 {
		return p.fail(t, "the block list has no address: put at least one into it, or remove the set and its rules")
	}
	s.Prefixes = list
	return nil
}

// members reads up to the closing brace, over several lines.
func (p *parser) members(s *Set, open token) *Error {
	for {
		t := p.next()
		switch {
		case t.kind == tokenLine, t.is(","):
		case t.is("}"):
			return nil
		case t.kind == tokenEnd, t.is("set"), actions[strings.ToLower(t.text)] != 0:
			if t.kind != tokenEnd {
				p.at-- // it begins the next definition or rule
				for p.tokens[p.at].kind != tokenLine && p.at > 0 {
					p.at--
				}
			}
			return p.fail(open, "this brace is never closed")
		case t.kind != tokenWord:
			return p.fail(t, "expected an address, a prefix or a port")
		default:
			if err := p.member(s, t); err != nil {
				p.errs = append(p.errs, err)
			}
		}
	}
}

func (p *parser) member(s *Set, t token) *Error {
	if t.is("port") { // may stand in front: { port 80, 443 }
		t = p.next()
	}
	if ports, err := kindDport.parse(t.text); err == nil {
		if len(s.Prefixes) > 0 {
			return p.fail(t, "this is a port, and the set has addresses: ports need a set of their own")
		}
		s.Ports = addRange(s.Ports, ports)
		if p.tok().is("for") || p.tok().is("until") {
			return p.fail(p.next(), "only addresses can have an end: leave it out")
		}
		return nil
	}
	prefixes, bad := parsePrefixes(t.text)
	if near := suggest.Nearest(strings.ToLower(t.text), []string{"for", "until"}); bad != nil && near != "" {
		return p.fail(t, "%s is no address: did you mean %s, as in 192.0.2.66 for 1h?", t.text, near)
	}
	if bad != nil {
		return p.fail(t, "%v", bad)
	}
	if len(s.Ports) > 0 {
		return p.fail(t, "this is an address, and the set has ports: addresses need a set of their own")
	}
	until, err := p.until()
	for _, prefix := range prefixes {
		s.Prefixes = append(s.Prefixes, Member{prefix, until})
	}
	return err
}

// mergeMembers sorts members and leaves out those within another that lasts as long.
func mergeMembers(list []Member) []Member {
	slices.SortFunc(list, func(a, b Member) int {
		if c := a.Prefix.Compare(b.Prefix); c != 0 {
			return c
		}
		return -compareEnds(a.Until, b.Until)
	})
	merged := list[:0]
	var around []Member // members around the current one, each within the one before and outliving it
	for _, m := range list {
		for len(around) > 0 && !within(m.Prefix, around[len(around)-1].Prefix) {
			around = around[:len(around)-1]
		}
		if n := len(around); n > 0 && compareEnds(around[n-1].Until, m.Until) >= 0 {
			continue
		}
		around = append(around, m)
		merged = append(merged, m)
	}
	return merged
}

// compareEnds compares times of which zero is without end.
func compareEnds(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// Contains reports whether the set has the address at a time.
func (s *Set) Contains(a netip.Addr, now time.Time) bool {
	for _, m := range s.Prefixes {
		if m.Prefix.Contains(a) && !ended(m.Until, now) {
			return true
		}
	}
	return false
}

// String is the definition as it can be read back.
func (s *Set) String() string {
	if s.File != "" {
		return fmt.Sprintf("set %s from %q", s.Name, s.File)
	}
	var members []string
	for _, m := range s.Prefixes {
		text := prefixText(m.Prefix)
		if !m.Until.IsZero() {
			text += " until " + formatTime(m.Until)
		}
		members = append(members, text)
	}
	for _, r := range s.Ports {
		members = append(members, rangeText(r))
	}
	if len(members) > 8 {
		return "set " + s.Name + " {\n  " + strings.Join(members, ",\n  ") + "\n}"
	}
	return "set " + s.Name + " { " + strings.Join(members, ", ") + " }"
}
