package flow

import (
	"net/netip"
	"slices"
	"time"
)

// Fields lists the fields in the order of the JSON record.
var Fields = slices.Concat(keyFields, counterFields, timeFields, recordFields, rareCounterFields, rareFields,
	conversationFields, rttFields, dropCounterFields, dropFields, pdmFields, ioamFields)

// keyFields say which flow it is, and what its packets have in common.
var keyFields = []Field{
	ofOrigin(Field{
		Name: "host", Kind: Text, Doc: "name of the host the agent runs on",
		IPFIX:  []Element{IANAText(300, "observationDomainName", VariableLen, "host name")},
		Append: func(b []byte, o *Origin, _ *Record) []byte { return append(b, o.Host...) },
		Set:    func(s string, o *Origin, _ *Record) error { o.Host = s; return nil },
	}),
	text(Field{
		Name: "iface", Doc: "interface the packets were counted on", Aliases: []string{"interface", "dev"},
		IPFIX: []Element{
			IANA(10, "ingressInterface", "unsigned32", "identifier", "interface of an ingress record; of an egress record other_iface, 0: none. Its index; in another network namespace ingressVRFID << 22 + index; another number where that is taken"),
			IANA(14, "egressInterface", "unsigned32", "identifier", "interface of an egress record; of an ingress record other_iface"),
			IANAText(82, "interfaceName", 16, "name, filled with zeros"),
			IANAText(83, "interfaceDescription", 64, "name, network namespace and host, filled with zeros"),
		},
	}, func(r *Record) *string { return &r.Iface }),
	absentEmpty(text(Field{
		Name: "netns", Doc: "network namespace of the interface; absent: the agent's own", Example: `netns blue, netns ""`,
		IPFIX: []Element{
			IANA(234, "ingressVRFID", "unsigned32", "identifier", "number of the network namespace of ingressInterface, 0: the agent's own"),
			IANA(235, "egressVRFID", "unsigned32", "identifier", "number of the network namespace of egressInterface, 0: the agent's own"),
			IANAText(236, "VRFname", 64, "network namespace, filled with zeros"),
		},
	}, func(r *Record) *string { return &r.Netns })),
	name(Field{
		Name: "direction", Title: "DIR", Values: directionNames[:], Doc: "way of the packets at the interface", Aliases: []string{"dir"},
		IPFIX: []Element{IANA(61, "flowDirection", "unsigned8", "identifier", "0 ingress, 1 egress")},
	}, func(r *Record) *Direction { return &r.Direction }),
	familyField(),
	number(Field{
		Name: "proto", Kind: Protocol, Doc: "IANA protocol number, after IPv6 extension headers", Aliases: []string{"protocol"},
		IPFIX: []Element{IANA(4, "protocolIdentifier", "unsigned8", "identifier", "protocol, after IPv6 extension headers")},
	}, func(r *Record) *uint8 { return &r.Proto }),
	address(Field{
		Name: "src", Endpoint: true, Doc: "source address; absent when unattributed", Aliases: []string{"src host", "src net"},
		IPFIX: []Element{
			IANA(8, "sourceIPv4Address", "ipv4Address", "", "source"),
			IANA(27, "sourceIPv6Address", "ipv6Address", "", "source"),
		},
	}, func(r *Record) *netip.Addr { return &r.Src }),
	number(Field{
		Name: "sport", Endpoint: true, Port: true, Doc: "source port; of ICMP echo the identifier; absent when unattributed",
		Aliases: []string{"src port", "src portrange", "srcport"}, Example: "src port 53, sport 1024-65535",
		IPFIX: []Element{
			IANA(7, "sourceTransportPort", "unsigned16", "identifier", "source port; ICMP: 0"),
			own(7, "waymarkICMPIdentifier", "unsigned16", "identifier", "ICMP echo identifier, else 0"),
		},
	}, func(r *Record) *uint16 { return &r.SrcPort }),
	address(Field{
		Name: "dst", Endpoint: true, Doc: "destination address; absent when unattributed", Aliases: []string{"dst host", "dst net"},
		IPFIX: []Element{
			IANA(12, "destinationIPv4Address", "ipv4Address", "", "destination"),
			IANA(28, "destinationIPv6Address", "ipv6Address", "", "destination"),
		},
	}, func(r *Record) *netip.Addr { return &r.Dst }),
	number(Field{
		Name: "dport", Endpoint: true, Port: true, Doc: "destination port; of ICMP type × 256 + code; absent when unattributed",
		Aliases: []string{"dst port", "dst portrange", "dstport"}, Example: "dport 443, dport 80,8000-8099, dst port https",
		IPFIX: []Element{IANA(11, "destinationTransportPort", "unsigned16", "identifier", "destination port; ICMP: type × 256 + code")},
	}, func(r *Record) *uint16 { return &r.DstPort }),
	number(Field{
		Name: "vlan", Max: 4095, Doc: "id of the (outer) VLAN tag; 0: untagged",
		IPFIX: []Element{
			IANA(58, "vlanId", "unsigned16", "identifier", "outer VLAN tag, 0: untagged"),
			IANA(243, "dot1qVlanId", "unsigned16", "identifier", "outer VLAN tag"),
		},
	}, func(r *Record) *uint16 { return &r.VLAN }),
	number(Field{
		Name: "tos", Doc: "DSCP × 4 + ECN of the first packet (IPv6: traffic class)",
		IPFIX: []Element{IANA(5, "ipClassOfService", "unsigned8", "identifier", "TOS or traffic class of the first packet")},
	}, func(r *Record) *uint8 { return &r.TOS }),
	number(Field{
		Name: "tcp_flags", Kind: Bits, Merge: MergeOr, Doc: "TCP control bits of all packets or'ed, as on the wire (RFC 9293)", Aliases: []string{"flags"},
		IPFIX: []Element{IANA(6, "tcpControlBits", "unsigned16", "flags", "flags of all packets or'ed, as on the wire")},
	}, func(r *Record) *uint16 { return &r.TCPFlags }),
}

