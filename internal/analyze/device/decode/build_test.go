package decode

import (
	"encoding/binary"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// gathered is an Output that remembers.
type gathered struct {
	flows   []flow.Delta
	ifaces  [][2]uint32
	names   map[uint32]string
	rate    float64
	counted map[Reason]uint64
}

func newGathered() *gathered {
	return &gathered{names: map[uint32]string{}, counted: map[Reason]uint64{}}
}

func (g *gathered) Flow(d *flow.Delta, iface, other uint32) {
	g.flows = append(g.flows, *d)
	g.ifaces = append(g.ifaces, [2]uint32{iface, other})
}
func (g *gathered) Interface(index uint32, name string) { g.names[index] = name }
func (g *gathered) Sampled(n float64)                   { g.rate = n }
func (g *gathered) Count(why Reason, n uint64)          { g.counted[why] += n }

// buffer builds datagrams.
type buffer []byte

func (b buffer) u8(v ...uint8) buffer { return append(b, v...) }
func (b buffer) u16(v ...uint16) buffer {
	for _, n := range v {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

func (b buffer) u32(v ...uint32) buffer {
	for _, n := range v {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
func (b buffer) bytes(v []byte) buffer { return append(b, v...) }

// set is one of NetFlow 9 or IPFIX.
func set(id uint16, body buffer) buffer {
	return buffer{}.u16(id, uint16(len(body)+4)).bytes(body)
}

var exported = time.Unix(1_800_000_000, 0)

func ipfixOf(domain, sequence uint32, sets ...buffer) buffer {
	b := buffer{}.u16(10, 0).u32(uint32(exported.Unix()), sequence, domain)
	for _, s := range sets {
		b = b.bytes(s)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

func v9Of(source, sequence uint32, uptime time.Duration, sets ...buffer) buffer {
	b := buffer{}.u16(9, uint16(len(sets))).u32(uint32(uptime/time.Millisecond), uint32(exported.Unix()), sequence, source)
	for _, s := range sets {
		b = b.bytes(s)
	}
	return b
}

func v5Of(sequence uint32, uptime time.Duration, sampling uint16, records ...buffer) buffer {
	b := buffer{}.u16(5, uint16(len(records))).u32(uint32(uptime/time.Millisecond), uint32(exported.Unix()), 0, sequence).u8(0, 0).u16(sampling)
	for _, r := range records {
		b = b.bytes(r)
	}
	return b
}

func v5Record(packets, bytes uint32, first, last time.Duration) buffer {
	return buffer{}.u8(10, 0, 0, 1, 192, 0, 2, 80, 0, 0, 0, 0).u16(3, 4).u32(packets, bytes, uint32(first/time.Millisecond), uint32(last/time.Millisecond)).
		u16(2000, 443).u8(0, 0x1b, 6, 0x20).u16(0, 0).u8(24, 24).u16(0)
}

// template of IPv4 flows: addresses, ports, protocol, packets and bytes of 4 bytes.
func simpleTemplate(id uint16) buffer {
	return buffer{}.u16(id, 7, 8, 4, 12, 4, 7, 2, 11, 2, 4, 1, 2, 4, 1, 4)
}

func simpleRecord(sport uint16, packets, bytes uint32) buffer {
	return buffer{}.u8(10, 0, 0, 1, 192, 0, 2, 80).u16(sport, 443).u8(17).u32(packets, bytes)
}

// sample is one of sFlow with a raw header.
func sample(rate, source, in, out, drops uint32, frame []byte, length int) buffer {
	padded := (len(frame) + 3) &^ 3
	raw := buffer{}.u32(1, uint32(length)+4, 4, uint32(len(frame))).bytes(frame).bytes(make([]byte, padded-len(frame)))
	body := buffer{}.u32(7, source, rate, 1000, drops, in, out, 1).u32(1, uint32(len(raw))).bytes(raw)
	return buffer{}.u32(1, uint32(len(body))).bytes(body)
}

func sflowOf(sequence uint32, uptime time.Duration, samples ...buffer) buffer {
	b := buffer{}.u32(5, 1).u8(192, 0, 2, 9).u32(0, sequence, uint32(uptime/time.Millisecond), uint32(len(samples)))
	for _, s := range samples {
		b = b.bytes(s)
	}
	return b
}
