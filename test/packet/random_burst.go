package packet

import "pgregory.net/rapid"

// RandomBurst draws sound GSO frames: TCP or UDP behind any number of tags,
// extension headers and tunnels.
func RandomBurst() *rapid.Generator[Burst] {
	return rapid.Custom(func(t *rapid.T) Burst {
		b := Eth()
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "tags") {
			b = b.VLAN(rapid.Uint16().Draw(t, "tci"))
		}
		for range rapid.SampledFrom([]int{0, 0, 1, 1, 2, 3}).Draw(t, "tunnels") {
			b = burstTunnel(t, burstIP(t, b))
		}
		b = burstIP(t, b)
		if rapid.Bool().Draw(t, "TCP") {
			b = b.TCP(1000, 2000).Options(make([]byte, rapid.SampledFrom([]int{0, 12, 40}).Draw(t, "options"))...)
		} else {
			b = b.UDP(1000, rapid.SampledFrom([]uint16{53, 443, PortVXLAN, PortGeneve}).Draw(t, "port"))
		}
		size := rapid.IntRange(100, 1400).Draw(t, "size")
		// A test run takes frames of less than a page.
		return b.Payload(rapid.IntRange(size+1, 2900).Draw(t, "payload")).Burst(size)
	})
}

// burstIP adds an IP header that is not one of a fragment.
func burstIP(t *rapid.T, b Builder) Builder {
	if rapid.Bool().Draw(t, "IPv4") {
		b = b.IPv4(randomAddr(t, 4), randomAddr(t, 4))
		if rapid.IntRange(0, 3).Draw(t, "options?") == 0 {
			b = b.Options(make([]byte, rapid.IntRange(1, 40).Draw(t, "options"))...)
		}
		return b
	}
	b = b.IPv6(randomAddr(t, 6), randomAddr(t, 6))
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "extensions") {
		switch rapid.IntRange(0, 3).Draw(t, "extension") {
		case 0:
			b = b.HopByHop()
		case 1:
			b = b.DestOpts(Option{Type: 1, Data: make([]byte, rapid.IntRange(0, 30).Draw(t, "length"))})
		case 2:
			b = b.Routing(b6)
		default:
			b = b.AH(1, 1, 12)
		}
	}
	return b
}

// burstTunnel adds the header of a tunnel, with Ethernet inside or not.
func burstTunnel(t *rapid.T, b Builder) Builder {
	vni := rapid.Uint32Range(0, 1<<24-1).Draw(t, "VNI")
	switch rapid.IntRange(0, 5).Draw(t, "encapsulation") {
	case 0:
		return b.UDP(50000, rapid.SampledFrom([]uint16{PortVXLAN, 8472}).Draw(t, "VXLAN port")).VXLAN(vni).Eth()
	case 1:
		return b.UDP(50000, PortVXLAN).VXLAN(vni).Eth().VLAN(9)
	case 2:
		return b.UDP(50000, PortGeneve).Geneve(vni).Options(make([]byte, 4*rapid.IntRange(0, 4).Draw(t, "options"))...)
	case 3:
		return b.UDP(50000, PortGeneve).Geneve(vni).Eth()
	case 4:
		return b.GRE(rapid.Uint16().Draw(t, "flags")&0xb000, vni, 1)
	default:
		return b
	}
}