// timeFields say when packets came.
var timeFields = []Field{
	moment(Field{
		Name: "first", Merge: MergeMin, Doc: "time of the first packet counted",
		IPFIX: []Element{
			IANA(152, "flowStartMilliseconds", "dateTimeMilliseconds", "quantity", "first packet, rounded down"),
			IANA(156, "flowStartNanoseconds", "dateTimeNanoseconds", "quantity", "first packet, exact"),
		},
	}, func(r *Record) *time.Time { return &r.First }),
	moment(Field{
		Name: "last", Merge: MergeMax, Doc: "time of the last packet counted",
		IPFIX: []Element{
			IANA(153, "flowEndMilliseconds", "dateTimeMilliseconds", "quantity", "last packet, rounded down"),
			IANA(157, "flowEndNanoseconds", "dateTimeNanoseconds", "quantity", "last packet, exact"),
		},
	}, func(r *Record) *time.Time { return &r.Last }),
}

// recordFields say what the record is.
var recordFields = []Field{
	name(Field{
		Name: "end_reason", Merge: MergeFirst, Values: endReasonNames[:], Doc: "why the record was exported; none: the flow goes on",
		IPFIX: []Element{IANA(136, "flowEndReason", "unsigned8", "identifier", "why the record was exported")},
	}, func(r *Record) *EndReason { return &r.EndReason }),
	flag(Field{
		Name: "unattributed", Merge: MergeAgree, Doc: "true: packets that were counted but whose flow could not be kept",
		IPFIX: []Element{own(8, "waymarkUnattributed", "boolean", "", "true: packets whose flow could not be kept")},
	}, func(r *Record) *bool { return &r.Unattributed }),
}

// rareFields are what few records have.
var rareFields = []Field{
	absentEmpty(text(Field{
		Name: "other_iface", Merge: MergeFirst, Doc: "interface on the other side of `forwarded` packets: where those of an ingress record left, those of an egress record came from; of records of a device without an agent, where they left, or came from. Absent: none were forwarded at XDP",
		Example: "other_iface eth1",
	}, func(r *Record) *string { return &r.Other })),
	absentZero(number(Field{
		Name: "ttl_min", Merge: MergeMin, Doc: "smallest TTL or hop limit; absent: 0",
		IPFIX: []Element{IANA(52, "minimumTTL", "unsigned8", "quantity", "smallest TTL or hop limit")},
	}, func(r *Record) *uint8 { return &r.TTLMin })),
	absentZero(number(Field{
		Name: "ttl_max", Merge: MergeMax, Doc: "largest TTL or hop limit; absent: 0",
		IPFIX: []Element{IANA(53, "maximumTTL", "unsigned8", "quantity", "largest TTL or hop limit")},
	}, func(r *Record) *uint8 { return &r.TTLMax })),
	absentZero(number(Field{
		Name: "flow_label", Max: 1<<20 - 1, Merge: MergeFirst, Doc: "IPv6 flow label of the first packet; absent: 0",
		IPFIX: []Element{IANA(31, "flowLabelIPv6", "unsigned32", "identifier", "flow label of the first packet")},
	}, func(r *Record) *uint32 { return &r.FlowLabel })),
	absentZero(number(Field{
		Name: "inner_vlan", Title: "INNER", Max: 4095, Doc: "id of the inner VLAN tag; absent: none",
		IPFIX: []Element{IANA(245, "dot1qCustomerVlanId", "unsigned16", "identifier", "inner VLAN tag")},
	}, func(r *Record) *uint16 { return &r.InnerVLAN })),
	absentZero(name(Field{
		Name: "tunnel", Values: tunnelNames[:], Doc: "encapsulation that was taken off to reach the flow; absent: none",
		IPFIX: []Element{own(1, "waymarkTunnelType", "unsigned8", "identifier", "encapsulation taken off: 0 none, 1 VXLAN, 2 Geneve, 3 GRE, 4 IP in IP")},
	}, func(r *Record) *Tunnel { return &r.Tunnel })),
	absentZero(number(Field{
		Name: "vni", Doc: "VXLAN or Geneve network, or GRE key; absent: 0",
		IPFIX: []Element{
			own(2, "waymarkTunnelKey", "unsigned32", "identifier", "VXLAN or Geneve network, or GRE key"),
			IANA(351, "layer2SegmentId", "unsigned64", "identifier", "VXLAN: 1 << 56 + network, else 0"),
		},
	}, func(r *Record) *uint32 { return &r.VNI })),
	icmp(Field{
		Name: "icmp_type", Doc: "ICMP or ICMPv6 type; absent for other protocols", Example: "icmp_type 8",
		IPFIX: []Element{icmpTypeCode4, icmpTypeCode6},
	}, func(r *Record) uint64 { return uint64(r.DstPort >> 8) }),
	icmp(Field{
		Name: "icmp_code", Doc: "ICMP or ICMPv6 code; absent for other protocols", Example: "icmp_code 0",
		IPFIX: []Element{icmpTypeCode4, icmpTypeCode6},
	}, func(r *Record) uint64 { return uint64(r.DstPort & 0xff) }),
	ofOrigin(Field{
		Name: "sampling", Kind: Number, Unit: "packets", Max: maxUint32, Doc: "one packet in so many was counted; absent: every one",
		IPFIX: []Element{
			IANA(34, "samplingInterval", "unsigned32", "quantity", "N of 1:N, for collectors that know no samplingProbability; 1: every packet is counted"),
			IANA(311, "samplingProbability", "float64", "", "of a packet to be counted"),
		},
		Absent: func(o *Origin, _ *Record) bool { return o.Sampling <= 1 },
		Append: func(b []byte, o *Origin, _ *Record) []byte { return appendUint(b, o.Sampling) },
		Set:    func(s string, o *Origin, _ *Record) error { return parseUint(s, &o.Sampling) },
	}),
}

