package access

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// longest is the longest word that is looked at as a whole; no address is as long.
const longest = 64

// text replaces every address in a text, whatever stands around it: addresses and prefixes of IPv4 and IPv6, and link layer
// addresses. What is left at the end, if more may follow, is the begin of a word.
func (p *cryptoPAn) text(out, in []byte, more bool) (replaced, left []byte) {
	for len(in) > 0 {
		n := bytes.IndexFunc(in, isAddressRune)
		if n < 0 {
			return append(out, in...), nil
		}
		out, in = append(out, in[:n]...), in[n:]
		end := wordEnd(in)
		if more && goesOn(in, end) {
			return out, in
		}
		var taken int
		out, taken = p.word(out, in, end)
		in = in[taken:]
	}
	return out, nil
}

// goesOn reports whether the word, or the length of its prefix, may be longer than what is there.
func goesOn(in []byte, end int) bool {
	if end == len(in) {
		return end < longest
	}
	rest := in[end+1:]
	return in[end] == '/' && len(rest) < len("128") && bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

func isAddressRune(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'f' || 'A' <= r && r <= 'F' || r == ':' || r == '.'
}

// wordEnd is where the characters of addresses end.
func wordEnd(in []byte) int {
	for i, c := range in {
		if i == longest || !isAddressRune(rune(c)) {
			return i
		}
	}
	return len(in)
}

// word replaces the addresses in in[:end]; taken is how much of in it wrote.
func (p *cryptoPAn) word(out, in []byte, end int) (replaced []byte, taken int) {
	word := string(in[:end])
	if strings.Count(word, ".") < 3 && strings.Count(word, ":") < 2 {
		return append(out, word...), end
	}
	for from := 0; from < end; from = next(word, from) {
		for to := end; to > from; to = previous(word, from, to) {
			length := 0
			text, ok := p.mac(word[from:to])
			if !ok {
				text, length, ok = p.ip(word[from:to], in[to:])
			}
			if !ok {
				continue
			}
			out = append(append(out, word[:from]...), text...)
			return out, to + length
		}
	}
	return append(out, word...), end
}

// next is the place after the sign or the number at from; addresses begin there.
func next(word string, from int) int {
	if isSign(word[from]) {
		return from + 1
	}
	for from < len(word) && !isSign(word[from]) {
		from++
	}
	return from
}

// previous is the place where a shorter word ends: no number is cut.
func previous(word string, from, to int) int {
	if isSign(word[to-1]) {
		return to - 1
	}
	for to > from && !isSign(word[to-1]) {
		to--
	}
	return to
}

func isSign(c byte) bool { return c == ':' || c == '.' }

// ip replaces an address or, where the length of a prefix follows, a prefix; length is that of what followed.
func (p *cryptoPAn) ip(text string, after []byte) (replaced string, length int, ok bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return "", 0, false
	}
	plain := a.Unmap()
	if bits, digits := prefixLength(after, plain.BitLen()); digits > 0 && !a.Is4In6() {
		if in := netip.PrefixFrom(plain, bits); in == in.Masked() {
			return p.prefix(in, false).String(), digits, true
		}
	}
	plain = p.addr(plain, false)
	if a.Is4In6() {
		return "::ffff:" + plain.String(), 0, true
	}
	return plain.String(), 0, true
}

// prefixLength reads /24 behind an address; digits is how long it is, 0: there is none.
func prefixLength(after []byte, most int) (bits, digits int) {
	if len(after) < 2 || after[0] != '/' {
		return 0, 0
	}
	end := 1
	for end < len(after) && '0' <= after[end] && after[end] <= '9' {
		end++
	}
	bits, err := strconv.Atoi(string(after[1:end]))
	if err != nil || bits > most {
		return 0, 0
	}
	return bits, end
}

const macBytes = 6

// mac replaces a link layer address. Its first half, which names a manufacturer, stays common to those that have it.
func (p *cryptoPAn) mac(text string) (string, bool) {
	if len(text) != 3*macBytes-1 {
		return "", false
	}
	var b [macBytes]byte
	for i := range b {
		if i > 0 && text[3*i-1] != ':' {
			return "", false
		}
		if _, err := hex.Decode(b[i:i+1], []byte(text[3*i:3*i+2])); err != nil {
			return "", false
		}
	}
	p.replace(b[:], 8*macBytes, false)
	parts := make([]string, macBytes)
	for i := range b {
		parts[i] = hex.EncodeToString(b[i : i+1])
	}
	return strings.Join(parts, ":"), true
}
