package rules

import (
	"net/netip"
	"path"
	"slices"
)

// coverer compares rules. It keeps each rule with its sets put in place.
type coverer struct {
	rules    []*resolved
	outlines []outline // of rules
}

// resolved is a rule whose conditions are values only.
type resolved struct {
	rule     *Rule
	family   uint8 // bits of familyBit: versions that can match
	src, dst sources
	numbers  [7][]Range // in the order of kinds; nil: no condition
	none     string     // a condition that never holds, empty: there is none
}

// sources is a condition about an address.
type sources struct {
	any, not bool
	list     []netip.Prefix // sorted, none within another
	lasting  []netip.Prefix // of list, what lasts as long as the rules do
}

var kinds = [...]*kind{&kindProto, &kindType, &kindSport, &kindDport, &kindVLAN, &kindDSCP, &kindLength}

func newCoverer(rs *Ruleset) *coverer {
	c := &coverer{}
	for _, r := range rs.Rules {
		one := &resolved{rule: r, src: rs.sources(&r.Match.Src), dst: rs.sources(&r.Match.Dst), family: familyBit(4) | familyBit(6)}
		if r.Match.Family != 0 {
			one.family = familyBit(r.Match.Family)
		}
		one.family &= one.src.families() & one.dst.families()
		for k, kind := range kinds {
			one.numbers[k] = rs.numbers(kind, kind.of(&r.Match))
			if one.numbers[k] != nil && len(one.numbers[k]) == 0 {
				one.none = "no " + kind.name + " is left"
			}
		}
		if one.family == 0 && one.none == "" {
			one.none = "no address is left"
		}
		c.rules, c.outlines = append(c.rules, one), append(c.outlines, newOutline(one))
	}
	return c
}

// sources puts the members of sets in place.
func (rs *Ruleset) sources(a *Addrs) sources {
	s := sources{any: len(a.Prefixes)+len(a.Sets) == 0, not: a.Not}
	s.list, s.lasting = slices.Clone(a.Prefixes), slices.Clone(a.Prefixes)
	for _, name := range a.Sets {
		for _, m := range rs.Set(name).Prefixes {
			s.list = append(s.list, m.Prefix)
			if m.Until.IsZero() {
				s.lasting = append(s.lasting, m.Prefix)
			}
		}
	}
	s.list, s.lasting = mergePrefixes(s.list), mergePrefixes(s.lasting)
	return s
}

// families are the versions of which an address can match.
func (s *sources) families() (has uint8) {
	if s.any || s.not {
		has = familyBit(4) | familyBit(6)
	}
	for _, p := range s.list {
		bit := familyBit(6)
		if p.Addr().Is4() {
			bit = familyBit(4)
		}
		switch {
		case !s.not:
			has |= bit
		case p.Bits() == 0 && slices.Contains(s.lasting, p):
			has &^= bit
		}
	}
	return has
}

// numbers puts sets in place and resolves negation; nil: no condition.
func (rs *Ruleset) numbers(k *kind, r *Ranges) []Range {
	if len(r.List)+len(r.Sets) == 0 {
		return nil
	}
	list := r.List
	for _, name := range r.Sets {
		for _, one := range rs.Set(name).Ports {
			list = addRange(list, one)
		}
	}
	if !r.Not {
		return list
	}
	rest := []Range{}
	from := 0
	for _, one := range list {
		if int(one.First) > from {
			rest = append(rest, Range{uint16(from), one.First - 1})
		}
		from = int(one.Last) + 1
	}
	if from <= int(k.max) {
		rest = append(rest, Range{uint16(from), k.max})
	}
	return rest
}

// never is why a rule matches nothing, if it does.
func (c *coverer) never(j int) string { return c.rules[j].none }

// covers reports whether rule i matches every packet that rule j matches.
func (c *coverer) covers(i, j int) bool { return c.rules[i].covers(c.rules[j]) }

func (a *resolved) covers(b *resolved) bool {
	x, y := &a.rule.Match, &b.rule.Match
	if x.Family != 0 && b.family&^familyBit(x.Family) != 0 {
		return false
	}
	for k := range kinds {
		if a.numbers[k] != nil && !rangesWithin(b.numbers[k], a.numbers[k]) {
			return false
		}
	}
	return flagsWithin(y.TCPFlags, x.TCPFlags) &&
		(x.Fragment == nil || y.Fragment != nil && *x.Fragment == *y.Fragment) &&
		ifacesWithin(y.Ifaces, x.Ifaces) &&
		a.src.covers(&b.src) && a.dst.covers(&b.dst)
}

// rangesWithin reports whether each number of a list is in the other; nil is no condition,
// which holds for more packets than any list.
func rangesWithin(inner, outer []Range) bool {
	return inner != nil && !slices.ContainsFunc(inner, func(r Range) bool {
		return !slices.ContainsFunc(outer, func(o Range) bool { return o.First <= r.First && r.Last <= o.Last })
	})
}

func flagsWithin(inner, outer *Flags) bool {
	return outer == nil || inner != nil && outer.Mask&^inner.Mask == 0 && inner.Value&outer.Mask == outer.Value
}

func ifacesWithin(inner, outer []string) bool {
	if len(outer) == 0 {
		return true
	}
	return len(inner) > 0 && !slices.ContainsFunc(inner, func(name string) bool {
		return !slices.ContainsFunc(outer, func(glob string) bool {
			is, _ := path.Match(glob, name)
			return glob == name || glob == "*" || is && !isGlob(name)
		})
	})
}

func isGlob(name string) bool {
	return slices.ContainsFunc([]byte(name), func(c byte) bool { return c == '*' || c == '?' || c == '[' || c == '\\' })
}

// covers reports whether each address that matches b matches a.
func (a *sources) covers(b *sources) bool {
	switch {
	case a.any:
		return true
	case b.any:
		return false
	case !a.not && !b.not:
		return !slices.ContainsFunc(b.list, func(p netip.Prefix) bool { return !inPrefixes(a.lasting, p) })
	case a.not && !b.not:
		_, meet := overlap(a.list, b.list)
		return !meet
	case a.not && b.not:
		return !slices.ContainsFunc(a.list, func(p netip.Prefix) bool { return !inPrefixes(b.lasting, p) })
	}
	return false
}

// inPrefixes reports whether a prefix is within one of a sorted list.
func inPrefixes(list []netip.Prefix, p netip.Prefix) bool {
	n, found := slices.BinarySearchFunc(list, p, netip.Prefix.Compare)
	return found || n > 0 && within(p, list[n-1])
}

// overlap finds addresses that are in both of two sorted lists.
func overlap(a, b []netip.Prefix) (netip.Prefix, bool) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case within(a[i], b[j]):
			return a[i], true
		case within(b[j], a[i]):
			return b[j], true
		case a[i].Compare(b[j]) < 0:
			i++
		default:
			j++
		}
	}
	return netip.Prefix{}, false
}
