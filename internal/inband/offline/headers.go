package offline

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// step reads what data begins with, and returns what follows; no step: nothing that matters does.
type step func(w *walk, data []byte) (step, []byte)

// walk finds the IPv6 headers of a frame, outer ones first.
type walk struct {
	found func(pkt []byte) // from an IPv6 header to the end of its packet
}

// links are the steps for what frames begin with.
var links = map[capfile.LinkType]step{
	capfile.LinkEthernet: ethernet, capfile.LinkPPP: ppp,
	capfile.LinkNull: behind(4, ip), capfile.LinkLoop: behind(4, ip),
	capfile.LinkRaw: ip, capfile.LinkRawLinux: ip, capfile.LinkRawOpenBSD: ip, capfile.LinkIPv4: ipv4, capfile.LinkIPv6: ipv6Packet,
	capfile.LinkLinuxCooked: typed(14, 16), capfile.LinkCookedV2: typed(0, 20),
}

// headers calls found for each IPv6 header; it reports whether the link type is known.
func headers(link capfile.LinkType, data []byte, found func(pkt []byte)) bool {
	next, known := links[link]
	for w := (&walk{found: found}); next != nil; {
		next, data = next(w, data)
	}
	return known
}

// behind goes on with next after n bytes.
func behind(n int, next step) step {
	return func(_ *walk, data []byte) (step, []byte) {
		if len(data) < n {
			return nil, nil
		}
		return next, data[n:]
	}
}

// typed goes on after n bytes, with what the EtherType in them says.
func typed(at, n int) step {
	return func(_ *walk, data []byte) (step, []byte) {
		if len(data) < n {
			return nil, nil
		}
		return byEtherType(binary.BigEndian.Uint16(data[at:])), data[n:]
	}
}

func ethernet(w *walk, data []byte) (step, []byte) { return typed(12, 14)(w, data) }

func byEtherType(t uint16) step {
	switch t {
	case 0x0800:
		return ipv4
	case 0x86dd:
		return ipv6Packet
	case 0x8100, 0x88a8, 0x9100: // VLAN tags
		return typed(2, 4)
	case 0x8847, 0x8848:
		return mpls
	case 0x8864: // PPPoE
		return behind(6, ppp)
	case 0x6558: // Ethernet in GRE or Geneve
		return ethernet
	}
	return nil
}

// mpls ends with the label that has the bottom-of-stack bit; IP is assumed to follow.
func mpls(_ *walk, data []byte) (step, []byte) {
	const bottom = 1
	switch {
	case len(data) < 4:
		return nil, nil
	case data[2]&bottom != 0:
		return ip, data[4:]
	}
	return mpls, data[4:]
}

// ppp may begin with address and control of HDLC.
func ppp(_ *walk, data []byte) (step, []byte) {
	if len(data) >= 2 && data[0] == 0xff && data[1] == 0x03 {
		data = data[2:]
	}
	if len(data) < 2 {
		return nil, nil
	}
	switch binary.BigEndian.Uint16(data) {
	case 0x0021:
		return ipv4, data[2:]
	case 0x0057:
		return ipv6Packet, data[2:]
	case 0x0281: // MPLS
		return mpls, data[2:]
	}
	return nil, nil
}

// ip is a header whose version nothing in front of it tells.
func ip(_ *walk, data []byte) (step, []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	switch data[0] >> 4 {
	case 4:
		return ipv4, data
	case 6:
		return ipv6Packet, data
	}
	return nil, nil
}

func ipv4(_ *walk, data []byte) (step, []byte) {
	const headerMin, offsetMask = 20, 0x1fff
	if len(data) < headerMin {
		return nil, nil
	}
	header, total := int(data[0]&0xf)*4, int(binary.BigEndian.Uint16(data[2:]))
	if total == 0 { // a burst that the kernel had not divided yet
		total = len(data)
	}
	if header < headerMin || header > min(total, len(data)) || binary.BigEndian.Uint16(data[6:])&offsetMask != 0 {
		return nil, nil
	}
	return upper(data[9], data[header:min(total, len(data))])
}

func ipv6Packet(w *walk, data []byte) (step, []byte) {
	const header = 40
	if len(data) < header { // reported as malformed
		w.found(data)
		return nil, nil
	}
	if size := int(binary.BigEndian.Uint16(data[4:])); size != 0 {
		data = data[:min(header+size, len(data))]
	}
	w.found(data)
	return upper(data[6], data[header:])
}

// upper goes on behind extension headers, of which AH is in IPv4, too.
func upper(proto uint8, data []byte) (step, []byte) {
	for ipv6.IsExtension(proto) {
		e, err := ipv6.ParseExtension(proto, data)
		if err != nil || e.Size > len(data) || e.FragmentOffset != 0 {
			return nil, nil
		}
		proto, data = e.Next, data[e.Size:]
	}
	return byProtocol(proto), data
}

func byProtocol(proto uint8) step {
	switch proto {
	case 4:
		return ipv4
	case 41:
		return ipv6Packet
	case 47:
		return gre
	case 137:
		return mpls
	case protoUDP:
		return udp
	}
	return nil
}

// gre has optional words, each with a bit.
func gre(_ *walk, data []byte) (step, []byte) {
	const checksum, key, sequence, routing = 0x8000, 0x2000, 0x1000, 0x4000
	if len(data) < 4 {
		return nil, nil
	}
	flags, size := binary.BigEndian.Uint16(data), 4
	for _, bit := range []uint16{checksum, key, sequence} {
		if flags&bit != 0 {
			size += 4
		}
	}
	if flags&routing != 0 || len(data) < size {
		return nil, nil
	}
	return byEtherType(binary.BigEndian.Uint16(data[2:])), data[size:]
}

// udp knows tunnels by the port that they are sent to.
func udp(_ *walk, data []byte) (step, []byte) {
	const header = 8
	if len(data) < header {
		return nil, nil
	}
	switch binary.BigEndian.Uint16(data[2:]) {
	case 4789: // VXLAN
		return behind(8, ethernet), data[header:]
	case 6081:
		return geneve, data[header:]
	case 2152:
		return gtp, data[header:]
	}
	return nil, nil
}

// geneve has options, whose length is in words.
func geneve(w *walk, data []byte) (step, []byte) {
	const header, lengthMask = 8, 0x3f
	if len(data) < header {
		return nil, nil
	}
	return typed(2, header+4*int(data[0]&lengthMask))(w, data)
}

// gtp is version 1 with a user's packet. Each extension header ends with the type of the next one.
func gtp(_ *walk, data []byte) (step, []byte) {
	const header, optional, packet = 8, 4, 0xff
	const more, present = 0x04, 0x07
	if len(data) < header || data[0]>>5 != 1 || data[1] != packet {
		return nil, nil
	}
	end := header
	if data[0]&present != 0 {
		end += optional
	}
	for extended := data[0]&more != 0; extended && end <= len(data) && data[end-1] != 0; {
		if end == len(data) || data[end] == 0 {
			return nil, nil
		}
		end += 4 * int(data[end])
	}
	if end > len(data) {
		return nil, nil
	}
	return ip, data[end:]
}
