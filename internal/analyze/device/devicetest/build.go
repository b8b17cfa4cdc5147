// Package devicetest builds datagrams of NetFlow, IPFIX and sFlow, right ones and wrong ones. Only tests use it.
package devicetest

import (
	"encoding/binary"
	"time"
)

// Buffer builds datagrams.
type Buffer []byte

// U8 adds numbers in network order.
func (b Buffer) U8(v ...uint8) Buffer { return append(b, v...) }

// U16 is U8 of 16 bits.
func (b Buffer) U16(v ...uint16) Buffer {
	for _, n := range v {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

// U32 is U8 of 32 bits.
func (b Buffer) U32(v ...uint32) Buffer {
	for _, n := range v {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// Bytes adds some.
func (b Buffer) Bytes(v []byte) Buffer { return append(b, v...) }

// Set is one of NetFlow 9 or IPFIX.
func Set(id uint16, body Buffer) Buffer {
	return Buffer{}.U16(id, uint16(len(body)+4)).Bytes(body)
}

// Exported is the time in headers.
var Exported = time.Unix(1_800_000_000, 0)

// IPFIX is a message.
func IPFIX(domain, sequence uint32, sets ...Buffer) Buffer {
	b := Buffer{}.U16(10, 0).U32(uint32(Exported.Unix()), sequence, domain)
	for _, s := range sets {
		b = b.Bytes(s)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// NetFlow9 is a datagram.
func NetFlow9(source, sequence uint32, uptime time.Duration, sets ...Buffer) Buffer {
	b := Buffer{}.U16(9, uint16(len(sets))).U32(uint32(uptime/time.Millisecond), uint32(Exported.Unix()), sequence, source)
	for _, s := range sets {
		b = b.Bytes(s)
	}
	return b
}

// NetFlow5 is a datagram.
func NetFlow5(sequence uint32, uptime time.Duration, sampling uint16, records ...Buffer) Buffer {
	b := Buffer{}.U16(5, uint16(len(records))).U32(uint32(uptime/time.Millisecond), uint32(Exported.Unix()), 0, sequence).U8(0, 0).U16(sampling)
	for _, r := range records {
		b = b.Bytes(r)
	}
	return b
}

// Record5 is a record of NetFlow 5: from 10.0.0.1 port 2000 to 192.0.2.80 port 443.
func Record5(packets, bytes uint32, first, last time.Duration) Buffer {
	return Buffer{}.U8(10, 0, 0, 1, 192, 0, 2, 80, 0, 0, 0, 0).U16(3, 4).U32(packets, bytes, uint32(first/time.Millisecond), uint32(last/time.Millisecond)).
		U16(2000, 443).U8(0, 0x1b, 6, 0x20).U16(0, 0).U8(24, 24).U16(0)
}

// Template of IPv4 flows: addresses, ports, protocol, packets and bytes of 4 bytes.
func Template(id uint16) Buffer {
	return Buffer{}.U16(id, 7, 8, 4, 12, 4, 7, 2, 11, 2, 4, 1, 2, 4, 1, 4)
}

// Record is one by Template.
func Record(sport uint16, packets, bytes uint32) Buffer {
	return Buffer{}.U8(10, 0, 0, 1, 192, 0, 2, 80).U16(sport, 443).U8(17).U32(packets, bytes)
}

// Sample is one of sFlow with a raw header.
func Sample(rate, source, in, out, drops uint32, frame []byte, length int) Buffer {
	padded := (len(frame) + 3) &^ 3
	raw := Buffer{}.U32(1, uint32(length)+4, 4, uint32(len(frame))).Bytes(frame).Bytes(make([]byte, padded-len(frame)))
	body := Buffer{}.U32(7, source, rate, 1000, drops, in, out, 1).U32(1, uint32(len(raw))).Bytes(raw)
	return Buffer{}.U32(1, uint32(len(body))).Bytes(body)
}

// SFlow is a datagram.
func SFlow(sequence uint32, uptime time.Duration, samples ...Buffer) Buffer {
	b := Buffer{}.U32(5, 1).U8(192, 0, 2, 9).U32(0, sequence, uint32(uptime/time.Millisecond), uint32(len(samples)))
	for _, s := range samples {
		b = b.Bytes(s)
	}
	return b
}

// Repeat adds the same numbers n times.
func (b Buffer) Repeat(n int, v ...uint16) Buffer {
	for range n {
		b = b.U16(v...)
	}
	return b
}

// At is a datagram that was exported at another time.
func At(b Buffer, at time.Time) Buffer {
	where := map[uint16]int{5: 8, 9: 8, 10: 4}[binary.BigEndian.Uint16(b)]
	b = append(Buffer{}, b...)
	binary.BigEndian.PutUint32(b[where:], uint32(at.Unix()))
	return b
}
