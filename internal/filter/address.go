package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/suggest"
)

// parsePrefix reads an address or a prefix; of an IPv4 prefix zeros at the end
// may be left out: 10/8.
func parsePrefix(s string) (netip.Prefix, error) {
	host, length, isPrefix := strings.Cut(s, "/")
	if isPrefix {
		s = padded(host) + "/" + length
	}
	if !isPrefix {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil:
			return netip.Prefix{}, notAddress(s)
		case a.Zone() != "":
			return netip.Prefix{}, fmt.Errorf("flows have no zones: write %s and iface %s", a.WithZone(""), a.Zone())
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, notAddress(s)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("bits are set after the prefix; did you mean %s?", p.Masked())
	}
	return p, nil
}

// padded appends the zeros that are left out of an IPv4 network.
func padded(s string) string {
	if parts := partsOf(s); parts > 0 && parts < 4 {
		return s + strings.Repeat(".0", 4-parts)
	}
	return s
}

// partsOf counts the numbers of a whole or partial IPv4 address; 0: it is none.
func partsOf(s string) int {
	parts := strings.Split(s, ".")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 8); err != nil {
			return 0
		}
	}
	return len(parts)
}

func notAddress(s string) error {
	if end, err := netip.ParseAddrPort(s); err == nil {
		return fmt.Errorf("this is an address with a port: write host %s and port %d", end.Addr(), end.Port())
	}
	if inner := strings.Trim(s, "[]"); inner != s {
		if a, err := netip.ParseAddr(inner); err == nil {
			return fmt.Errorf("write the address without brackets: %s", a)
		}
	}
	if n := partsOf(s); n > 1 && n < 4 {
		return fmt.Errorf("this address is incomplete; for a network write net %s", s)
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		return fmt.Errorf("this is a number, not an address: did you mean port %d?", n)
	}
	return errors.New("write an address or a prefix, such as 192.0.2.1, 10/8 or 2001:db8::/32")
}

// parseAddress reads an address, a prefix, a network (net 10.1) or the name of a
// host, which stands for all its addresses.
func (p *parser) parseAddress(q *qualifier, s string) ([]value, error) {
	if n := partsOf(s); strings.HasSuffix(strings.ToLower(q.typed), "net") && n > 0 && n < 4 {
		s += fmt.Sprintf("/%d", 8*n)
	}
	prefix, err := parsePrefix(s)
	if err == nil || !isName(s) {
		return []value{{prefix: prefix}}, err
	}
	if near := p.misspelt(q, s); near != "" {
		return nil, fmt.Errorf("did you mean %s?", near)
	}
	if p.names.Hosts == nil {
		return nil, errors.New("names of hosts are resolved on the command line only: write an address")
	}
	addrs, err := p.names.Hosts(s)
	if err != nil {
		return nil, err
	}
	var values []value
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		v := value{prefix: netip.PrefixFrom(a, a.BitLen())}
		if a.IsValid() && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return nil, errors.New("this name has no address")
	}
	return values, nil
}

// misspelt is the name of a field that a word behind another was meant to make:
// dst port, where dst prt 443 was written. Nothing else is followed by a value.
func (p *parser) misspelt(q *qualifier, s string) string {
	if next := p.peek(1); next.kind != tokenWord || isKeyword(next.text) {
		return ""
	}
	begin := lastWords(q.typed, 1)
	var longer []string
	for _, w := range continued(begin) {
		longer = append(longer, w.Text)
	}
	if near := suggest.Nearest(strings.ToLower(s), longer); near != "" {
		return begin + " " + near
	}
	return ""
}

// isAddress reports whether a word can be nothing but an address or a prefix.
func isAddress(s string) bool {
	if strings.ContainsAny(s, ":/") || partsOf(s) == 4 {
		host, _, _ := strings.Cut(s, "/")
		_, err := netip.ParseAddr(padded(host))
		return err == nil
	}
	return false
}

// isName reports whether a word can name a host or a service.
func isName(s string) bool {
	letter := false
	for i := range len(s) {
		switch c := s[i] | 0x20; {
		case 'a' <= c && c <= 'z':
			letter = true
		case '0' <= s[i] && s[i] <= '9', s[i] == '-' && i > 0, s[i] == '.' && i > 0, s[i] == '_':
		default:
			return false
		}
	}
	return letter && !startsScaled(s)
}

// startsScaled reports whether a word is rather a number with a wrong unit.
func startsScaled(s string) bool {
	_, err := parseScaled(s, true)
	return err == nil
}
