package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/inband/offline"
	"github.com/waymark-net/waymark/wire/ioam"
)

// optionRow is one IOAM option of a packet.
type optionRow struct {
	packet *offline.Packet
	*offline.IOAM
	format ioam.TimeFormat
}

// hops are the nodes of a trace in the order in which the packet passed them.
func (r optionRow) hops() (rows []hopRow) {
	trace, ok := r.Body.(*ioam.Trace)
	if !ok {
		return nil
	}
	all, _ := trace.Hops() // the error is one of the option's problems
	for i := range all {
		row := hopRow{Hop: &all[i], number: i + 1}
		row.time, row.hasTime = all[i].Time(r.format, r.packet.Time)
		if i > 0 {
			before := rows[i-1]
			row.since, row.hasSince = row.time.Sub(before.time), row.hasTime && before.hasTime
		}
		rows = append(rows, row)
	}
	return rows
}

// hopRow is what one node wrote into a trace.
type hopRow struct {
	*ioam.Hop
	number   int
	time     time.Time
	hasTime  bool
	since    time.Duration // the node before received the packet
	hasSince bool
}

var optionColumns = []column[optionRow]{
	{"option", func(r optionRow) any {
		if k, ok := r.Kind(); ok {
			return k.String()
		}
		return nil
	}},
	{"namespace", func(r optionRow) any {
		if id, ok := r.Namespace(); ok {
			return id
		}
		return nil
	}},
	{"trace_type", func(r optionRow) any {
		switch b := r.Body.(type) {
		case *ioam.Trace:
			return b.Type.String()
		case *ioam.DEX:
			return b.Type.String()
		}
		return nil
	}},
	{"flags", func(r optionRow) any {
		switch b := r.Body.(type) {
		case *ioam.Trace:
			return nonEmpty(b.Flags.String())
		case *ioam.POT:
			return nonZero(b.Flags)
		case *ioam.DEX:
			return nonZero(b.Flags)
		}
		return nil
	}},
	{"node_len", body(func(b *ioam.Trace) any { return b.NodeLen })},
	{"remaining_len", body(func(b *ioam.Trace) any { return b.Remaining })},
	{"pot_type", body(func(b *ioam.POT) any { return b.Type })},
	{"pkt_id", body(func(b *ioam.POT) any { return hexText(b.PktID, 64) })},
	{"cumulative", body(func(b *ioam.POT) any { return hexText(b.Cumulative, 64) })},
	{"e2e_type", body(func(b *ioam.E2E) any { return hexText(uint64(b.Type), 16) })},
	{"extension_flags", body(func(b *ioam.DEX) any { return hexText(uint64(b.Extension), 8) })},
	{"flow_id", body(func(b *ioam.DEX) any { return valueIf(b.Extension&ioam.DEXFlowID != 0, b.FlowID) })},
	{"sequence", func(r optionRow) any {
		switch b := r.Body.(type) {
		case *ioam.E2E:
			if b.Type&ioam.E2ESequence64 != 0 {
				return b.Sequence64
			}
			return valueIf(b.Type&ioam.E2ESequence32 != 0, b.Sequence32)
		case *ioam.DEX:
			return valueIf(b.Extension&ioam.DEXSequence != 0, b.Sequence)
		}
		return nil
	}},
	{"sent_seconds", body(func(b *ioam.E2E) any { return valueIf(b.Type&ioam.E2ESeconds != 0, b.Seconds) })},
	{"sent_fraction", body(func(b *ioam.E2E) any { return valueIf(b.Type&ioam.E2EFraction != 0, b.Fraction) })},
	{"sent", func(r optionRow) any {
		const both = ioam.E2ESeconds | ioam.E2EFraction
		if b, ok := r.Body.(*ioam.E2E); ok && b.Type&both == both {
			if at, ok := r.format.Join(b.Seconds, b.Fraction, r.packet.Time); ok {
				return timeValue(at)
			}
		}
		return nil
	}},
	{"problems", func(r optionRow) any {
		if r.Err == nil {
			return nil
		}
		return r.Err.Error()
	}},
}

// body is a value of one kind of body.
func body[B ioam.Body](value func(B) any) func(optionRow) any {
	return func(r optionRow) any {
		if b, ok := r.Body.(B); ok {
			return value(b)
		}
		return nil
	}
}