// conversationFields say who began it.
var conversationFields = []Field{
	absentZero(name(Field{
		Name: "initiator", Merge: MergeAgree, Values: initiatorNames[:], Doc: "end of the flow that began the conversation: src or dst; absent: not known",
		IPFIX: []Element{
			own(28, "waymarkInitiator", "unsigned8", "identifier", "who began the conversation: 1 the source, 2 the destination, 0 not known"),
			IANA(239, "biflowDirection", "unsigned8", "identifier", "1: the source is the initiator; 0: not known, the order is a guess by the ports"),
		},
	}, func(r *Record) *Initiator { return &r.Initiator })),
	absentZero(name(Field{
		Name: "initiator_by", Merge: MergeAgree, Values: evidenceNames[:],
		Doc:   "how the initiator is known: handshake of TCP, request of ICMP echo, first: its packet was seen before any of the other end; ports: a guess, nothing else is known",
		IPFIX: []Element{own(29, "waymarkInitiatorEvidence", "unsigned8", "identifier", "how that is known: 1 a guess by the ports, 2 whose packet was seen first, 3 an ICMP echo request, 4 a TCP handshake; 0 not known")},
	}, func(r *Record) *Evidence { return &r.InitiatorBy })),
}

// rttFields are those of the TCP handshake.
var rttFields = []Field{
	duration(Field{
		Name: "rtt.responder_ns", Merge: MergeMean, Doc: "TCP handshake: SYN to SYN-ACK; absent: not seen", Aliases: []string{"rtt_responder"},
		IPFIX: []Element{responderRTT},
	}, func(r *Record) *time.Duration { return &r.RTT.Responder }),
	duration(Field{
		Name: "rtt.initiator_ns", Merge: MergeMean, Doc: "TCP handshake: SYN-ACK to ACK; absent: not seen", Aliases: []string{"rtt_initiator"},
		IPFIX: []Element{initiatorRTT},
	}, func(r *Record) *time.Duration { return &r.RTT.Initiator }),
	missing(derived(Field{
		Name: "rtt.handshake_ns", Merge: MergeMean, Unit: "ns", Max: maxInt64, Aliases: []string{"rtt"},
		Doc:   "TCP handshake: SYN to ACK, the round trip between both ends; absent: not seen whole",
		IPFIX: []Element{responderRTT, initiatorRTT},
	}, func(r *Record) uint64 { return uint64(r.RTT.Handshake()) }), func(r *Record) bool { return r.RTT.Handshake() <= 0 }),
}

// familyField takes no other number than 4 and 6.
func familyField() Field {
	f := number(Field{
		Name: "family", Max: 6, Doc: "IP version, 4 or 6",
		IPFIX: []Element{IANA(60, "ipVersion", "unsigned8", "identifier", "4 or 6")},
	}, func(r *Record) *uint8 { return &r.Family })
	f.Set = func(s string, _ *Origin, r *Record) (err error) {
		r.Family, err = parseFamily(s)
		return err
	}
	return f
}

func absentEmpty(f Field) Field {
	value := f.Str
	f.Absent = func(_ *Origin, r *Record) bool { return value(r) == "" }
	return f
}

// icmp is part of the destination port.
func icmp(f Field, value func(*Record) uint64) Field {
	f.Max, f.Merge = maxUint8, MergeFirst
	return missing(derived(f, value), func(r *Record) bool { return !r.ICMP() || r.Unattributed })
}
