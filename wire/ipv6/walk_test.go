package ipv6_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ipv6"
)

func TestWalk(t *testing.T) {
	base := packet.IPv6("2001:db8::1", "2001:db8::2")
	for _, c := range []struct {
		name    string
		pkt     packet.Builder
		headers []uint8
		upper   int
		proto   uint8
	}{
		{"none", base.UDP(1, 2), nil, 40, 17},
		{"all", base.HopByHop().DestOpts().Routing("::1").Fragment(0, true, 7).AH(1, 1, 12).Shim6(1).UDP(1, 2), []uint8{0, 60, 43, 44, 51, 140}, 40 + 8 + 8 + 24 + 8 + 24 + 8, 17},
		{"mobility", base.Mobility(), []uint8{135}, 48, 59},
		{"HIP", base.HIP(), []uint8{139}, 80, 59},
		{"later fragment", base.DestOpts().Fragment(1280, false, 7).Payload(16), []uint8{60}, 48, 44},
		{"ESP", base.DestOpts().ESP(1, 1).Payload(16), []uint8{60}, 48, 50},
	} {
		pkt := c.pkt.Bytes()
		got, err := ipv6.Walk(pkt)
		var headers []uint8
		for _, h := range got.Headers() {
			headers = append(headers, h.Proto)
			if pkt[h.Link] != h.Proto {
				t.Errorf("%s: header %d is named at %d", c.name, h.Proto, h.Link)
			}
		}
		if err != nil || !slices.Equal(headers, c.headers) || got.Upper != c.upper || got.Proto != c.proto || pkt[got.Link] != c.proto || got.End != len(pkt) {
			t.Errorf("%s: %v, %+v, %v", c.name, headers, got, err)
		}
	}
}

func TestWalkErrors(t *testing.T) {
	base := packet.IPv6("2001:db8::1", "2001:db8::2")
	nine := base
	for range ipv6.MaxHeaders + 1 {
		nine = nine.DestOpts()
	}
	for _, c := range []struct {
		name   string
		pkt    []byte
		want   error
		at     int
		walked int
	}{
		{"empty", nil, ipv6.ErrTruncated, 0, 0},
		{"IPv4", packet.IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Payload(20).Bytes(), ipv6.ErrNotIPv6, 0, 0},
		{"cut in the second header", base.DestOpts().Routing("::1").UDP(1, 2).Bytes()[:50], ipv6.ErrTruncated, 50, 1},
		{"hop-by-hop second", base.DestOpts().HopByHop().UDP(1, 2).Bytes(), ipv6.ErrMalformed, 40, 1},
		{"nine headers", nine.UDP(1, 2).Bytes(), ipv6.ErrTooComplex, 40 + 8*ipv6.MaxHeaders, ipv6.MaxHeaders},
	} {
		chain, err := ipv6.Walk(c.pkt)
		var e *ipv6.Error
		if !errors.As(err, &e) || !errors.Is(err, c.want) || e.Offset != c.at || len(chain.Headers()) != c.walked {
			t.Errorf("%s: %v after %d headers, want %v at %d after %d", c.name, err, len(chain.Headers()), c.want, c.at, c.walked)
		}
	}
}

func TestOptionsErrors(t *testing.T) {
	many := make([]byte, 40)
	many[1] = 4 // 38 bytes of Pad1
	for _, c := range []struct {
		name string
		b    []byte
		want error
		at   int
	}{
		{"empty", nil, ipv6.ErrTruncated, 0},
		{"shorter than its length", []byte{0, 1, 1, 4, 0, 0, 0, 0}, ipv6.ErrTruncated, 8},
		{"option beyond the header", []byte{0, 0, 0x1e, 5, 0, 0, 0, 0}, ipv6.ErrMalformed, 3},
		{"type without length", []byte{0, 0, 1, 3, 0, 0, 0, 0x1e}, ipv6.ErrMalformed, 7},
		{"33 options", many, ipv6.ErrTooComplex, 2 + ipv6.MaxOptions},
	} {
		var err error
		for _, err = range ipv6.Options(c.b) {
			continue
		}
		var e *ipv6.Error
		if !errors.As(err, &e) || !errors.Is(err, c.want) || e.Offset != c.at {
			t.Errorf("%s: %v, want %v at %d", c.name, err, c.want, c.at)
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	pkt := packet.IPv6("2001:db8::1", "2001:db8::2").HopByHop(packet.Option{Type: 5, Data: []byte{0, 0}}).DestOpts().UDP(1, 2).Bytes()
	if n := testing.AllocsPerRun(100, func() {
		c, err := ipv6.Walk(pkt)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range c.Headers() {
			for _, err := range ipv6.Options(pkt[h.At:]) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Cut anywhere, a packet is walked or refused, and never read beyond its end.
func TestWalkTruncated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pkt := packets().Draw(t, "packet")
		n := rapid.IntRange(0, len(pkt)).Draw(t, "cut")
		if c, err := ipv6.Walk(pkt[:n:n]); err == nil && (c.Upper > n || c.End > n) {
			t.Fatalf("%+v of %d bytes", c, n)
		}
	})
}

func FuzzWalk(f *testing.F) {
	for seed := range 20 {
		f.Add(packets().Example(seed))
	}
	f.Fuzz(func(t *testing.T, pkt []byte) {
		pkt = pkt[:len(pkt):len(pkt)]
		c, err := ipv6.Walk(pkt)
		at := ipv6.HeaderSize
		for _, h := range c.Headers() {
			if h.At != at || pkt[h.Link] != h.Proto || pkt[h.At] != h.Next || h.Size%4 != 0 {
				t.Fatalf("%+v at %d", h, at)
			}
			at += h.Size
			for o, err := range ipv6.Options(pkt[h.At : h.At+h.Size]) {
				if err == nil && (o.Size < 1 || o.At+o.Size > h.Size) {
					t.Fatalf("%+v of %+v", o, h)
				}
			}
		}
		if err == nil && (c.Upper != at || c.Upper > c.End || c.End > len(pkt) || pkt[c.Link] != c.Proto) {
			t.Fatalf("%+v of %d bytes", c, len(pkt))
		}
	})
}
