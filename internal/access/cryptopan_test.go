package access

import (
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// publishedKey is that of the sample of Crypto-PAn's authors.
var publishedKey = []byte{
	21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16,
	216, 152, 143, 131, 121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
}

func published(t testing.TB) *cryptoPAn {
	t.Helper()
	p, err := newCryptoPAn(publishedKey)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPublishedVectors: IPv4 from the authors' sample, IPv6 as other implementations replace it.
func TestPublishedVectors(t *testing.T) {
	p := published(t)
	for in, want := range map[string]string{
		"128.11.68.132":   "135.242.180.132",
		"129.118.74.4":    "134.136.186.123",
		"130.132.252.244": "133.68.164.234",
		"141.223.7.43":    "141.167.8.160",
		"141.233.145.108": "141.129.237.235",
		"152.163.225.39":  "151.140.114.167",
		"156.29.3.236":    "147.225.12.42",
		"165.247.96.84":   "162.9.99.234",
		"166.107.77.190":  "160.132.178.185",
		"192.102.249.13":  "252.138.62.131",
		"::1":             "78ff:f001:9fc0:20df:8380:b1f1:704:ed",
		"::2":             "78ff:f001:9fc0:20df:8380:b1f1:704:ef",
		"::ffff":          "78ff:f001:9fc0:20df:8380:b1f1:704:f838",
		"2001:db8::1":     "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e",
		"2001:db8::2":     "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1c",
	} {
		if got := p.addr(netip.MustParseAddr(in), false).String(); got != want {
			t.Errorf("%s → %s, want %s", in, got, want)
		}
	}
}

// TestPrefixesArePreserved: two addresses have as many leading bits in common as their replacements, prefixes are those of
// their addresses, and everything can be undone.
func TestPrefixesArePreserved(t *testing.T) {
	p, r := published(t), rand.New(rand.NewPCG(1, 2))
	for n := range 2000 {
		size := []int{4, 16}[n%2]
		a := randomAddr(r, size)
		b := randomAddr(r, size)
		if shared := r.IntN(8*size + 1); shared > 0 { // random addresses have little in common
			prefix := netip.PrefixFrom(a, shared)
			b = merge(prefix, b)
		}
		x, y := p.addr(a, false), p.addr(b, false)
		if common(a, b) != common(x, y) {
			t.Fatalf("%s and %s share %d bits, %s and %s %d", a, b, common(a, b), x, y, common(x, y))
		}
		if back := p.addr(x, true); back != a {
			t.Fatalf("%s → %s → %s", a, x, back)
		}
		in := netip.PrefixFrom(a, r.IntN(8*size+1)).Masked()
		out := p.prefix(in, false)
		if in.Contains(b) != out.Contains(y) || p.prefix(out, true) != in || out != out.Masked() {
			t.Fatalf("%s → %s; of %s → %s", in, out, b, y)
		}
	}
}

func randomAddr(r *rand.Rand, size int) netip.Addr {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[0] |= 1 // not the unspecified address
	a, _ := netip.AddrFromSlice(b)
	return a
}

// merge is an address of the prefix with the last bits of another.
func merge(p netip.Prefix, a netip.Addr) netip.Addr {
	front, b := p.Addr().AsSlice(), a.AsSlice()
	for at := range p.Bits() {
		bit := byte(0x80) >> (at % 8)
		b[at/8] = b[at/8]&^bit | front[at/8]&bit
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

func common(a, b netip.Addr) (n int) {
	x, y := a.AsSlice(), b.AsSlice()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return n + bits.LeadingZeros8(d)
		}
		n += 8
	}
	return n
}

// TestText: addresses are found in all that surrounds them, and nothing else changes.
func TestText(t *testing.T) {
	p := published(t)
	ip := func(s string) string { return p.addr(netip.MustParseAddr(s), false).String() }
	net := func(s string) string { return p.prefix(netip.MustParsePrefix(s), false).String() }
	for in, want := range map[string]string{
		`{"src":"128.11.68.132","dport":443}`:      `{"src":"135.242.180.132","dport":443}`,
		`"2001:db8::1"`:                            `"` + ip("2001:db8::1") + `"`,
		"at [2001:db8::1]:8080, 41 ms":             "at [" + ip("2001:db8::1") + "]:8080, 41 ms",
		"128.11.68.132:443":                        "135.242.180.132:443",
		"it is 128.11.68.132.":                     "it is 135.242.180.132.",
		"from 128.11.68.132: refused":              "from 135.242.180.132: refused",
		"2001:db8::1: refused":                     ip("2001:db8::1") + ": refused",
		"128.11.0.0/16":                            net("128.11.0.0/16"),
		"2001:db8::/32,":                           net("2001:db8::/32") + ",",
		"128.11.68.132/16":                         "135.242.180.132/16",
		"0.0.0.0/0 and ::/0, [::]:80":              "0.0.0.0/0 and ::/0, [::]:80",
		"128.11.68.132-129.118.74.4":               "135.242.180.132-134.136.186.123",
		"::ffff:128.11.68.132":                     "::ffff:135.242.180.132",
		"fe80::1%eth0":                             ip("fe80::1") + "%eth0",
		"/flow/tcp/128.11.68.132:1/129.118.74.4":   "/flow/tcp/135.242.180.132:1/134.136.186.123",
		"2026-11-24T13:25:00.123456Z, 13:25:00":    "2026-11-24T13:25:00.123456Z, 13:25:00",
		`{"packets":1.25,"x":0.5e3,"bcd":"a.b.c"}`: `{"packets":1.25,"x":0.5e3,"bcd":"a.b.c"}`,
		"eth0.100 wg0 ffff cafe:1":                 "eth0.100 wg0 ffff cafe:1",
	} {
		if got, _ := p.text(nil, []byte(in), false); string(got) != want {
			t.Errorf("%s\n→ %s\nwant %s", in, got, want)
		}
	}
	mac, _ := p.text(nil, []byte("02:00:5e:10:00:01 and 02:00:5e:10:00:02"), false)
	if len(mac) != 39 || string(mac[:16]) != string(mac[22:38]) || mac[16] == mac[38] || string(mac[:8]) == "02:00:5e" {
		t.Errorf("link layer addresses: %s", mac)
	}
}

// TestTextInPieces: an answer is the same in whatever pieces it is written.
func TestTextInPieces(t *testing.T) {
	p, r := published(t), rand.New(rand.NewPCG(3, 4))
	text := `{"src":"128.11.68.132","dst":"2001:db8::1","net":"128.11.0.0/16","in":"fe80::/10"} [2001:db8:1:2:3:4:5:6]:80 ` +
		`02:00:5e:10:00:01 13:25:00.25 ::ffff:128.11.68.132 1.2 a:b` + "\n"
	want, _ := p.text(nil, []byte(text), false)
	for range 500 {
		var out, left []byte
		for rest := []byte(text); len(rest) > 0; {
			n := 1 + r.IntN(min(len(rest), 20))
			out, left = p.text(out, append(append([]byte(nil), left...), rest[:n]...), true)
			rest = rest[n:]
		}
		if len(left) > 0 {
			t.Fatalf("held back after a line: %q", left)
		}
		if string(out) != string(want) {
			t.Fatalf("%s\nwant %s", out, want)
		}
	}
}

// FuzzText: no text makes it fail, and what was replaced holds no more and no fewer addresses.
func FuzzText(f *testing.F) {
	for _, s := range []string{"1.2.3.4/33", "::1", "1:2:3:4:5:6:7:8/1", "::ffff:1.2.3.4/99", "a::b::c", "1.2.3.4.5", "aa:bb:cc:dd:ee:ff:00"} {
		f.Add(s)
	}
	p := published(f)
	f.Fuzz(func(t *testing.T, s string) {
		whole, _ := p.text(nil, []byte(s), false)
		out, left := p.text(nil, []byte(s), true)
		rest, _ := p.text(out, left, false)
		if string(whole) != string(rest) {
			t.Errorf("%q → %q, in two pieces %q", s, whole, rest)
		}
	})
}

func BenchmarkText(b *testing.B) {
	p := published(b)
	row := []byte(`{"src":"128.11.68.132","sport":443,"dst":"2001:db8::1","dport":1025,"packets":10,"bytes":1000}` + "\n")
	b.SetBytes(int64(len(row)))
	for b.Loop() {
		p.text(nil, row, true)
	}
}
