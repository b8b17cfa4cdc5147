package packet

import (
	"net/netip"

	"pgregory.net/rapid"
)

// Random draws Ethernet frames for property tests: mostly packets that are
// nearly right, since random bytes rarely get past an EtherType. A third are
// sound, a third have bytes changed, a third are cut or grown as well.
func Random() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		data := randomPacket(t, Eth()).Bytes()
		damage := rapid.IntRange(0, 2).Draw(t, "damage")
		if damage > 0 {
			damageHeaders(t, data)
		}
		if damage > 1 {
			return resize(t, data)
		}
		return data
	})
}

// damageHeaders changes a few bytes, rather in the headers than behind them.
func damageHeaders(t *rapid.T, data []byte) {
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		at := rapid.IntRange(0, min(len(data), 120)-1).Draw(t, "at")
		data[at] = rapid.Byte().Draw(t, "byte")
	}
}

func resize(t *rapid.T, data []byte) []byte {
	n := rapid.IntRange(0, len(data)+20).Draw(t, "length")
	for len(data) < n {
		data = append(data, rapid.Byte().Draw(t, "trailer"))
	}
	return data[:n]
}

// randomPacket adds to b tags, an IP header and what follows.
func randomPacket(t *rapid.T, b Builder) Builder {
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 3}).Draw(t, "tags") {
		tci := rapid.Uint16().Draw(t, "tci")
		if rapid.Bool().Draw(t, "service tag") {
			b = b.QinQ(tci)
		} else {
			b = b.VLAN(tci)
		}
	}
	if rapid.IntRange(0, 30).Draw(t, "not IP") == 0 {
		return b.ARP(a4, b4)
	}
	return randomIP(t, b, 0)
}

// tunnelsDeep bounds the packets inside packets.
const tunnelsDeep = 2

func randomIP(t *rapid.T, b Builder, depth int) Builder {
	if rapid.Bool().Draw(t, "IPv6") {
		b = randomExtensions(t, randomIPv6(t, b))
	} else {
		b = randomIPv4(t, b)
	}
	if depth < tunnelsDeep && rapid.IntRange(0, 3).Draw(t, "tunnel") == 0 {
		return randomTunnel(t, b, depth)
	}
	return randomTransport(t, b)
}

func randomIPv4(t *rapid.T, b Builder) Builder {
	b = b.IPv4(randomAddr(t, 4), randomAddr(t, 4)).
		TTL(rapid.Uint8().Draw(t, "TTL")).TOS(rapid.Uint8().Draw(t, "TOS"))
	if rapid.IntRange(0, 3).Draw(t, "options?") == 0 {
		b = b.Options(make([]byte, rapid.IntRange(1, 40).Draw(t, "options"))...)
	}
	if rapid.IntRange(0, 5).Draw(t, "fragment?") == 0 {
		b = b.Frag(randomFragment(t))
	}
	if rapid.IntRange(0, 5).Draw(t, "AH?") == 0 {
		b = b.AH(1, 1, 4*rapid.IntRange(0, 9).Draw(t, "ICV"))
	}
	return b
}

// randomFragment is offset, more and an id out of few, so that fragments meet.
func randomFragment(t *rapid.T) (offset int, more bool, id uint16) {
	offset = 8 * rapid.SampledFrom([]int{0, 0, 1, 185, 8191}).Draw(t, "offset")
	return offset, rapid.Bool().Draw(t, "more"), rapid.Uint16Range(0, 3).Draw(t, "id")
}

func randomIPv6(t *rapid.T, b Builder) Builder {
	return b.IPv6(randomAddr(t, 6), randomAddr(t, 6)).
		TTL(rapid.Uint8().Draw(t, "hop limit")).TOS(rapid.Uint8().Draw(t, "class")).
		FlowLabel(rapid.Uint32Range(0, 1<<20-1).Draw(t, "label"))
}

func randomExtensions(t *rapid.T, b Builder) Builder {
	option := func() Option {
		return Option{Type: rapid.Uint8().Draw(t, "option"), Data: make([]byte, rapid.IntRange(0, 30).Draw(t, "length"))}
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 7, 8, 9}).Draw(t, "extensions") {
		switch rapid.IntRange(0, 7).Draw(t, "extension") {
		case 0:
			b = b.HopByHop(option())
		case 1:
			b = b.DestOpts(option(), option())
		case 2:
			b = b.Routing(b6)
		case 3:
			offset, more, id := randomFragment(t)
			b = b.Fragment(offset, more, uint32(id))
		case 4:
			b = b.AH(1, 1, 12)
		case 5:
			b = b.Mobility()
		case 6:
			b = b.HIP()
		case 7:
			b = b.Shim6(1)
		}
	}
	return b
}

func randomTunnel(t *rapid.T, b Builder, depth int) Builder {
	vni := rapid.Uint32Range(0, 1<<24-1).Draw(t, "VNI")
	inner := func(b Builder) Builder {
		for range rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "inner tags") {
			b = b.VLAN(9)
		}
		return randomIP(t, b, depth+1)
	}
	switch rapid.IntRange(0, 5).Draw(t, "encapsulation") {
	case 0:
		return inner(b.UDP(50000, PortVXLAN).VXLAN(vni).Eth())
	case 1:
		return inner(b.UDP(50000, PortGeneve).Geneve(vni).Options(make([]byte, rapid.IntRange(0, 16).Draw(t, "options"))...).Eth())
	case 2:
		return randomIP(t, b.UDP(50000, PortGeneve).Geneve(vni), depth+1)
	case 3:
		return inner(b.GRE(rapid.Uint16().Draw(t, "flags")&0xf000, vni, 1).Eth())
	case 4:
		return randomIP(t, b.GRE(rapid.Uint16().Draw(t, "flags")&0xb000, vni, 1), depth+1)
	default:
		return randomIP(t, b, depth+1)
	}
}

func randomTransport(t *rapid.T, b Builder) Builder {
	port := func() uint16 {
		return rapid.SampledFrom([]uint16{0, 1, 53, 443, PortVXLAN, PortGeneve, 65535}).Draw(t, "port")
	}
	switch rapid.IntRange(0, 9).Draw(t, "transport") {
	case 0, 1:
		b = b.TCP(port(), port()).Flags(rapid.Uint16().Draw(t, "flags")).
			Options(make([]byte, rapid.SampledFrom([]int{0, 12, 40}).Draw(t, "options"))...)
	case 2, 3:
		b = b.UDP(port(), port())
	case 4:
		b = b.UDPLite(port(), port())
	case 5:
		b = b.SCTP(port(), port(), 1)
	case 6:
		b = b.DCCP(port(), port())
	case 7:
		b = b.ICMP(rapid.Uint8Range(0, 15).Draw(t, "type"), 0, port(), 1)
	case 8:
		b = b.ICMPv6(rapid.Uint8Range(120, 140).Draw(t, "type"), 0, port(), 1)
	case 9: // content of no known protocol
	}
	return b.Payload(rapid.IntRange(0, 60).Draw(t, "payload"))
}

// randomAddr is one of few addresses, so that flows meet.
func randomAddr(t *rapid.T, version int) string {
	host := rapid.Uint8Range(1, 3).Draw(t, "host")
	if version == 4 {
		return netip.AddrFrom4([4]byte{10, 0, 0, host}).String()
	}
	return netip.AddrFrom16([16]byte{0xfd, 15: host}).String()
}
