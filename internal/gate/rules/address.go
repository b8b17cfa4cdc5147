package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/waymark-net/waymark/internal/address"
)

// parsePrefixes reads an address, a prefix, or a range of addresses as the fewest
// prefixes that cover it.
func parsePrefixes(s string) ([]netip.Prefix, error) {
	if low, high, ok := strings.Cut(s, "-"); ok {
		first, err := netip.ParseAddr(low)
		last, err2 := netip.ParseAddr(high)
		switch {
		case err != nil || err2 != nil || first.Zone() != "" || last.Zone() != "":
			return nil, errors.New("expected two addresses, such as 192.0.2.10-192.0.2.19")
		case first.BitLen() != last.BitLen():
			return nil, errors.New("one end is IPv4, the other IPv6: write both in one version")
		case last.Less(first):
			return nil, fmt.Errorf("the range ends before it begins: did you mean %s-%s?", last, first)
		}
		return cover(first, last), nil
	}
	p, err := parsePrefix(s)
	return []netip.Prefix{p}, err
}

// cover is the fewest prefixes that contain exactly the addresses from first to last.
func cover(first, last netip.Addr) (list []netip.Prefix) {
	for {
		bits := first.BitLen()
		for bits > 0 {
			wider := netip.PrefixFrom(first, bits-1)
			if wider.Masked().Addr() != first || last.Less(lastOf(wider)) {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(first, bits)
		list = append(list, p)
		first = lastOf(p).Next()
		if !first.IsValid() || last.Less(first) {
			return list
		}
	}
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for i := p.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(raw) // as long as before
	return a
}

// parsePrefix reads an address or a prefix.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := address.Prefix(s, "packets")
	if errors.Is(err, address.ErrNone) {
		err = notAddress(s)
	}
	return p, err
}

// notAddress is why a text is no address.
func notAddress(s string) error {
	if end, err := netip.ParseAddrPort(s); err == nil {
		return fmt.Errorf("this is an address with a port: write src %s src port %d, or dst of both", end.Addr(), end.Port())
	}
	if err := address.Mistake(s); err != nil {
		return err
	}
	if _, ok := service(s); ok {
		return fmt.Errorf("expected an address: did you mean port %s?", s)
	}
	return errors.New("expected an address, a prefix or a set, such as 192.0.2.1, 10/8, 2001:db8::/32 or @blocked; names of hosts are not resolved")
}
