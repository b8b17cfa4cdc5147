package rules

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/suggest"
)

// kind is what Ranges are about.
type kind struct {
	name  string // as it is printed
	max   uint16
	want  string
	sets  bool // sets of ports may be named
	named func(string) (uint16, bool)
	of    func(*Match) *Ranges
}

var (
	kindProto = kind{"proto", 255, "a protocol, such as tcp or 47", false, protocol, func(m *Match) *Ranges { return &m.Proto }}
	kindType  = kind{"type", 255, "an ICMP type, such as 8 or 128-129", false, nil, func(m *Match) *Ranges { return &m.ICMPType }}
	kindSport = kind{"src port", 65535, portWanted, true, service, func(m *Match) *Ranges { return &m.Sport }}
	kindDport = kind{"dst port", 65535, portWanted, true, service, func(m *Match) *Ranges { return &m.Dport }}
	kindVLAN  = kind{"vlan", 4095, "a VLAN, such as 100 or 100-199", false, nil, func(m *Match) *Ranges { return &m.VLAN }}
	kindDSCP  = kind{"dscp", 63, "a DSCP, such as 46, ef or 8-15", false, codePoint, func(m *Match) *Ranges { return &m.DSCP }}

	kindLength = kind{"len", 65535, "a number of bytes, such as 1500 or 64-128", false, nil, func(m *Match) *Ranges { return &m.Length }}
)

const portWanted = "a port, such as 443, https, 8000-8099 or @web"

func protocol(name string) (uint16, bool) {
	n, err := flow.ParseProto(strings.ToLower(name))
	return uint16(n), err == nil
}

// codePoint is the DSCP of a name (RFC 2474, 2597, 3246, 8622).
func codePoint(name string) (uint16, bool) {
	name = strings.ToLower(name)
	switch name {
	case "be":
		return 0, true
	case "le":
		return 1, true
	case "ef":
		return 46, true
	case "va":
		return 44, true
	}
	if len(name) == 3 && name[:2] == "cs" && '0' <= name[2] && name[2] <= '7' {
		return 8 * uint16(name[2]-'0'), true
	}
	if len(name) == 4 && name[:2] == "af" && '1' <= name[2] && name[2] <= '4' && '1' <= name[3] && name[3] <= '3' {
		return 8*uint16(name[2]-'0') + 2*uint16(name[3]-'0'), true
	}
	return 0, false
}

// ranges reads [ operator ] values: 80,443 or not 8000-8099, > 400.
func (p *parser) ranges(r *ruleText, k *kind, at part) *Error {
	if err := p.once(r, k.name, at.token); err != nil {
		return err
	}
	out := k.of(&r.Match)
	out.Not = at.not
	for _, op := range []string{"<", "<=", ">", ">="} {
		if p.accept(op) {
			return p.compared(out, k, op)
		}
	}
	out.Not = p.equality() != at.not
	return p.list(func(t token) *Error {
		if name, ok := strings.CutPrefix(t.text, "@"); ok && k.sets {
			r.uses = append(r.uses, use{t, true})
			out.Sets = addSorted(out.Sets, name)
			return nil
		}
		one, err := k.parse(t.text)
		if err != nil {
			return p.fail(t, "%v", err)
		}
		out.List = addRange(out.List, one)
		return nil
	}, k.want)
}

// equality reads an operator in front of a list, and reports whether it negates.
func (p *parser) equality() (not bool) {
	switch {
	case p.accept("!="):
		return true
	case p.accept("="):
		return false
	}
	not = p.accept("not")
	p.accept("in")
	return not
}

// compared reads the number behind an operator of order.
func (p *parser) compared(out *Ranges, k *kind, op string) *Error {
	t := p.tok()
	one, err := k.parse(t.text)
	if t.kind != tokenWord || err != nil || one.First != one.Last {
		return p.fail(t, "expected one number up to %d after %s", k.max, op)
	}
	p.next()
	n := int(one.First)
	low, high := 0, int(k.max)
	switch op {
	case "<":
		high = n - 1
	case "<=":
		high = n
	case ">":
		low = n + 1
	case ">=":
		low = n
	}
	if low > high {
		return p.fail(t, "never true: %s is from 0 to %d", k.name, k.max)
	}
	out.List = []Range{{uint16(low), uint16(high)}}
	return nil
}