// hopColumns are those of the fields of RFC 9197. A field that the trace lacks or that
// the node could not fill has no value.
var hopColumns = []column[hopRow]{
	{"hop", func(r hopRow) any { return r.number }},
	{"hop_limit", func(r hopRow) any { return valueIf(r.Type.Has(ioam.HopLimitNodeID), r.HopLimit) }},
	{"node_id", number(ioam.HopLimitNodeID, ioam.Unavailable24, func(h *ioam.Hop) uint32 { return h.NodeID })},
	{"ingress", number(ioam.InterfaceIDs, ioam.Unavailable16, func(h *ioam.Hop) uint16 { return h.Ingress })},
	{"egress", number(ioam.InterfaceIDs, ioam.Unavailable16, func(h *ioam.Hop) uint16 { return h.Egress })},
	{"hop_limit_wide", func(r hopRow) any { return valueIf(r.Type.Has(ioam.HopLimitNodeIDWide), r.HopLimitWide) }},
	{"node_id_wide", func(r hopRow) any {
		return valueIf(r.Type.Has(ioam.HopLimitNodeIDWide) && r.NodeIDWide != ioam.Unavailable56, hexText(r.NodeIDWide, 56))
	}},
	{"ingress_wide", number(ioam.InterfaceIDsWide, ioam.Unavailable32, func(h *ioam.Hop) uint32 { return h.IngressWide })},
	{"egress_wide", number(ioam.InterfaceIDsWide, ioam.Unavailable32, func(h *ioam.Hop) uint32 { return h.EgressWide })},
	{"seconds", number(ioam.TimestampSeconds, ioam.Unavailable32, func(h *ioam.Hop) uint32 { return h.Seconds })},
	{"fraction", number(ioam.TimestampFraction, ioam.Unavailable32, func(h *ioam.Hop) uint32 { return h.Fraction })},
	{"time", func(r hopRow) any { return timeValue(r.time) }},
	{"since_ns", func(r hopRow) any { return known(r.hasSince, r.since) }},
	{"transit_delay_ns", func(r hopRow) any {
		d, ok := r.Delay()
		return known(ok, d)
	}},
	{"transit_delay_overflow", func(r hopRow) any {
		return valueIf(r.Type.Has(ioam.TransitDelay) && r.TransitDelay&ioam.DelayOverflow != 0 && r.TransitDelay != ioam.Unavailable32, true)
	}},
	{"namespace_data", func(r hopRow) any {
		return valueIf(r.Type.Has(ioam.NamespaceData), hexText(uint64(r.NamespaceData), 32))
	}},
	{"queue_depth", number(ioam.QueueDepth, ioam.Unavailable32, func(h *ioam.Hop) uint32 { return h.QueueDepth })},
	{"checksum_complement", func(r hopRow) any {
		return valueIf(r.Type.Has(ioam.ChecksumComplement) && r.Complement != ioam.Unavailable32, hexText(uint64(r.Complement), 32))
	}},
	{"namespace_data_wide", func(r hopRow) any {
		return valueIf(r.Type.Has(ioam.NamespaceDataWide), hexText(r.NamespaceDataWide, 64))
	}},
	{"buffer_occupancy", number(ioam.BufferOccupancy, ioam.Unavailable32, func(h *ioam.Hop) uint32 { return h.BufferOccupancy })},
	{"undefined", func(r hopRow) any {
		var words []string
		for i, v := range r.Undefined {
			if r.Type.Has(ioam.BufferOccupancy >> (i + 1)) {
				words = append(words, hexText(uint64(v), 32))
			}
		}
		return nonEmpty(strings.Join(words, " "))
	}},
	{"schema", number(ioam.OpaqueStateSnapshot, ioam.NoSchema, func(h *ioam.Hop) uint32 { return h.Snapshot.Schema })},
	{"snapshot", func(r hopRow) any { return nonEmpty(hex.EncodeToString(r.Snapshot.Data)) }},
}

// number is a field that the node may not have been able to fill.
func number[N uint16 | uint32](field ioam.TraceType, unavailable N, value func(*ioam.Hop) N) func(hopRow) any {
	return func(r hopRow) any {
		v := value(r.Hop)
		return valueIf(r.Type.Has(field) && v != unavailable, v)
	}
}

func valueIf(is bool, v any) any {
	if !is {
		return nil
	}
	return v
}

func nonZero(v uint8) any { return valueIf(v != 0, hexText(uint64(v), 8)) }

// hexText is for values that are no quantities.
func hexText(v uint64, bits int) string { return fmt.Sprintf("%0*x", bits/4, v) }
