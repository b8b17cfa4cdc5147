package pdm_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

func TestWalk(t *testing.T) {
	marked := dest(mark(sample), padN(2))
	v2 := dest(append([]byte{0x0F, 0x12}, make([]byte, 18)...), padN(2))
	for _, c := range []struct {
		name string
		pkt  []byte
		want pdm.Layout
	}{
		{"bare", packet(udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 40, Proto: 17, Link: 6}}},
		{"marked", packet(marked, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 56, Proto: 17, Link: 40}, Header: 40, Option: 42}},
		{"hop-by-hop first", packet(hopByHop(), marked, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 64, Proto: 17, Link: 48}, Header: 48, Option: 50}},
		{"two destination headers, first marked", packet(marked, routing(), dest(padN(6)), udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 88, Proto: 17, Link: 80}, Header: 40, Option: 42}},
		{"two destination headers, second marked", packet(dest(padN(6)), marked, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 64, Proto: 17, Link: 48}, Header: 48, Option: 50}},
		{"behind routing", packet(routing(), marked, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 80, Proto: 17, Link: 64}, Header: 64, Option: 66}},
		{"first fragment", packet(fragment(0), marked, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 64, Proto: 17, Link: 48, Fragment: true}, Header: 48, Option: 50}},
		{"later fragment is data", packet(fragment(9), marked, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 40, Proto: 44, Link: 6, Fragment: true}}},
		{"stops at ESP", packet(marked, esp()), pdm.Layout{Chain: ipv6.Chain{Upper: 56, Proto: 50, Link: 40}, Header: 40, Option: 42}},
		{"AH", packet(auth(), udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 56, Proto: 17, Link: 40, Authenticated: true}}},
		{"PDMv2", packet(v2, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 64, Proto: 17, Link: 40}, Version2: true}},
		{"no next header", packet(dest(padN(6)), header{59, nil}), pdm.Layout{Chain: ipv6.Chain{Upper: 48, Proto: 59, Link: 40}}},
		{"option 0x0F means nothing in hop-by-hop", packet(header{0, marked.b}, udp()), pdm.Layout{Chain: ipv6.Chain{Upper: 56, Proto: 17, Link: 40}}},
		{"inner packet of a tunnel is another packet", packet(header{41, packet(marked, udp())}), pdm.Layout{Chain: ipv6.Chain{Upper: 40, Proto: 41, Link: 6}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.End = len(c.pkt)
			got, err := pdm.Walk(c.pkt)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got, cmpopts.IgnoreUnexported(ipv6.Chain{})); d != "" {
				t.Error(d)
			}
			o, err := pdm.Find(c.pkt)
			switch {
			case c.want.Version2 && !errors.Is(err, pdm.ErrVersion2),
				!c.want.Version2 && c.want.Option == 0 && !errors.Is(err, pdm.ErrNone):
				t.Errorf("Find: %v", err)
			case c.want.Option != 0 && (err != nil || o != sample):
				t.Errorf("Find: %v, %v", o, err)
			}

			// A capture may end behind the headers.
			if c.want.Upper > 40 {
				if _, err := pdm.Walk(c.pkt[:c.want.Upper]); err != nil {
					t.Errorf("cut behind the headers: %v", err)
				}
			}
		})
	}
}

func TestWalkErrors(t *testing.T) {
	marked := dest(mark(sample), padN(2))
	var nine []header
	for range pdm.MaxHeaders + 1 {
		nine = append(nine, dest(padN(6)))
	}
	short := packet(marked, udp())
	binary.BigEndian.PutUint16(short[4:], 12) // the payload ends in the header
	ipv4 := packet(udp())
	ipv4[0] = 0x45
	for _, c := range []struct {
		name string
		pkt  []byte
		want error
		at   int
	}{
		{"empty", nil, ipv6.ErrTruncated, 0},
		{"cut in the IPv6 header", packet(udp())[:39], ipv6.ErrTruncated, 39},
		{"IPv4", ipv4, ipv6.ErrNotIPv6, 0},
		{"cut in a header", packet(marked, udp())[:55], ipv6.ErrTruncated, 55},
		{"cut before a header", packet(routing(), marked, udp())[:64], ipv6.ErrTruncated, 64},
		{"payload length ends in a header", short, ipv6.ErrTruncated, 52},
		{"cut in a routing header", packet(routing(), udp())[:50], ipv6.ErrTruncated, 50},
		{"cut in a fragment header", packet(fragment(0), udp())[:47], ipv6.ErrTruncated, 47},
		{"cut in AH", packet(auth(), udp())[:47], ipv6.ErrTruncated, 47},
		{"hop-by-hop not first", packet(dest(padN(6)), hopByHop(), udp()), ipv6.ErrMalformed, 40},
		{"option beyond its header", packet(routing(), header{60, []byte{0, 0, 0x1E, 9, 0, 0, 0, 0}}, udp()), ipv6.ErrMalformed, 67},
		{"PDM in two headers", packet(marked, routing(), marked, udp()), pdm.ErrTwice, 80},
		{"too many headers", packet(append(nine, udp())...), ipv6.ErrTooComplex, 40 + 8*pdm.MaxHeaders},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := pdm.Walk(c.pkt)
			wantError(t, err, c.want, c.at)
			if _, err := pdm.Find(c.pkt); !errors.Is(err, c.want) {
				t.Errorf("Find: %v", err)
			}
		})
	}
}

func TestFindDoesNotAllocate(t *testing.T) {
	pkt := packet(hopByHop(), dest(tlv(4), mark(sample), tlv(2)), udp())
	if n := testing.AllocsPerRun(100, func() {
		if _, err := pdm.Find(pkt); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Cut anywhere, a packet is walked or refused, and never read beyond its end.
func TestWalkOfTruncated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pkt := packets().Draw(t, "packet")
		n := rapid.IntRange(0, len(pkt)).Draw(t, "cut")
		l, err := pdm.Walk(pkt[:n:n])
		if err == nil && (l.Upper > n || l.End > n) {
			t.Fatalf("%+v of %d bytes", l, n)
		}
	})
}

func FuzzWalk(f *testing.F) {
	for _, p := range seeds() {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pkt []byte) {
		pkt = pkt[:len(pkt):len(pkt)]
		l, err := pdm.Walk(pkt)
		if err != nil {
			return
		}
		if l.Upper < 40 || l.Upper > l.End || l.End > len(pkt) || l.Link >= l.Upper || pkt[l.Link] != l.Proto {
			t.Fatalf("%+v of %d bytes", l, len(pkt))
		}
		if l.Option != 0 && (l.Header < 40 || l.Option < l.Header+2 || l.Option+pdm.OptionSize > l.Upper) {
			t.Fatalf("%+v", l)
		}
	})
}

// seeds are packets to start fuzzing from.
func seeds() [][]byte {
	marked := dest(mark(sample), padN(2))
	return [][]byte{
		packet(udp()), packet(marked, udp()), packet(hopByHop(), dest(tlv(4), mark(sample), tlv(2)), udp()),
		packet(routing(), dest(padN(6)), marked, icmp(128)), packet(fragment(0), marked, udp()),
		packet(marked, esp()), packet(auth(), udp()), packet(dest(tlv(0), padN(4)), icmp(135)),
	}
}

func BenchmarkFind(b *testing.B) {
	pkt := packet(dest(mark(sample), padN(2)), udp())
	for b.Loop() {
		o, _ := pdm.Find(pkt)
		sink += uint64(o.PSNTP)
	}
}