// parse reads a number, name or range.
func (k *kind) parse(s string) (Range, error) {
	if n, err := k.number(s); err == nil {
		return Range{n, n}, nil
	}
	first, last, isRange := strings.Cut(s, "-")
	if isRange {
		a, bad := k.number(first)
		b, bad2 := k.number(last)
		switch {
		case bad != nil || bad2 != nil:
		case a > b:
			return Range{}, fmt.Errorf("the range ends before it begins: did you mean %d-%d?", b, a)
		default:
			return Range{a, b}, nil
		}
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return Range{}, fmt.Errorf("%d is too large: expected %s, up to %d", n, k.want, k.max)
	}
	if _, err := parsePrefix(s); err == nil && k.sets {
		return Range{}, fmt.Errorf("%s is an address: write it without port in front", s)
	}
	if strings.HasPrefix(s, "@") {
		return Range{}, fmt.Errorf("no set can be named here: expected %s", k.want)
	}
	return Range{}, fmt.Errorf("expected %s", k.want)
}

func (k *kind) number(s string) (uint16, error) {
	if n, err := strconv.ParseUint(s, 10, 16); err == nil && n <= uint64(k.max) {
		return uint16(n), nil
	}
	if k.named != nil {
		if n, ok := k.named(s); ok && n <= k.max {
			return n, nil
		}
	}
	return 0, fmt.Errorf("expected %s", k.want)
}

// number reads a number behind a keyword.
func (p *parser) number(want string, low, high uint64) (uint64, *Error) {
	t := p.next()
	n, err := filter.Scaled(t.text, false)
	if t.kind != tokenWord || err != nil || n < low || n > high {
		return 0, p.fail(t, "expected %s", want)
	}
	return n, nil
}

// list reads values with commas between them, in braces or not.
func (p *parser) list(value func(token) *Error, want string) *Error {
	braces := p.accept("{")
	for {
		t := p.tok()
		if t.kind != tokenWord && t.kind != tokenQuoted {
			return p.fail(t, "expected %s", want)
		}
		p.next()
		if err := value(t); err != nil {
			return err
		}
		if !p.accept(",") {
			break
		}
	}
	if t := p.tok(); braces && !p.accept("}") {
		return p.fail(t, "expected , or }")
	}
	return nil
}

// addrs reads addresses, prefixes and names of sets.
func (p *parser) addrs(r *ruleText, name string, out *Addrs, at part) *Error {
	if err := p.once(r, name, at.token); err != nil {
		return err
	}
	out.Not = p.equality() != at.not
	return p.list(func(t token) *Error {
		if set, ok := strings.CutPrefix(t.text, "@"); ok && t.kind == tokenWord {
			r.uses = append(r.uses, use{t, false})
			out.Sets = addSorted(out.Sets, set)
			return nil
		}
		prefixes, err := parsePrefixes(t.text)
		if err != nil && suggest.Nearest(strings.ToLower(t.text), []string{"port"}) != "" {
			return p.fail(t, "%s is no address: did you mean %s port?", t.text, name)
		}
		if err != nil {
			return p.fail(t, "%v", err)
		}
		out.Prefixes = mergePrefixes(append(out.Prefixes, prefixes...))
		return nil
	}, "an address, a prefix or @ and the name of a set")
}

// addSorted inserts a name into a sorted list that has each once.
func addSorted(list []string, name string) []string {
	if i, found := slices.BinarySearch(list, name); !found {
		return slices.Insert(list, i, name)
	}
	return list
}

// addRange inserts a range into a sorted list and joins those that touch.
func addRange(list []Range, r Range) []Range {
	list = append(slices.Clone(list), r)
	slices.SortFunc(list, func(a, b Range) int { return int(a.First) - int(b.First) })
	merged := list[:1]
	for _, r := range list[1:] {
		last := &merged[len(merged)-1]
		if int(r.First) <= int(last.Last)+1 {
			last.Last = max(last.Last, r.Last)
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}

// mergePrefixes sorts prefixes and removes those that are within another.
func mergePrefixes(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare)
	merged := list[:0]
	for _, p := range list {
		if n := len(merged); n == 0 || !within(p, merged[n-1]) {
			merged = append(merged, p)
		}
	}
	return merged
}

// within reports whether each address of a prefix is in the other.
func within(inner, outer netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func validGlob(s string) bool {
	_, err := path.Match(s, "")
	return err == nil && s != "" && len(s) < 64 && !strings.ContainsAny(s, "/ \t\r\n\x00")
}
