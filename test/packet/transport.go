package packet

import "encoding/binary"

var tcp = &spec{
	name: "TCP", proto: ProtoTCP,
	lengths: func(head []byte, _ int) { head[12] |= byte(len(head)/4) << 4 },
	sum:     &field{16, 2},
	compute: func(c covered) uint64 { return uint64(c.transportSum()) },
}

var udp = &spec{
	name: "UDP", proto: ProtoUDP,
	lengths: func(head []byte, payload int) { binary.BigEndian.PutUint16(head[4:], uint16(8+payload)) },
	sum:     &field{6, 2},
	compute: func(c covered) uint64 { return uint64(nonZero(c.transportSum())) },
}

// udpLite covers the whole packet by its checksum (coverage 0, RFC 3828).
var udpLite = &spec{
	name: "UDP-Lite", proto: ProtoUDPLite,
	sum:     &field{6, 2},
	compute: func(c covered) uint64 { return uint64(nonZero(c.transportSum())) },
}

var sctp = &spec{
	name: "SCTP", proto: ProtoSCTP,
	sum:     &field{8, 4},
	compute: func(c covered) uint64 { return uint64(c.crc32c()) },
}

var dccp = &spec{
	name: "DCCP", proto: ProtoDCCP,
	lengths: func(head []byte, _ int) { head[4] = byte(len(head) / 4) },
	sum:     &field{6, 2},
	compute: func(c covered) uint64 { return uint64(c.transportSum()) },
}

var icmp = &spec{
	name: "ICMP", proto: ProtoICMP,
	sum:     &field{2, 2},
	compute: func(c covered) uint64 { return uint64(internetSum(c.head, c.payload)) },
}

var icmpv6 = &spec{
	name: "ICMPv6", proto: ProtoICMPv6,
	sum:     &field{2, 2},
	compute: func(c covered) uint64 { return uint64(c.transportSum()) },
}

var esp = &spec{name: "ESP", proto: ProtoESP}

// TCP flags as on the wire (RFC 9293, AE from RFC 9768).
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
	AE
)

// TCP adds a TCP header with ACK set and a window of 65535.
func (b Builder) TCP(sport, dport uint16) Builder {
	head := append(ports(sport, dport), make([]byte, 16)...)
	head[13] = ACK
	binary.BigEndian.PutUint16(head[14:], 0xffff)
	return b.add(tcp, head)
}

// Flags sets the twelve bits of TCP control bits, reserved ones included.
func (b Builder) Flags(v uint16) Builder {
	return b.change("TCP flags", func(l *layer) { binary.BigEndian.PutUint16(l.head[12:], v&0x0fff) }, tcp)
}

// Seq sets the TCP sequence number.
func (b Builder) Seq(v uint32) Builder {
	return b.change("sequence number", func(l *layer) { binary.BigEndian.PutUint32(l.head[4:], v) }, tcp)
}

// Ack sets the TCP acknowledgment number.
func (b Builder) Ack(v uint32) Builder {
	return b.change("acknowledgment number", func(l *layer) { binary.BigEndian.PutUint32(l.head[8:], v) }, tcp)
}

// DataOffset overrides the length of a TCP or DCCP header, in units of 4 bytes.
func (b Builder) DataOffset(words uint8) Builder {
	return b.change("data offset", func(l *layer) {
		tcpHeader := l.spec == tcp
		l.patches = append(l.patches, func(head []byte) {
			if tcpHeader {
				head[12] = head[12]&0x0f | words<<4
			} else {
				head[4] = words
			}
		})
	}, tcp, dccp)
}

// UDP adds a UDP header.
func (b Builder) UDP(sport, dport uint16) Builder {
	return b.add(udp, append(ports(sport, dport), 0, 0, 0, 0))
}

// UDPLength overrides the length field of a UDP header.
func (b Builder) UDPLength(v uint16) Builder {
	return b.patch("UDP length", func(head []byte) { binary.BigEndian.PutUint16(head[4:], v) }, udp)
}

// UDPLite adds a UDP-Lite header (RFC 3828).
func (b Builder) UDPLite(sport, dport uint16) Builder {
	return b.add(udpLite, append(ports(sport, dport), 0, 0, 0, 0))
}

// SCTP adds an SCTP common header (RFC 9260). For a chunk see Data.
func (b Builder) SCTP(sport, dport uint16, verificationTag uint32) Builder {
	head := binary.BigEndian.AppendUint32(ports(sport, dport), verificationTag)
	return b.add(sctp, append(head, 0, 0, 0, 0))
}

// Data adds an SCTP DATA chunk of one whole message of n bytes.
func (b Builder) Data(tsn uint32, n int) Builder {
	chunk := []byte{0, 3}
	chunk = binary.BigEndian.AppendUint16(chunk, uint16(16+n))
	chunk = binary.BigEndian.AppendUint32(chunk, tsn)
	chunk = append(chunk, make([]byte, 8+(n+3)/4*4)...)
	return b.Raw(chunk)
}

// DCCP adds a DCCP-Data header with a 48-bit sequence number (RFC 4340, 5).
func (b Builder) DCCP(sport, dport uint16) Builder {
	head := append(ports(sport, dport), make([]byte, 12)...)
	head[8] = 2<<1 | 1 // type DCCP-Data, extended sequence numbers
	head[15] = 1
	return b.add(dccp, head)
}

// Echo types for ICMP and ICMPv6.
const (
	EchoRequest   = 8
	EchoReply     = 0
	EchoRequestV6 = 128
	EchoReplyV6   = 129
)

// ICMP adds the 8 bytes that every ICMP message begins with. For an echo, id
// and seq are identifier and sequence number; else the two halves of bytes 4–7.
func (b Builder) ICMP(typ, code uint8, id, seq uint16) Builder {
	return b.add(icmp, icmpHead(typ, code, id, seq))
}

// ICMPv6 adds the 8 bytes of an ICMPv6 message, as ICMP does.
func (b Builder) ICMPv6(typ, code uint8, id, seq uint16) Builder {
	return b.add(icmpv6, icmpHead(typ, code, id, seq))
}

func icmpHead(typ, code uint8, id, seq uint16) []byte {
	head := []byte{typ, code, 0, 0}
	head = binary.BigEndian.AppendUint16(head, id)
	return binary.BigEndian.AppendUint16(head, seq)
}

// ESP adds an Encapsulating Security Payload header (RFC 4303); what follows
// stands for the encrypted part.
func (b Builder) ESP(spi, seq uint32) Builder {
	head := binary.BigEndian.AppendUint32(nil, spi)
	return b.add(esp, binary.BigEndian.AppendUint32(head, seq))
}

func ports(sport, dport uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, sport), dport)
}
