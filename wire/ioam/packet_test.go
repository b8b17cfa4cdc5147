package ioam_test

import (
	"encoding/binary"
	"slices"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// supported are the fields that the kernel and this package know: 13 bits.
const supported = ioam.DefinedFields

// traceTypes are all combinations of the supported bits.
func traceTypes() []ioam.TraceType {
	all := make([]ioam.TraceType, 1<<13)
	for i := range all {
		all[i] = ioam.TraceType(i>>1)<<12 | ioam.TraceType(i&1)<<1
	}
	return all
}

func udp() packet.Builder {
	return packet.IPv6("2001:db8::1", "2001:db8::2").UDP(40000, 53).Payload(20)
}

// body draws a legal body of any kind.
func body() *rapid.Generator[ioam.Body] {
	return rapid.Custom(func(t *rapid.T) ioam.Body {
		ns := rapid.Uint16().Draw(t, "namespace")
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return filledTrace(t, ns, false)
		case 1:
			return filledTrace(t, ns, true)
		case 2:
			return &ioam.POT{Namespace: ns, PktID: rapid.Uint64().Draw(t, "pktid"), Cumulative: rapid.Uint64().Draw(t, "cumulative")}
		case 3:
			e := &ioam.E2E{Namespace: ns, Type: rapid.SampledFrom([]ioam.E2EType{0, 0x8000, 0x4000, 0x3000, 0xB000, 0x7000, 0x1000}).Draw(t, "type")}
			if e.Type&ioam.E2ESequence64 != 0 {
				e.Sequence64 = rapid.Uint64().Draw(t, "sequence")
			}
			for bit, v := range map[ioam.E2EType]*uint32{ioam.E2ESequence32: &e.Sequence32, ioam.E2ESeconds: &e.Seconds, ioam.E2EFraction: &e.Fraction} {
				if e.Type&bit != 0 {
					*v = 1 + uint32(bit)
				}
			}
			return e
		}
		d := &ioam.DEX{Namespace: ns, Type: traceType().Draw(t, "type"), Extension: rapid.SampledFrom([]ioam.DEXFlags{0, 0x80, 0x40, 0xC0}).Draw(t, "flags")}
		if d.Extension&ioam.DEXFlowID != 0 {
			d.FlowID = rapid.Uint32().Draw(t, "flow")
		}
		if d.Extension&ioam.DEXSequence != 0 {
			d.Sequence = rapid.Uint32().Draw(t, "sequence")
		}
		return d
	})
}

func traceType() *rapid.Generator[ioam.TraceType] {
	return rapid.Map(rapid.Uint32(), func(v uint32) ioam.TraceType { return ioam.TraceType(v) & supported })
}

// hop draws what a node writes into a trace of a type.
func hop(t *rapid.T, tt ioam.TraceType) ioam.Hop {
	var h ioam.Hop
	fill := rapid.SliceOfN(rapid.Byte(), 64, 64).Draw(t, "data")
	trace := &ioam.Trace{Type: tt &^ ioam.OpaqueStateSnapshot, Data: fill[:(tt &^ ioam.OpaqueStateSnapshot).NodeSize(0)]}
	trace.NodeLen = uint8(tt.NodeLen())
	if hops, err := trace.Hops(); err == nil && len(hops) == 1 {
		h = hops[0]
	}
	h.Type = tt
	if tt.Has(ioam.OpaqueStateSnapshot) {
		h.Snapshot.Schema = rapid.Uint32Range(0, ioam.NoSchema).Draw(t, "schema")
		if n := 4 * rapid.IntRange(0, 3).Draw(t, "length"); n > 0 {
			h.Snapshot.Data = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "snapshot")
		}
	}
	return h
}

// filledTrace draws a trace with up to four nodes.
func filledTrace(t *rapid.T, ns uint16, incremental bool) *ioam.Trace {
	tt := traceType().Draw(t, "type")
	var data []byte
	for range rapid.IntRange(0, 4).Draw(t, "hops") {
		h := hop(t, tt)
		if next := append(h.AppendTo(nil), data...); len(next) <= ioam.MaxTraceSpace {
			data = next
		}
	}
	free := 4 * rapid.IntRange(0, (ioam.MaxTraceSpace-len(data))/4).Draw(t, "free")
	trace := &ioam.Trace{
		Incremental: incremental, Namespace: ns, Type: tt, NodeLen: uint8(tt.NodeLen()), Remaining: uint8(free / 4),
		Flags: rapid.SampledFrom([]ioam.TraceFlags{0, ioam.Overflow, ioam.Active}).Draw(t, "flags"), Data: data,
	}
	if !incremental {
		trace.Data = append(make([]byte, free), data...)
	}
	return trace
}

// packets draws whole IPv6 packets with any legal order of extension headers.
func packets() *rapid.Generator[[]byte] {
	other := rapid.Custom(func(t *rapid.T) packet.Option {
		return packet.Option{Type: rapid.SampledFrom([]byte{0x1E, 0x3E, 0xC9}).Draw(t, "type"), Data: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "data")}
	})
	return rapid.Custom(func(t *rapid.T) []byte {
		b := packet.IPv6("2001:db8::1", "2001:db8::2")
		options := func() []packet.Option { return rapid.SliceOfN(other, 0, 4).Draw(t, "options") }
		if rapid.Bool().Draw(t, "hop by hop") {
			b = b.HopByHop(options()...)
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			if rapid.Bool().Draw(t, "routing") {
				b = b.Routing("2001:db8::3")
			} else {
				b = b.DestOpts(options()...)
			}
		}
		return b.UDP(40000, 40001).Payload(rapid.IntRange(0, 40).Draw(t, "payload")).Bytes()
	})
}

// raw is a packet with one Hop-by-Hop option of these bytes, at this offset in its header.
func raw(offset int, option ...byte) []byte {
	h := ipv6.AppendPadding([]byte{17, 0}, offset-2)
	h = append(h, option...)
	h = ipv6.AppendPadding(h, -len(h)&7)
	h[1] = uint8(len(h)/8 - 1)
	pkt := udp().Bytes()
	pkt[6] = ipv6.HopByHop
	pkt = slices.Insert(pkt, ipv6.HeaderSize, h...)
	binary.BigEndian.PutUint16(pkt[4:], uint16(len(pkt)-ipv6.HeaderSize))
	return pkt
}
