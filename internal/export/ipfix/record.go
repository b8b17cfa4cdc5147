package ipfix

import (
	"encoding/binary"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

var be = binary.BigEndian

// variant says which flow template fits a record.
func variant(r *flow.Record) uint16 {
	var v uint16
	if r.Family == 6 {
		v = variantIPv6
	}
	if r.Netns != "" || r.InnerVLAN != 0 || r.Tunnel != flow.TunnelNone || r.VNI != 0 || extraHalf(r) {
		v |= variantExtra
	}
	return v
}

// extraHalf says whether a half has values that only the extra templates carry.
func extraHalf(r *flow.Record) bool {
	return r.Fragments != 0 || r.CEPackets != 0 || r.RTT != flow.RTT{}
}

// appendFlow adds a flow of the given variant without variantBiflow.
func appendFlow(b []byte, v uint16, vrf uint32, r *flow.Record) []byte {
	if v&variantIPv6 != 0 {
		src, dst := r.Src.As16(), r.Dst.As16()
		b = append(append(b, src[:]...), dst[:]...)
	} else {
		src, dst := r.Src.As4(), r.Dst.As4()
		b = append(append(b, src[:]...), dst[:]...)
	}
	b = be.AppendUint16(b, r.SrcPort)
	b = be.AppendUint16(b, r.DstPort)
	b = appendCommon(b, r)
	if v&variantExtra != 0 {
		b = appendExtra(b, vrf, r)
	}
	return appendVariantHalf(b, v, r)
}

// appendBiflow adds the conversation of two neighbours: the flow of the
// initiator and what was counted of the way back.
func appendBiflow(b []byte, v uint16, vrf uint32, one, other *flow.Record) []byte {
	forth, back, known := initiator(one, other)
	b = appendFlow(b, v, vrf, forth)
	b = appendVariantHalf(b, v, back)
	if known {
		return append(b, biflowInitiator)
	}
	return append(b, biflowArbitrary)
}

func appendVariantHalf(b []byte, v uint16, r *flow.Record) []byte {
	b = appendHalf(b, r)
	b = be.AppendUint16(b, icmpTypeCode(r))
	if v&variantIPv6 != 0 {
		b = be.AppendUint32(b, r.FlowLabel)
	}
	if v&variantExtra != 0 {
		b = appendExtraHalf(b, r)
	}
	return b
}

// appendUnattributed adds a record of template idUnattributed.
func appendUnattributed(b []byte, vrf uint32, r *flow.Record) []byte {
	b = appendCommon(b, r)
	b = appendExtra(b, vrf, r)
	b = appendHalf(b, r)
	b = appendExtraHalf(b, r)
	return append(b, 1) // true (RFC 7011 section 6.1.5)
}

func appendCommon(b []byte, r *flow.Record) []byte {
	ingress, egress := r.IfIndex, uint32(0)
	if r.Direction == flow.Egress {
		ingress, egress = egress, ingress
	}
	b = append(b, r.Proto, r.Family)
	b = be.AppendUint16(b, r.VLAN)
	b = be.AppendUint32(b, ingress)
	b = be.AppendUint32(b, egress)
	return append(b, byte(r.Direction))
}

func appendHalf(b []byte, r *flow.Record) []byte {
	b = be.AppendUint64(b, r.Bytes)
	b = be.AppendUint64(b, r.Packets)
	b = be.AppendUint64(b, r.WireBytes)
	b = be.AppendUint64(b, r.PayloadBytes)
	b = be.AppendUint64(b, uint64(r.First.UnixMilli()))
	b = be.AppendUint64(b, uint64(r.Last.UnixMilli()))
	b = be.AppendUint64(b, ntp(r.First))
	b = be.AppendUint64(b, ntp(r.Last))
	b = be.AppendUint16(b, r.TCPFlags)
	return append(b, r.TOS, r.TTLMin, r.TTLMax, byte(r.EndReason))
}

func appendExtra(b []byte, vrf uint32, r *flow.Record) []byte {
	const segmentVXLAN = 1 << 56 // type of a layer2SegmentId
	ingress, egress := vrf, uint32(0)
	if r.Direction == flow.Egress {
		ingress, egress = egress, ingress
	}
	var segment uint64
	if r.Tunnel == flow.TunnelVXLAN {
		segment = segmentVXLAN | uint64(r.VNI)
	}
	b = be.AppendUint32(b, ingress)
	b = be.AppendUint32(b, egress)
	b = be.AppendUint16(b, r.VLAN)
	b = be.AppendUint16(b, r.InnerVLAN)
	b = be.AppendUint64(b, segment)
	b = append(b, byte(r.Tunnel))
	return be.AppendUint32(b, r.VNI)
}

func appendExtraHalf(b []byte, r *flow.Record) []byte {
	b = be.AppendUint64(b, r.Fragments)
	b = be.AppendUint64(b, r.CEPackets)
	b = be.AppendUint64(b, uint64(r.RTT.Responder))
	return be.AppendUint64(b, uint64(r.RTT.Initiator))
}

// icmpTypeCode is 0 for other protocols, whose destination port is a port.
func icmpTypeCode(r *flow.Record) uint16 {
	if r.ICMP() {
		return r.DstPort
	}
	return 0
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
