package flow

import "slices"

// standardProtobuf are the fields that goflow2's FlowMessage has, under its names and numbers.
var standardProtobuf = map[string]Protobuf{
	"sampling": {3, "sampling_rate", "uint64"}, "src": {6, "src_addr", "bytes"}, "dst": {7, "dst_addr", "bytes"},
	"bytes": {9, "bytes", "uint64"}, "packets": {10, "packets", "uint64"}, "proto": {20, "proto", "uint32"},
	"sport": {21, "src_port", "uint32"}, "dport": {22, "dst_port", "uint32"}, "tos": {23, "ip_tos", "uint32"},
	"tcp_flags": {26, "tcp_flags", "uint32"}, "vlan": {29, "vlan_id", "uint32"}, "icmp_type": {31, "icmp_type", "uint32"},
	"icmp_code": {32, "icmp_code", "uint32"}, "flow_label": {37, "ipv6_flow_label", "uint32"},
	"first": {111, "time_flow_start_ns", "uint64"}, "last": {112, "time_flow_end_ns", "uint64"},
}

// firstProtobuf is the number of the first of ownProtobuf.
const firstProtobuf = 1000

// ownProtobuf are all others, in the order of their numbers: a new field is the last one, and one that leaves keeps its place.
var ownProtobuf = []string{
	"host", "iface", "netns", "direction", "family", "wire_bytes", "end_reason", "unattributed", "payload_bytes", "fragments",
	"ce_packets", "forwarded", "other_iface", "ttl_min", "ttl_max", "inner_vlan", "tunnel", "vni", "initiator", "initiator_by",
	"rtt.responder_ns", "rtt.initiator_ns", "rtt.handshake_ns",
	"drops.packets", "drops.bytes", "drops.verdict", "drops.rule", "drops.by",
	"pdm.sent", "pdm.received", "pdm.lost", "pdm.reordered", "pdm.duplicates", "pdm.suspicious", "pdm.discarded",
	"pdm.server.count", "pdm.server.sum_ns", "pdm.server.min_ns", "pdm.server.max_ns",
	"pdm.server.p50_ns", "pdm.server.p90_ns", "pdm.server.p99_ns", "pdm.server.buckets",
	"pdm.network.count", "pdm.network.sum_ns", "pdm.network.min_ns", "pdm.network.max_ns",
	"pdm.network.p50_ns", "pdm.network.p90_ns", "pdm.network.p99_ns", "pdm.network.buckets",
	"ioam.path", "ioam.nodes", "ioam.namespace", "ioam.hops", "ioam.packets", "ioam.changes", "ioam.received", "ioam.lost",
	"ioam.reordered", "ioam.duplicates", "ioam.delay.count", "ioam.delay.sum_ns", "ioam.delay.min_ns", "ioam.delay.max_ns",
	"ioam.delay.mean_ns", "ioam.relative",
}

// Protobuf is a field of a protobuf message.
type Protobuf struct {
	Number int32
	Name   string
	Type   string
}

// Protobuf is how messages have the field; Number is 0 where it has none yet.
func (f *Field) Protobuf() Protobuf {
	if p, ok := standardProtobuf[f.Name]; ok {
		return p
	}
	p := Protobuf{Name: Column(f.Name)}
	if i := slices.Index(ownProtobuf, f.Name); i >= 0 {
		p.Number = firstProtobuf + int32(i)
	}
	switch {
	case f.Kind.Number() && f.Max <= maxUint32:
		p.Type = "uint32"
	case f.Kind.Number():
		p.Type = "uint64"
	default:
		p.Type = map[Kind]string{
			Text: "string", Name: "string", Address: "bytes", Time: "uint64", Signed: "int64", Flag: "bool", Pairs: "repeated uint64",
		}[f.Kind]
	}
	return p
}
