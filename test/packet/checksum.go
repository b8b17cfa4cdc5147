package packet

import (
	"encoding/binary"
	"hash/crc32"
)

// internetSum is the checksum of RFC 1071 over the parts, of which all but the
// last have even length.
func internetSum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for ; len(p) >= 2; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
		if len(p) == 1 {
			sum += uint32(p[0]) << 8
		}
		sum = sum>>16 + sum&0xffff
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum)
}

// transportSum covers pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1), header and
// payload. Without an IP header it covers no pseudo-header.
func (c covered) transportSum() uint16 {
	return internetSum(c.pseudoHeader(), c.head, c.payload)
}

func (c covered) pseudoHeader() []byte {
	length := uint32(len(c.head) + len(c.payload))
	switch {
	case c.ip == nil:
		return nil
	case c.ip.spec == ipv4:
		h := append([]byte(nil), c.ip.head[12:20]...)
		return binary.BigEndian.AppendUint16(append(h, 0, c.proto), uint16(length))
	default:
		h := append([]byte(nil), c.ip.head[8:40]...)
		return append(binary.BigEndian.AppendUint32(h, length), 0, 0, 0, c.proto)
	}
}

// nonZero is how a computed UDP checksum of 0 is sent (RFC 768).
func nonZero(sum uint16) uint16 {
	if sum == 0 {
		return 0xffff
	}
	return sum
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c is the checksum of SCTP (RFC 9260, appendix A), which is sent least
// significant byte first.
func (c covered) crc32c() uint32 {
	sum := crc32.Update(crc32.Checksum(c.head, castagnoli), castagnoli, c.payload)
	return binary.BigEndian.Uint32(binary.LittleEndian.AppendUint32(nil, sum))
}
