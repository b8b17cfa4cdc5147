package filter

import (
	"fmt"
	"math/bits"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/suggest"
)

// value is what a field is compared with; which part counts depends on its kind.
type value struct {
	low, high uint64 // numbers, names, bits; a single number is low == high
	prefix    netip.Prefix
	text      string
}

// parse reads one value, or one range, of the field.
func (f *field) parse(s string) (value, error) {
	switch f.kind {
	case kindText:
		if _, err := path.Match(s, ""); err != nil {
			return value{}, fmt.Errorf("%s %q: the pattern is not complete; escape [ with \\", f.name, s)
		}
		return value{text: s}, nil
	case kindAddress:
		return parsePrefix(f.name, s)
	case kindName, kindBits:
		n, err := f.parseName(strings.ToLower(s))
		return value{low: n, high: n}, err
	}
	if low, high, ok := strings.Cut(s, "-"); ok {
		return f.parseRange(low, high)
	}
	n, err := f.parseNumber(s)
	return value{low: n, high: n}, err
}

func (f *field) parseRange(low, high string) (v value, err error) {
	if v.low, err = f.parseNumber(low); err != nil {
		return v, err
	}
	if v.high, err = f.parseNumber(high); err != nil {
		return v, err
	}
	if v.low > v.high {
		return v, fmt.Errorf("%s %s-%s: the smaller end comes first", f.name, low, high)
	}
	return v, nil
}

func (f *field) parseNumber(s string) (uint64, error) {
	if f.kind == kindDuration {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, fmt.Errorf("%s %q: write a time with its unit, like 800us, 10ms or 1.5s", f.name, s)
		}
		return uint64(d), nil
	}
	n, ok := parseScaled(s)
	if !ok {
		return 0, fmt.Errorf("%s %q: write a whole number; k, M, G, T and Ki, Mi, Gi, Ti may follow", f.name, s)
	}
	if n > f.max {
		return 0, fmt.Errorf("%s %s: the largest there is, is %d", f.name, s, f.max)
	}
	return n, nil
}

// parseScaled reads 10, 10k (powers of 1000) and 10Ki (powers of 1024).
func parseScaled(s string) (uint64, bool) {
	factor := uint64(1)
	digits, base := s, uint64(1000)
	if d, ok := strings.CutSuffix(s, "i"); ok {
		digits, base = d, 1024
	}
	if n := len(digits); n > 0 {
		if unit := strings.IndexByte("kMGT", digits[n-1]); unit >= 0 || digits[n-1] == 'K' {
			for range max(unit, 0) + 1 {
				factor *= base
			}
			digits = digits[:n-1]
		}
	}
	if factor == 1 && base == 1024 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	high, low := bits.Mul64(n, factor)
	return low, err == nil && high == 0
}

func parsePrefix(name, s string) (value, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return value{}, notAddress(name, s)
		}
		a = a.Unmap()
		return value{prefix: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return value{}, notAddress(name, s)
	}
	if p != p.Masked() {
		return value{}, fmt.Errorf("%s %s: bits are set after the prefix; did you mean %s?", name, s, p.Masked())
	}
	return value{prefix: p}, nil
}

func notAddress(name, s string) error {
	return fmt.Errorf("%s %q: write an address or a prefix, like 192.0.2.1 or 2001:db8::/32", name, s)
}

func notOneOf(name, s string, names []string) error {
	if near := suggest.Nearest(s, names); near != "" {
		return fmt.Errorf("%s %q: did you mean %s?", name, s, near)
	}
	return fmt.Errorf("%s %q: it is one of %s", name, s, strings.Join(names, ", "))
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
