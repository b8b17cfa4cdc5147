package filter

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/suggest"
	"github.com/waymark-net/waymark/internal/timespec"
)

// value is what a field is compared with; which part counts depends on its kind.
type value struct {
	low, high uint64 // numbers, names, bits; a single number is low == high
	prefix    netip.Prefix
	text      string
}

// parse reads one value, or one range, of the field. Errors are worded to stand
// behind the field and the value.
func (f *field) parse(s string) (value, error) {
	switch f.kind {
	case kindText:
		if _, err := path.Match(s, ""); err != nil {
			return value{}, errors.New("this pattern is incomplete; write \\[ for the character [")
		}
		return value{text: s}, nil
	case kindAddress:
		p, err := parsePrefix(s)
		return value{prefix: p}, err
	case kindName, kindBits:
		n, err := f.parseName(strings.TrimPrefix(strings.ToLower(s), "\\")) // tcpdump wants ip proto \tcp
		return value{low: n, high: n}, err
	}
	return parseRange(s, f.parseNumber)
}

// parseRange reads a number, or two with - or .. between them.
func parseRange(s string, number func(string) (uint64, error)) (v value, err error) {
	low, high, ok := strings.Cut(s, "-")
	if !ok {
		low, high, ok = strings.Cut(s, "..")
	}
	if !ok {
		n, err := number(s)
		return value{low: n, high: n}, err
	}
	if v.low, err = number(low); err != nil {
		return v, err
	}
	if v.high, err = number(high); err != nil {
		return v, err
	}
	if v.low > v.high {
		return v, fmt.Errorf("the smaller end comes first: %s-%s", high, low)
	}
	return v, nil
}

func (f *field) parseNumber(s string) (uint64, error) {
	if f.kind == kindDuration {
		d, err := timespec.Duration(s)
		return uint64(d), err
	}
	n, err := parseScaled(s, f.size)
	if err == nil && n > f.max {
		err = fmt.Errorf("the largest value is %d", f.max)
	}
	return n, err
}

// parsePort reads a port or a range of ports, by number or by the name of a service.
func (p *parser) parsePort(f *field, s string) (value, error) {
	if n, ok := services[strings.ToLower(s)]; ok { // some have a dash
		return value{low: uint64(n), high: uint64(n)}, nil
	}
	return parseRange(s, func(s string) (uint64, error) {
		if !isName(s) {
			return f.parseNumber(s)
		}
		n, err := p.service(s)
		return uint64(n), err
	})
}

func (p *parser) service(name string) (uint16, error) {
	if n, ok := services[strings.ToLower(name)]; ok {
		return n, nil
	}
	if p.names.Services != nil {
		if n, err := p.names.Services(name); err == nil {
			return n, nil
		}
	}
	if near := suggest.Nearest(strings.ToLower(name), slices.Sorted(maps.Keys(services))); near != "" {
		return 0, fmt.Errorf("unknown service %s: did you mean %s?", name, near)
	}
	return 0, fmt.Errorf("unknown service %s: write the number of the port", name)
}

func parseProto(s string) (uint64, error) {
	n, err := flow.ParseProto(s)
	if err != nil {
		if near := suggest.Nearest(s, flow.ProtoNames()); near != "" {
			return 0, fmt.Errorf("unknown protocol: did you mean %s?", near)
		}
		return 0, errors.New("unknown protocol: write a name such as tcp, or a number up to 255")
	}
	return uint64(n), nil
}

// directions are the words for them in filters, tables and records.
var directions = map[string]flow.Direction{
	"ingress": flow.Ingress, "in": flow.Ingress, "inbound": flow.Ingress,
	"egress": flow.Egress, "out": flow.Egress, "outbound": flow.Egress,
}

func parseDirection(s string) (uint64, error) {
	if d, ok := directions[s]; ok {
		return uint64(d), nil
	}
	return 0, notOneOf(s, []string{"ingress", "egress", "in", "out", "inbound", "outbound"})
}

// parseFlags reads names with + between them; tcpdump calls syn tcp-syn.
func parseFlags(s string) (uint64, error) {
	var all uint64
	for part := range strings.SplitSeq(s, "+") {
		n, err := flow.ParseTCPFlags(strings.TrimPrefix(part, "tcp-"))
		if err != nil {
			return 0, fmt.Errorf("unknown flag %q: write some of %s with + between them", part, strings.Join(flagNames, ", "))
		}
		all |= uint64(n)
	}
	return all, nil
}

func notOneOf(s string, names []string) error {
	if near := suggest.Nearest(s, names); near != "" {
		return fmt.Errorf("did you mean %s?", near)
	}
	return fmt.Errorf("it is one of %s", strings.Join(names, ", "))
}

// matchText compares with a glob; the pattern was checked when it was read.
func (v *value) matchText(s string) bool {
	ok, err := path.Match(v.text, s)
	return ok && err == nil
}

// format is the inverse of parse.
func (f *field) format(v value) string {
	switch f.kind {
	case kindText:
		return v.text
	case kindAddress:
		if v.prefix.IsSingleIP() {
			return v.prefix.Addr().String()
		}
		return v.prefix.String()
	case kindName, kindBits:
		return f.nameOf(v.low)
	}
	if v.low != v.high {
		return f.formatNumber(v.low) + "-" + f.formatNumber(v.high)
	}
	return f.formatNumber(v.low)
}

func (f *field) formatNumber(n uint64) string {
	if f.kind == kindDuration {
		return time.Duration(n).String()
	}
	return strconv.FormatUint(n, 10)
}
