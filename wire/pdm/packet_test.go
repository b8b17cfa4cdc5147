package pdm_test

import (
	"encoding/binary"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/pdm"
)

// header is one extension header, or the upper layer, of a packet under test;
// its first byte will name the one after it.
type header struct {
	proto uint8
	b     []byte
}

func hopByHop() header { return header{0, []byte{0, 0, 0x05, 2, 0, 0, 1, 0}} }

// routing has one segment, and none left.
func routing() header {
	return header{43, append([]byte{0, 2, 4, 0, 0, 0, 0, 0}, make([]byte, 16)...)}
}

func fragment(offset uint16) header {
	b := []byte{0, 0, 0, 0, 0, 0, 0, 7}
	binary.BigEndian.PutUint16(b[2:], offset<<3|1)
	return header{44, b}
}

func auth() header { return header{51, []byte{0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 9, 9, 9, 9}} }
func esp() header  { return header{50, []byte{0, 0, 1, 2, 0, 0, 0, 3, 0xDE, 0xAD}} }

// dest is a Destination Options header with these options.
func dest(options ...[]byte) header {
	b := []byte{0, 0}
	for _, o := range options {
		b = append(b, o...)
	}
	if len(b)%8 != 0 {
		panic("a Destination Options header of a test is not a multiple of eight bytes")
	}
	b[1] = uint8(len(b)/8 - 1)
	return header{60, b}
}

func mark(o pdm.Option) []byte { return o.AppendTo(nil) }

// padN is n bytes of padding in one option.
func padN(n int) []byte {
	if n == 1 {
		return []byte{0}
	}
	return append([]byte{1, uint8(n - 2)}, make([]byte, n-2)...)
}

// tlv is an option of unknown type with n bytes of data.
func tlv(n int) []byte { return append([]byte{0x1E, uint8(n)}, make([]byte, n)...) }

func udp() header         { return header{17, []byte{0x9C, 0x40, 0, 53, 0, 8, 0xBE, 0xEF}} }
func icmp(t uint8) header { return header{58, []byte{t, 0, 0xBE, 0xEF, 0, 1, 0, 2}} }

// packet joins headers behind an IPv6 header.
func packet(headers ...header) []byte {
	pkt := make([]byte, 40)
	pkt[0], pkt[7], pkt[8], pkt[24] = 0x60, 64, 0x20, 0x20
	link := 6
	for _, h := range headers {
		pkt[link] = h.proto
		link = len(pkt)
		pkt = append(pkt, h.b...)
	}
	binary.BigEndian.PutUint16(pkt[4:], uint16(len(pkt)-40))
	return pkt
}

func options() *rapid.Generator[pdm.Option] {
	return rapid.Custom(func(t *rapid.T) pdm.Option {
		return pdm.Option{
			PSNTP: rapid.Uint16().Draw(t, "psntp"), PSNLR: rapid.Uint16().Draw(t, "psnlr"),
			DeltaTLR: rapid.Uint16().Draw(t, "dtlr"), ScaleDTLR: rapid.Uint8().Draw(t, "scale dtlr"),
			DeltaTLS: rapid.Uint16().Draw(t, "dtls"), ScaleDTLS: rapid.Uint8().Draw(t, "scale dtls"),
		}
	})
}

// destinations draws Destination Options headers with any options but PDM, and
// any padding.
func destinations() *rapid.Generator[header] {
	return rapid.Custom(func(t *rapid.T) header {
		var opts [][]byte
		size := 2
		for range rapid.IntRange(0, 10).Draw(t, "options") {
			o := rapid.OneOf(
				rapid.Just(padN(1)),
				rapid.Map(rapid.IntRange(2, 7), padN),
				rapid.Map(rapid.IntRange(0, 40), tlv),
			).Draw(t, "option")
			opts = append(opts, o)
			size += len(o)
		}
		if rest := -size & 7; rest != 0 {
			opts = append(opts, padN(rest))
		}
		return dest(opts...)
	})
}

// packets draws IPv6 packets with any legal order of extension headers, none of
// them with PDM.
func packets() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		var hs []header
		if rapid.Bool().Draw(t, "hop by hop") {
			hs = append(hs, hopByHop())
		}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			hs = append(hs, rapid.OneOf(
				destinations(), destinations(), destinations(),
				rapid.Just(routing()), rapid.Just(fragment(0)), rapid.Just(fragment(100)), rapid.Just(auth()),
			).Draw(t, "header"))
		}
		hs = append(hs, rapid.SampledFrom([]header{udp(), udp(), udp(), icmp(128), icmp(135), esp(), {59, nil}}).Draw(t, "upper"))
		pkt := packet(hs...)
		return append(pkt, rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "trailer")...)
	})
}
