package flow

import (
	"slices"
	"strconv"
)

// Origin is what all records of one agent have in common.
type Origin struct {
	Host     string
	Sampling uint32 // one packet in so many was counted; 0 and 1: every one
}

// Kind is the type of a field's value.
type Kind uint8

const (
	Text    Kind = iota // any string
	Name                // one of Field.Values
	Address             // IPv4 or IPv6
	Time                // RFC 3339 with nine decimals, UTC
	Number              // unsigned, at most Field.Max
	Signed              // a whole number that may be negative, of 64 bits
	Flag                // true or false
	Pairs               // [[index, count], …]
)

// Quoted tells whether a value is a string in JSON.
func (k Kind) Quoted() bool { return k <= Time }

// Field is one value of a record in its text form. The JSON record, its schema,
// the columns of the command line and the reference pages are made of Fields.
type Field struct {
	Name   string   // JSON key; a dot stands before the keys of inner objects
	Kind   Kind     //
	Unit   string   // of a number; empty: none
	Max    uint64   // of a number
	Values []string // of a Name
	Doc    string   // one sentence
	IPFIX  []string // information elements that carry it, in data or options records; few fields have none

	// Absent says that a record has no such value; nil: it always has.
	Absent func(*Origin, *Record) bool
	// Append adds the value as plain text, without quotes.
	Append func([]byte, *Origin, *Record) []byte
	// Set is the inverse of Append; nil for values that follow from others.
	Set func(string, *Origin, *Record) error
}

// ICMP says whether the ports of the record are ICMP or ICMPv6 identifier, type and code.
func (r *Record) ICMP() bool {
	return r.Proto == protoICMP && r.Family == 4 || r.Proto == protoICMPv6 && r.Family == 6
}

func unattributed(_ *Origin, r *Record) bool { return r.Unattributed }

// Fields lists the fields in the order of the JSON record.
var Fields = slices.Concat(flowFields, pdmFields)

