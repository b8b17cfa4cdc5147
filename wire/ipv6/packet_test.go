package ipv6_test

import (
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// unassigned are option types that no dissector looks into (RFC 4727 section 3.7).
var unassigned = []byte{0x1e, 0x3e, 0x5e, 0x7e, 0x9e, 0xbe, 0xde, 0xfe}

// options draws options without alignment, of lengths that leave any padding.
func options() *rapid.Generator[[]packet.Option] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) packet.Option {
		return packet.Option{
			Type: rapid.SampledFrom(unassigned).Draw(t, "type"),
			Data: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data"),
		}
	}), 0, 9)
}

// packets draws whole IPv6 packets with any legal order of extension headers.
func packets() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		b := packet.IPv6("2001:db8::1", "2001:db8::2")
		if rapid.Bool().Draw(t, "hop by hop") {
			b = b.HopByHop(options().Draw(t, "options")...)
		}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			switch rapid.IntRange(0, 5).Draw(t, "header") {
			case 0:
				b = b.Routing("2001:db8::3")
			case 1:
				b = b.Fragment(0, false, 1)
			case 2:
				b = b.AH(1, 1, 12)
			default:
				b = b.DestOpts(options().Draw(t, "options")...)
			}
		}
		return b.UDP(40000, 40001).Payload(rapid.IntRange(0, 40).Draw(t, "payload")).Bytes()
	})
}

// tlvs draws options to insert, with any alignment.
func tlvs() *rapid.Generator[ipv6.TLV] {
	return rapid.Custom(func(t *rapid.T) ipv6.TLV {
		x := rapid.SampledFrom([]int{0, 1, 2, 4, 8}).Draw(t, "x")
		return ipv6.TLV{
			Type:  rapid.SampledFrom(unassigned).Draw(t, "type"),
			Data:  rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "data"),
			Align: ipv6.Align{X: x, Y: rapid.IntRange(0, max(0, x-1)).Draw(t, "y")},
		}
	})
}
