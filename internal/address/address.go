// Package address reads addresses and prefixes as users write them. Input: a word. Output: a prefix, or what is wrong with
// the word. Callers: the languages of filters and of packet rules.
package address

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrNone is the error of a word that is neither an address nor a prefix; [Mistake] may know more.
var ErrNone = errors.New("neither an address nor a prefix")

// Prefix reads an address, as the prefix of all its bits, or a prefix; of an IPv4 prefix zeros at the end may be left out:
// 10/8. of is what has the address, in the plural, for errors.
func Prefix(s, of string) (netip.Prefix, error) {
	host, length, isPrefix := strings.Cut(s, "/")
	if !isPrefix {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil:
			return netip.Prefix{}, ErrNone
		case a.Zone() != "":
			return netip.Prefix{}, fmt.Errorf("%s have no zones: write %s and iface %s", of, a.WithZone(""), a.Zone())
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(Padded(host) + "/" + length)
	switch {
	case err != nil && strings.Contains(length, "."):
		return netip.Prefix{}, errors.New("write the length of the prefix, such as 192.0.2.0/24")
	case err != nil || p.Addr().Is4In6():
		return netip.Prefix{}, ErrNone
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("bits are set after the prefix: did you mean %s, or the address %s?", p.Masked(), p.Addr())
	}
	return p, nil
}

// Padded appends the zeros that are left out of an IPv4 network.
func Padded(s string) string {
	if parts := Parts(s); parts > 0 && parts < 4 {
		return s + strings.Repeat(".0", 4-parts)
	}
	return s
}

// Parts counts the numbers of a whole or partial IPv4 address; 0: it is none.
func Parts(s string) int {
	parts := strings.Split(s, ".")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 8); err != nil {
			return 0
		}
	}
	return len(parts)
}

// Mistake is why a word is no address; nil where that is not known.
func Mistake(s string) error {
	if inner := strings.Trim(s, "[]"); inner != s {
		if a, err := netip.ParseAddr(inner); err == nil {
			return fmt.Errorf("write the address without brackets: %s", a)
		}
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil {
		return fmt.Errorf("this is a number, not an address: did you mean port %d?", n)
	}
	return nil
}
