package capture

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/internal/flow"
)

// tunnelSet is the encapsulations whose inner flows are counted, a bit for each.
type tunnelSet uint8

const allTunnels tunnelSet = 1<<flow.TunnelVXLAN | 1<<flow.TunnelGeneve | 1<<flow.TunnelGRE | 1<<flow.TunnelIPIP

func (s tunnelSet) has(t flow.Tunnel) bool { return s&(1<<t) != 0 }

// UDP destination ports of the tunnels (RFC 7348, RFC 8926).
const (
	portVXLAN  = 4789
	portGeneve = 6081
)

// enter replaces the packet by the one inside, if it is in one of the tunnels
// and can be read. Of fragments nothing is taken off.
func (p *parsed) enter(outer *dissector, tunnels tunnelSet) {
	if p.fragment != fragmentNone {
		return
	}
	d := *outer
	d.pos = p.payloadAt
	tunnel, etherType, vni, ok := d.tunnelHeader(p)
	if !ok || !tunnels.has(tunnel) {
		return
	}
	if etherType == typeTEB {
		if etherType, ok = d.innerEthernet(); !ok {
			return
		}
	}
	if etherType != typeIPv4 && etherType != typeIPv6 {
		return
	}
	var inner parsed
	if d.ip(&inner, etherType) != counted {
		return
	}
	inner.VLAN, inner.InnerVLAN = p.VLAN, p.InnerVLAN
	inner.Tunnel, inner.vni = tunnel, vni
	*p = inner
}

// tunnelHeader moves behind the header of a tunnel, if there is one.
func (d *dissector) tunnelHeader(p *parsed) (tunnel flow.Tunnel, etherType uint16, vni uint32, ok bool) {
	switch {
	case p.Proto == protoIPIP:
		return flow.TunnelIPIP, typeIPv4, 0, true
	case p.Proto == protoIPv6:
		return flow.TunnelIPIP, typeIPv6, 0, true
	case p.Proto == protoGRE:
		etherType, vni, ok = d.gre()
		return flow.TunnelGRE, etherType, vni, ok
	case p.Proto == protoUDP && p.DstPort == portVXLAN:
		vni, ok = d.vxlan()
		return flow.TunnelVXLAN, typeTEB, vni, ok
	case p.Proto == protoUDP && p.DstPort == portGeneve:
		etherType, vni, ok = d.geneve()
		return flow.TunnelGeneve, etherType, vni, ok
	}
	return flow.TunnelNone, 0, 0, false
}

// gre reads version 0 with checksum, key and sequence number (RFC 2784, 2890);
// routing (RFC 1701) is not read. The key stands for the network.
func (d *dissector) gre() (etherType uint16, key uint32, ok bool) {
	const checksum, routing, hasKey, sequence, version = 0x8000, 0x4000, 0x2000, 0x1000, 0x0007
	b, ok := d.take(4)
	if !ok {
		return 0, 0, false
	}
	flags := binary.BigEndian.Uint16(b)
	if flags&(routing|version) != 0 {
		return 0, 0, false
	}
	etherType = binary.BigEndian.Uint16(b[2:])
	if flags&checksum != 0 {
		if _, ok = d.take(4); !ok {
			return 0, 0, false
		}
	}
	if flags&hasKey != 0 {
		if b, ok = d.take(4); !ok {
			return 0, 0, false
		}
		key = binary.BigEndian.Uint32(b)
	}
	if flags&sequence != 0 {
		_, ok = d.take(4)
	}
	return etherType, key, ok
}

// vxlan wants the I flag: without it the VNI is not valid (RFC 7348, 5).
func (d *dissector) vxlan() (vni uint32, ok bool) {
	b, ok := d.take(8)
	if !ok || b[0]&0x08 == 0 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b[4:]) >> 8, true
}

// geneve skips the options of version 0 (RFC 8926, 3.4).
func (d *dissector) geneve() (etherType uint16, vni uint32, ok bool) {
	b, ok := d.take(8)
	if !ok || b[0]>>6 != 0 {
		return 0, 0, false
	}
	if _, ok = d.take(int(b[0]&0x3f) * 4); !ok {
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:]) >> 8, true
}

// innerEthernet skips the header of an inner frame and up to two tags, which
// are not recorded.
func (d *dissector) innerEthernet() (etherType uint16, ok bool) {
	b, ok := d.take(etherLen)
	if !ok {
		return 0, false
	}
	etherType = binary.BigEndian.Uint16(b[12:])
	for tags := 0; tags < vlanTagsMax && (etherType == typeVLAN || etherType == typeQinQ); tags++ {
		if b, ok = d.take(tagLen); !ok {
			return 0, false
		}
		etherType = binary.BigEndian.Uint16(b[2:])
	}
	return etherType, true
}
