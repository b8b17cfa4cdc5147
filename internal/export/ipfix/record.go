package ipfix

import (
	"encoding/binary"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

var be = binary.BigEndian

// variant says which flow template fits a record.
func variant(r *flow.Record) (v uint16) {
	if r.Family == 6 {
		v = variantIPv6
	}
	if r.ICMP() {
		v |= variantICMP
	}
	if r.Netns != "" || r.InnerVLAN != 0 || r.Tunnel != flow.TunnelNone || r.VNI != 0 || hasExtraFields(r) {
		v |= variantExtra
	}
	if r.PDM != nil && r.Family == 6 {
		v |= variantPDM
	}
	if r.Dropped > 0 {
		v |= variantDrop
	}
	return v
}

// hasExtraFields reports whether one of extraFields is not 0. A loop over them costs 15 ns.
func hasExtraFields(r *flow.Record) bool {
	c := r.Counters
	c.Packets, c.Bytes, c.WireBytes, c.PayloadBytes = 0, 0, 0, 0 // in blockHalf
	c.Dropped, c.DroppedBytes, c.Forwarded = 0, 0, 0             // in blockDrop; both interfaces
	return c != flow.Counters{} || r.RTT != flow.RTT{}
}

// appendFlow adds a flow of the given variant without variantBiflow.
func appendFlow(b []byte, v uint16, at way, r *flow.Record) []byte {
	b = appendKeys(b, v, at, r)
	b = append(b, byte(r.Initiator), byte(r.InitiatorBy))
	b = appendHalf(b, v, r)
	if v&variantPDM != 0 {
		b = appendFields(b, pdmFields, r)
	}
	switch v & (variantDrop | variantPDM) {
	case variantDrop:
		b = appendValues(b, dropFields, r)
	case variantDrop | variantPDM:
		b = appendValues(b, markedDropFields, r)
	}
	return b
}

// appendBiflow adds the conversation of two neighbours: the flow of the
// initiator and what was counted of the way back.
func appendBiflow(b []byte, v uint16, at way, one, other *flow.Record) []byte {
	forth, back, known := initiator(one, other)
	b = appendKeys(b, v, at, forth)
	b = append(b, byte(forth.Initiator), byte(forth.InitiatorBy))
	if known {
		b = append(b, biflowInitiator)
	} else {
		b = append(b, biflowArbitrary)
	}
	b = appendHalf(b, v, back)
	return appendHalf(b, v, forth)
}

// appendUnattributed adds a record of template idUnattributed.
func appendUnattributed(b []byte, at way, r *flow.Record) []byte {
	b = appendCommon(b, at, r)
	b = appendExtra(b, at, r)
	b = appendHalf(b, variantExtra, r)
	b = appendValues(b, dropFields, r)
	return append(b, 1) // true (RFC 7011 section 6.1.5)
}

func appendKeys(b []byte, v uint16, at way, r *flow.Record) []byte {
	if v&variantIPv6 != 0 {
		src, dst := r.Src.As16(), r.Dst.As16()
		b = append(append(b, src[:]...), dst[:]...)
	} else {
		src, dst := r.Src.As4(), r.Dst.As4()
		b = append(append(b, src[:]...), dst[:]...)
	}
	sport, identifier := ports(r)
	b = be.AppendUint16(b, sport)
	b = be.AppendUint16(b, r.DstPort)
	b = appendCommon(b, at, r)
	if v&variantICMP != 0 {
		b = be.AppendUint16(b, identifier)
	}
	if v&variantExtra != 0 {
		b = appendExtra(b, at, r)
	}
	return b
}

// appendIOAM adds a record of template idIOAM: what IOAM reported of a flow.
func appendIOAM(b []byte, at way, r *flow.Record) []byte {
	src, dst := r.Src.As16(), r.Dst.As16()
	b = append(append(b, src[:]...), dst[:]...)
	sport, identifier := ports(r)
	b = be.AppendUint16(b, sport)
	b = be.AppendUint16(b, r.DstPort)
	b = appendCommon(b, at, r)
	b = be.AppendUint16(b, identifier)
	b = appendVRF(b, at, r)
	b = be.AppendUint64(b, ntp(r.First))
	b = be.AppendUint64(b, ntp(r.Last))
	return appendValues(b, ioamFields, r)
}

func appendValues(b []byte, fields []*flow.Field, r *flow.Record) []byte {
	for _, f := range fields {
		b = appendValue(b, f, r)
	}
	return b
}

// appendValue adds the value of a field in the form of its element.
func appendValue(b []byte, f *flow.Field, r *flow.Record) []byte {
	e := &f.IPFIX[0]
	switch {
	case e.Len == flow.VariableLen: // RFC 7011 section 7
		s := f.Str(r)
		s = s[:min(len(s), maxShort)]
		return append(append(b, byte(len(s))), s...)
	case e.Type == "string":
		at := len(b)
		b = append(b, make([]byte, e.Len)...)
		copy(b[at:], f.Str(r))
		return b
	case e.Type == "boolean": // RFC 7011 section 6.1.5
		return append(b, 2-byte(f.Uint(r)))
	case e.Len == 1:
		return append(b, byte(f.Uint(r)))
	case e.Len == 2:
		return be.AppendUint16(b, uint16(f.Uint(r)))
	case e.Len == 4:
		return be.AppendUint32(b, uint32(f.Uint(r)))
	}
	return be.AppendUint64(b, f.Uint(r))
}

// maxShort is the longest text whose length takes one byte.
const maxShort = 254

// ports are the source port and the ICMP identifier. An ICMP source port would become the
// type in nfdump, as some routers have it there.
func ports(r *flow.Record) (sport, identifier uint16) {
	if r.ICMP() {
		return 0, r.SrcPort
	}
	return r.SrcPort, 0
}

func appendCommon(b []byte, at way, r *flow.Record) []byte {
	ingress, egress := at.iface.id, at.other.id
	if r.Direction == flow.Egress {
		ingress, egress = egress, ingress
	}
	b = append(b, r.Proto, r.Family)
	b = be.AppendUint16(b, r.VLAN)
	b = be.AppendUint32(b, ingress)
	b = be.AppendUint32(b, egress)
	return append(b, byte(r.Direction))
}

func appendVRF(b []byte, at way, r *flow.Record) []byte {
	ingress, egress := at.iface.vrf, at.other.vrf
	if r.Direction == flow.Egress {
		ingress, egress = egress, ingress
	}
	return be.AppendUint32(be.AppendUint32(b, ingress), egress)
}

func appendExtra(b []byte, at way, r *flow.Record) []byte {
	const segmentVXLAN = 1 << 56 // type of a layer2SegmentId
	var segment uint64
	if r.Tunnel == flow.TunnelVXLAN {
		segment = segmentVXLAN | uint64(r.VNI)
	}
	b = appendVRF(b, at, r)
	b = be.AppendUint16(b, r.VLAN)
	b = be.AppendUint16(b, r.InnerVLAN)
	b = be.AppendUint64(b, segment)
	b = append(b, byte(r.Tunnel))
	return be.AppendUint32(b, r.VNI)
}

func appendHalf(b []byte, v uint16, r *flow.Record) []byte {
	b = be.AppendUint64(b, r.Bytes)
	b = be.AppendUint64(b, r.Packets)
	b = be.AppendUint64(b, r.WireBytes)
	b = be.AppendUint64(b, r.PayloadBytes)
	b = be.AppendUint64(b, uint64(r.First.UnixMilli()))
	b = be.AppendUint64(b, uint64(r.Last.UnixMilli()))
	b = be.AppendUint64(b, ntp(r.First))
	b = be.AppendUint64(b, ntp(r.Last))
	b = be.AppendUint16(b, r.TCPFlags)
	b = append(b, r.TOS, r.TTLMin, r.TTLMax, byte(r.EndReason))
	if v&variantIPv6 != 0 {
		b = be.AppendUint32(b, r.FlowLabel)
	}
	if v&variantICMP != 0 {
		b = be.AppendUint16(b, r.DstPort)
	}
	if v&variantExtra != 0 {
		b = appendFields(b, extraFields, r)
	}
	return b
}

// appendFields adds numbers of 64 bits.
func appendFields(b []byte, fields []*flow.Field, r *flow.Record) []byte {
	for _, f := range fields {
		b = be.AppendUint64(b, f.Uint(r))
	}
	return b
}

// ntp is the time as dateTimeNanoseconds (RFC 7011 section 6.1.10): seconds
// since 1900, modulo 2^32, and a binary fraction. The fraction is rounded up, so
// that a collector that rounds down gets the same nanosecond back.
func ntp(t time.Time) uint64 {
	const (
		unixEpoch = 2208988800 // in seconds since 1900
		second    = 1_000_000_000
	)
	seconds := uint64(t.Unix() + unixEpoch)
	fraction := (uint64(t.Nanosecond())<<32 + second - 1) / second
	return seconds<<32 | fraction
}
