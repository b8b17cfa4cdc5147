package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/address"
	"github.com/waymark-net/waymark/internal/suggest"
)

// parsePrefix reads an address or a prefix.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := address.Prefix(s, "flows")
	if errors.Is(err, address.ErrNone) {
		err = notAddress(s)
	}
	return p, err
}

func notAddress(s string) error {
	if end, err := netip.ParseAddrPort(s); err == nil {
		return fmt.Errorf("this is an address with a port: write host %s and port %d", end.Addr(), end.Port())
	}
	if n := address.Parts(s); n > 1 && n < 4 {
		return fmt.Errorf("this address is incomplete; for a network write net %s", s)
	}
	if err := address.Mistake(s); err != nil {
		return err
	}
	return errors.New("write an address or a prefix, such as 192.0.2.1, 10/8 or 2001:db8::/32")
}

// parseAddress reads an address, a prefix, a network (net 10.1) or the name of a
// host, which stands for all its addresses.
func (p *parser) parseAddress(q *qualifier, s string) ([]value, error) {
	if n := address.Parts(s); strings.HasSuffix(strings.ToLower(q.typed), "net") && n > 0 && n < 4 {
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
	if strings.ContainsAny(s, ":/") || address.Parts(s) == 4 {
		host, _, _ := strings.Cut(s, "/")
		_, err := netip.ParseAddr(address.Padded(host))
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