var flowFields = []Field{
	{
		Name: "host", Kind: Text, Doc: "name of the host the agent runs on",
		IPFIX:  []string{"observationDomainName"},
		Append: func(b []byte, o *Origin, _ *Record) []byte { return append(b, o.Host...) },
		Set:    func(s string, o *Origin, _ *Record) error { o.Host = s; return nil },
	},
	{
		Name: "iface", Kind: Text, Doc: "interface the packets were counted on",
		IPFIX:  []string{"interfaceName", "ingressInterface", "egressInterface"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return append(b, r.Iface...) },
		Set:    func(s string, _ *Origin, r *Record) error { r.Iface = s; return nil },
	},
	{
		Name: "netns", Kind: Text, Doc: "network namespace of the interface; absent: the agent's own",
		IPFIX:  []string{"VRFname", "ingressVRFID", "egressVRFID"},
		Absent: func(_ *Origin, r *Record) bool { return r.Netns == "" },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return append(b, r.Netns...) },
		Set:    func(s string, _ *Origin, r *Record) error { r.Netns = s; return nil },
	},
	{
		Name: "direction", Kind: Name, Values: directionNames[:], Doc: "way of the packets at the interface",
		IPFIX:  []string{"flowDirection"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return append(b, r.Direction.String()...) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Direction, err = ParseDirection(s); return },
	},
	{
		Name: "family", Kind: Number, Max: 6, Doc: "IP version, 4 or 6",
		IPFIX:  []string{"ipVersion"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.Family) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Family, err = parseFamily(s); return },
	},
	{
		Name: "proto", Kind: Number, Max: maxUint8, Doc: "IANA protocol number, after IPv6 extension headers",
		IPFIX:  []string{"protocolIdentifier"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.Proto) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.Proto) },
	},
	{
		Name: "src", Kind: Address, Doc: "source address; absent when unattributed",
		IPFIX:  []string{"sourceIPv4Address", "sourceIPv6Address"},
		Absent: unattributed,
		Append: func(b []byte, _ *Origin, r *Record) []byte { return r.Src.AppendTo(b) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Src, err = parseAddr(s); return },
	},
	{
		Name: "sport", Kind: Number, Max: maxUint16, Doc: "source port; of ICMP echo the identifier; absent when unattributed",
		IPFIX:  []string{"sourceTransportPort", "waymarkICMPIdentifier"},
		Absent: unattributed,
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.SrcPort) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.SrcPort) },
	},
	{
		Name: "dst", Kind: Address, Doc: "destination address; absent when unattributed",
		IPFIX:  []string{"destinationIPv4Address", "destinationIPv6Address"},
		Absent: unattributed,
		Append: func(b []byte, _ *Origin, r *Record) []byte { return r.Dst.AppendTo(b) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Dst, err = parseAddr(s); return },
	},
	{
		Name: "dport", Kind: Number, Max: maxUint16, Doc: "destination port; of ICMP type × 256 + code; absent when unattributed",
		IPFIX:  []string{"destinationTransportPort"},
		Absent: unattributed,
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.DstPort) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.DstPort) },
	},
	{
		Name: "vlan", Kind: Number, Max: 4095, Doc: "id of the (outer) VLAN tag; 0: untagged",
		IPFIX:  []string{"vlanId", "dot1qVlanId"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.VLAN) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.VLAN) },
	},
	{
		Name: "tos", Kind: Number, Max: maxUint8, Doc: "DSCP × 4 + ECN of the first packet (IPv6: traffic class)",
		IPFIX:  []string{"ipClassOfService"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.TOS) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.TOS) },
	},
	{
		Name: "tcp_flags", Kind: Number, Max: maxUint16, Doc: "TCP control bits of all packets or'ed, as on the wire (RFC 9293)",
		IPFIX:  []string{"tcpControlBits"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.TCPFlags) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.TCPFlags) },
	},
	{
		Name: "packets", Kind: Number, Unit: "packets", Max: maxUint64, Doc: "packets on the wire: segments, not offload bursts",
		IPFIX:  []string{"packetDeltaCount"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.Packets) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.Packets) },
	},
	{
		Name: "bytes", Kind: Number, Unit: "bytes", Max: maxUint64, Doc: "IP bytes, headers included",
		IPFIX:  []string{"octetDeltaCount"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.Bytes) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.Bytes) },
	},
	{
		Name: "wire_bytes", Kind: Number, Unit: "bytes", Max: maxUint64, Doc: "IP bytes, link header, padding and tunnel headers",
		IPFIX:  []string{"layer2OctetDeltaCount"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.WireBytes) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.WireBytes) },
	},
	{
		Name: "first", Kind: Time, Doc: "time of the first packet counted",
		IPFIX:  []string{"flowStartMilliseconds", "flowStartNanoseconds"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendTime(b, r.First) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.First, err = parseTime(s); return },
	},
	{
		Name: "last", Kind: Time, Doc: "time of the last packet counted",
		IPFIX:  []string{"flowEndMilliseconds", "flowEndNanoseconds"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendTime(b, r.Last) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Last, err = parseTime(s); return },
	},
	{
		Name: "end_reason", Kind: Name, Values: endReasonNames[:], Doc: "why the record was exported; none: the flow goes on",
		IPFIX:  []string{"flowEndReason"},
		Append: func(b []byte, _ *Origin, r *Record) []byte { return append(b, r.EndReason.String()...) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.EndReason, err = ParseEndReason(s); return },
	},
	{
		Name: "unattributed", Kind: Flag, Doc: "true: packets that were counted but whose flow could not be kept",
		IPFIX:  []string{"waymarkUnattributed"},
		Absent: func(_ *Origin, r *Record) bool { return !r.Unattributed },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return strconv.AppendBool(b, r.Unattributed) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Unattributed, err = strconv.ParseBool(s); return },
	},
	{
		Name: "payload_bytes", Kind: Number, Unit: "bytes", Max: maxUint64, Doc: "bytes above the transport header; absent: none",
		IPFIX:  []string{"transportOctetDeltaCount"},
		Absent: func(_ *Origin, r *Record) bool { return r.PayloadBytes == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.PayloadBytes) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.PayloadBytes) },
	},
	{
		Name: "ttl_min", Kind: Number, Max: maxUint8, Doc: "smallest TTL or hop limit; absent: 0",
		IPFIX:  []string{"minimumTTL"},
		Absent: func(_ *Origin, r *Record) bool { return r.TTLMin == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.TTLMin) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.TTLMin) },
	},
	{
		Name: "ttl_max", Kind: Number, Max: maxUint8, Doc: "largest TTL or hop limit; absent: 0",
		IPFIX:  []string{"maximumTTL"},
		Absent: func(_ *Origin, r *Record) bool { return r.TTLMax == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.TTLMax) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.TTLMax) },
	},
	{
		Name: "flow_label", Kind: Number, Max: 1<<20 - 1, Doc: "IPv6 flow label of the first packet; absent: 0",
		IPFIX:  []string{"flowLabelIPv6"},
		Absent: func(_ *Origin, r *Record) bool { return r.FlowLabel == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.FlowLabel) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.FlowLabel) },
	},
	{
		Name: "inner_vlan", Kind: Number, Max: 4095, Doc: "id of the inner VLAN tag; absent: none",
		IPFIX:  []string{"dot1qCustomerVlanId"},
		Absent: func(_ *Origin, r *Record) bool { return r.InnerVLAN == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.InnerVLAN) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.InnerVLAN) },
	},
	{
		Name: "fragments", Kind: Number, Unit: "packets", Max: maxUint64, Doc: "packets that are IP fragments; absent: none",
		IPFIX:  []string{"waymarkFragmentDeltaCount"},
		Absent: func(_ *Origin, r *Record) bool { return r.Fragments == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.Fragments) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.Fragments) },
	},
	{
		Name: "ce_packets", Kind: Number, Unit: "packets", Max: maxUint64, Doc: "packets marked congestion experienced (RFC 3168); absent: none",
		IPFIX:  []string{"waymarkCEPacketDeltaCount"},
		Absent: func(_ *Origin, r *Record) bool { return r.CEPackets == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.CEPackets) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.CEPackets) },
	},
	{
		Name: "tunnel", Kind: Name, Values: tunnelNames[:], Doc: "encapsulation that was taken off to reach the flow; absent: none",
		IPFIX:  []string{"waymarkTunnelType"},
		Absent: func(_ *Origin, r *Record) bool { return r.Tunnel == TunnelNone },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return append(b, r.Tunnel.String()...) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Tunnel, err = ParseTunnel(s); return },
	},
	{
		Name: "vni", Kind: Number, Max: maxUint32, Doc: "VXLAN or Geneve network, or GRE key; absent: 0",
		IPFIX:  []string{"waymarkTunnelKey", "layer2SegmentId"},
		Absent: func(_ *Origin, r *Record) bool { return r.VNI == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.VNI) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, &r.VNI) },
	},
	{
		Name: "icmp_type", Kind: Number, Max: maxUint8, Doc: "ICMP or ICMPv6 type; absent for other protocols",
		IPFIX:  []string{"icmpTypeCodeIPv4", "icmpTypeCodeIPv6"},
		Absent: func(_ *Origin, r *Record) bool { return !r.ICMP() || r.Unattributed },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.DstPort>>8) },
	},
	{
		Name: "icmp_code", Kind: Number, Max: maxUint8, Doc: "ICMP or ICMPv6 code; absent for other protocols",
		IPFIX:  []string{"icmpTypeCodeIPv4", "icmpTypeCodeIPv6"},
		Absent: func(_ *Origin, r *Record) bool { return !r.ICMP() || r.Unattributed },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, r.DstPort&0xff) },
	},
	{
		Name: "sampling", Kind: Number, Unit: "packets", Max: maxUint32, Doc: "one packet in so many was counted; absent: every one",
		IPFIX:  []string{"samplingInterval", "samplingProbability"},
		Absent: func(o *Origin, _ *Record) bool { return o.Sampling <= 1 },
		Append: func(b []byte, o *Origin, _ *Record) []byte { return appendUint(b, o.Sampling) },
		Set:    func(s string, o *Origin, _ *Record) error { return parseUint(s, &o.Sampling) },
	},
	{
		Name: "initiator", Kind: Name, Values: initiatorNames[1:], Doc: "end of the flow that began the conversation: src or dst; absent: not known",
		IPFIX:  []string{"biflowDirection"},
		Absent: func(_ *Origin, r *Record) bool { return r.Initiator == InitiatorUnknown },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return append(b, r.Initiator.String()...) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.Initiator, err = ParseInitiator(s); return },
	},
	{
		Name: "initiator_by", Kind: Name, Values: evidenceNames[1:],
		Doc:    "how the initiator is known: handshake of TCP, request of ICMP echo, first: its packet was seen before any of the other end; ports: a guess, nothing else is known",
		IPFIX:  []string{"waymarkInitiatorEvidence"},
		Absent: func(_ *Origin, r *Record) bool { return r.InitiatorBy == EvidenceNone },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return append(b, r.InitiatorBy.String()...) },
		Set:    func(s string, _ *Origin, r *Record) (err error) { r.InitiatorBy, err = ParseEvidence(s); return },
	},
	{
		Name: "rtt.responder_ns", Kind: Number, Unit: "ns", Max: maxInt64, Doc: "TCP handshake: SYN to SYN-ACK; absent: not seen",
		IPFIX:  []string{"waymarkResponderRTTNanoseconds"},
		Absent: func(_ *Origin, r *Record) bool { return r.RTT.Responder == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, uint64(r.RTT.Responder)) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseDuration(s, &r.RTT.Responder) },
	},
	{
		Name: "rtt.initiator_ns", Kind: Number, Unit: "ns", Max: maxInt64, Doc: "TCP handshake: SYN-ACK to ACK; absent: not seen",
		IPFIX:  []string{"waymarkInitiatorRTTNanoseconds"},
		Absent: func(_ *Origin, r *Record) bool { return r.RTT.Initiator == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, uint64(r.RTT.Initiator)) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseDuration(s, &r.RTT.Initiator) },
	},
	{
		Name: "rtt.handshake_ns", Kind: Number, Unit: "ns", Max: maxInt64, Doc: "TCP handshake: SYN to ACK, the round trip between both ends; absent: not seen whole",
		IPFIX:  []string{"waymarkResponderRTTNanoseconds", "waymarkInitiatorRTTNanoseconds"},
		Absent: func(_ *Origin, r *Record) bool { return r.RTT.Handshake() == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, uint64(r.RTT.Handshake())) },
	},
}
