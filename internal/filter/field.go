package filter

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// kind is how a field's values are written and compared.
type kind uint8

const (
	kindNumber   kind = iota // 80, 8000-8099, 10k, 4Mi
	kindDuration             // 10ms
	kindName                 // one of a few names, such as tcp
	kindBits                 // names of bits, all of which are set: syn+ack
	kindAddress              // address or prefix
	kindText                 // text or glob
	kindFlag                 // true or false; has no value
)

func (k kind) ordered() bool { return k == kindNumber || k == kindDuration }

func (k kind) example(f *field) string {
	if f.example != "" {
		return f.example
	}
	switch k {
	case kindNumber:
		if f.size {
			return f.name + " > 1MB, " + f.name + " 1k-10k"
		}
		if f.max > 1<<32 {
			return f.name + " > 10k, " + f.name + " 1-10"
		}
		return f.name + " 1, " + f.name + " 1-10"
	case kindDuration:
		return f.name + " > 10ms"
	case kindBits:
		return f.name + " syn+ack"
	case kindAddress:
		return f.name + " 192.0.2.1, " + f.name + " 2001:db8::/32"
	case kindText:
		return f.name + " eth0, " + f.name + " veth*"
	}
	return "one of " + strings.Join(f.names, ", ")
}

// field is something that a test can name. Names are those of the JSON record
// where it has them; aliases may be of several words.
type field struct {
	name    string
	aliases []string
	doc     string
	kind    kind
	max     uint64 // of a number
	example string // where the one of its kind does not fit

	services bool // a number that has names: https
	size     bool // a number of bytes: 1MB
	sum      bool // of grouped records: it tests the row, not the record

	// One of these, by kind. numbers reports how many of its two values there are.
	numbers   func(*flow.Record) (a, b uint64, n int)
	addresses func(*flow.Record) (a, b netip.Addr)
	text      func(*flow.Record) string
	flag      func(*flow.Record) bool

	// Of kindName and kindBits.
	names     []string // for messages
	parseName func(string) (uint64, error)
	nameOf    func(uint64) string
}

// flagNames are the TCP flags by which tcp_flags tests.
var flagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"}

// fields, in the order of the reference page.
var fields = []field{
	{
		name: "src", aliases: []string{"src host", "src net"}, kind: kindAddress, doc: "source address",
		addresses: func(r *flow.Record) (a, b netip.Addr) { return r.Src, netip.Addr{} },
	},
	{
		name: "dst", aliases: []string{"dst host", "dst net"}, kind: kindAddress, doc: "destination address",
		addresses: func(r *flow.Record) (a, b netip.Addr) { return r.Dst, netip.Addr{} },
	},
	{
		name: "addr", aliases: []string{"host", "net", "ip", "src or dst", "src or dst host", "src or dst net"},
		kind: kindAddress, doc: "source or destination address", example: "host 192.0.2.1, net 10/8, host www.example.com",
		addresses: func(r *flow.Record) (a, b netip.Addr) { return r.Src, r.Dst },
	},
	{
		name: "sport", aliases: []string{"src port", "src portrange", "srcport"}, example: "src port 53, sport 1024-65535",
		kind: kindNumber, max: 1<<16 - 1, services: true, doc: "source port; of ICMP echo the identifier",
		numbers: attributed(func(r *flow.Record) uint64 { return uint64(r.SrcPort) }),
	},
	{
		name: "dport", aliases: []string{"dst port", "dst portrange", "dstport"}, example: "dport 443, dport 80,8000-8099, dst port https",
		kind: kindNumber, max: 1<<16 - 1, services: true, doc: "destination port; of ICMP type × 256 + code",
		numbers: attributed(func(r *flow.Record) uint64 { return uint64(r.DstPort) }),
	},
	{
		name: "port", aliases: []string{"portrange", "src or dst port", "src or dst portrange"}, example: "port 53, port 443 or 8080, portrange 8000-8099",
		kind: kindNumber, max: 1<<16 - 1, services: true, doc: "source or destination port, not of ICMP",
		numbers: func(r *flow.Record) (a, b uint64, n int) {
			if r.Unattributed || r.ICMP() {
				return 0, 0, 0
			}
			return uint64(r.SrcPort), uint64(r.DstPort), 2
		},
	},
	{
		name: "icmp_type", example: "icmp_type 8", kind: kindNumber, max: 255, doc: "ICMP or ICMPv6 type",
		numbers: icmp(func(r *flow.Record) uint64 { return uint64(r.DstPort >> 8) }),
	},
	{
		name: "icmp_code", example: "icmp_code 0", kind: kindNumber, max: 255, doc: "ICMP or ICMPv6 code",
		numbers: icmp(func(r *flow.Record) uint64 { return uint64(r.DstPort & 0xff) }),
	},
	named("proto", []string{"protocol"}, "IANA protocol, by name or number", []string{"tcp", "udp", "icmp", "icmpv6", "sctp", "or a number up to 255"},
		func(r *flow.Record) uint64 { return uint64(r.Proto) },
		func(n uint64) string { return flow.ProtoName(uint8(n)) },
		parseProto),
	ofList("family", nil, "IP version", map[uint64]string{4: "4", 6: "6"},
		func(r *flow.Record) uint64 { return uint64(r.Family) }),
	named("direction", []string{"dir"}, "way of the packets at the interface", []string{"ingress", "egress", "in", "out", "inbound", "outbound"},
		func(r *flow.Record) uint64 { return uint64(r.Direction) },
		func(n uint64) string { return flow.Direction(n).String() },
		parseDirection),
	{
		name: "iface", aliases: []string{"interface", "dev"}, kind: kindText, doc: "interface, a name or a glob",
		text: func(r *flow.Record) string { return r.Iface },
	},
	{
		name: "netns", example: "netns blue, netns \"\"", kind: kindText, doc: `network namespace, a name or a glob; "" is the agent's own`,
		text: func(r *flow.Record) string { return r.Netns },
	},
	number("vlan", 4095, "id of the (outer) VLAN tag; 0: untagged", func(r *flow.Record) uint64 { return uint64(r.VLAN) }),
	number("inner_vlan", 4095, "id of the inner VLAN tag; 0: none", func(r *flow.Record) uint64 { return uint64(r.InnerVLAN) }),
	ofList("tunnel", nil, "encapsulation that was taken off", tunnels(), func(r *flow.Record) uint64 { return uint64(r.Tunnel) }),
	number("vni", 1<<32-1, "VXLAN or Geneve network, or GRE key", func(r *flow.Record) uint64 { return uint64(r.VNI) }),
	number("tos", 255, "DSCP × 4 + ECN of the first packet", func(r *flow.Record) uint64 { return uint64(r.TOS) }),
	number("dscp", 63, "DSCP of the first packet", func(r *flow.Record) uint64 { return uint64(r.TOS >> 2) }),
	number("ecn", 3, "ECN of the first packet", func(r *flow.Record) uint64 { return uint64(r.TOS & 3) }),
	{
		name: "tcp_flags", aliases: []string{"flags"}, kind: kindBits, doc: "TCP control bits seen in any packet; + joins bits that must all be there, 0 is none",
		numbers: func(r *flow.Record) (a, b uint64, n int) {
			if r.Proto != 6 {
				return 0, 0, 0
			}
			return uint64(r.TCPFlags), 0, 1
		},
		names:     flagNames,
		parseName: parseFlags,
		nameOf: func(n uint64) string {
			if n == 0 {
				return "0" // no bit at all
			}
			return flow.TCPFlagNames(uint16(n))
		},
	},
	number("ttl_min", 255, "smallest TTL or hop limit", func(r *flow.Record) uint64 { return uint64(r.TTLMin) }),
	number("ttl_max", 255, "largest TTL or hop limit", func(r *flow.Record) uint64 { return uint64(r.TTLMax) }),
	number("flow_label", 1<<20-1, "IPv6 flow label", func(r *flow.Record) uint64 { return uint64(r.FlowLabel) }),
	counter("packets", "packets on the wire", func(r *flow.Record) uint64 { return r.Packets }),
	size("bytes", "IP bytes", func(r *flow.Record) uint64 { return r.Bytes }),
	size("wire_bytes", "bytes on the wire", func(r *flow.Record) uint64 { return r.WireBytes }),
	size("payload_bytes", "bytes above the transport header", func(r *flow.Record) uint64 { return r.PayloadBytes }),
	counter("fragments", "packets that are IP fragments", func(r *flow.Record) uint64 { return r.Fragments }),
	counter("ce_packets", "packets marked congestion experienced", func(r *flow.Record) uint64 { return r.CEPackets }),
	duration("rtt", "whole round trip of the TCP handshake", func(r *flow.Record) time.Duration { return r.RTT.Handshake() }),
	duration("rtt.responder_ns", "SYN to SYN-ACK", func(r *flow.Record) time.Duration { return r.RTT.Responder }, "rtt_responder"),
	duration("rtt.initiator_ns", "SYN-ACK to ACK", func(r *flow.Record) time.Duration { return r.RTT.Initiator }, "rtt_initiator"),
	{
		name: "pdm", aliases: []string{"marked"}, kind: kindFlag, doc: "flows whose packets carry PDM, sent or received",
		flag: func(r *flow.Record) bool { return r.PDM != nil },
	},
	marked("sent", "packets marked here", func(p *flow.PDM) uint64 { return p.Sent }),
	marked("received", "marked packets read here", func(p *flow.PDM) uint64 { return p.Received }),
	marked("lost", "marked packets of the peer that did not arrive", func(p *flow.PDM) uint64 { return uint64(max(p.Lost, 0)) }, "lost"),
	marked("reordered", "marked packets of the peer that arrived after later ones", func(p *flow.PDM) uint64 { return p.Reordered }, "reordered"),
	marked("duplicates", "marked packets of the peer that arrived more than once", func(p *flow.PDM) uint64 { return p.Duplicates }, "duplicates"),
	marked("suspicious", "marked packets with impossible times or numbers", func(p *flow.PDM) uint64 { return p.Suspicious }, "suspicious"),
	marked("discarded", "marked packets in order that do not answer the packet sent last", func(p *flow.PDM) uint64 { return p.Discarded }),
	delay("server.p50_ns", "median of the delays at the peer", serverDelay, 0.5, "server"),
	delay("server.p99_ns", "99th percentile of them", serverDelay, 0.99, "server_p99"),
	delay("network.p50_ns", "median of the round trips without the time at the peer", networkDelay, 0.5, "network"),
	delay("network.p99_ns", "99th percentile of them", networkDelay, 0.99, "network_p99"),
	ofList("initiator", nil, "end of the flow that began the conversation", initiators(), func(r *flow.Record) uint64 { return uint64(r.Initiator) }),
	ofList("initiator_by", nil, "how the initiator is known", evidence(), func(r *flow.Record) uint64 { return uint64(r.InitiatorBy) }),
	ofList("end_reason", nil, "why a record was exported", endReasons(), func(r *flow.Record) uint64 { return uint64(r.EndReason) }),
	{
		name: "unattributed", kind: kindFlag, doc: "packets that were counted but whose flow could not be kept",
		flag: func(r *flow.Record) bool { return r.Unattributed },
	},
}

func fieldNamed(name string) *field {
	name = strings.ToLower(name)
	for i := range fields {
		if fields[i].name == name || slices.Contains(fields[i].aliases, name) {
			return &fields[i]
		}
	}
	return nil
}

func number(name string, limit uint64, doc string, get func(*flow.Record) uint64) field {
	return field{
		name: name, kind: kindNumber, max: limit, doc: doc,
		numbers: func(r *flow.Record) (a, b uint64, n int) { return get(r), 0, 1 },
	}
}

func counter(name, doc string, get func(*flow.Record) uint64) field {
	f := number(name, 1<<64-1, doc, get)
	f.sum = true
	return f
}

func size(name, doc string, get func(*flow.Record) uint64) field {
	f := counter(name, doc, get)
	f.size = true
	return f
}

// marked is a number that only marked flows have.
func marked(name, doc string, get func(*flow.PDM) uint64, aliases ...string) field {
	return field{
		name: "pdm." + name, aliases: aliases, kind: kindNumber, max: 1<<64 - 1, doc: doc, sum: true,
		numbers: func(r *flow.Record) (a, b uint64, n int) {
			if r.PDM == nil {
				return 0, 0, 0
			}
			return get(r.PDM), 0, 1
		},
	}
}

// delay is a quantile that only answered flows have.
func delay(name, doc string, get func(*flow.PDM) *flow.Delays, q float64, aliases ...string) field {
	return duration("pdm."+name, doc, func(r *flow.Record) time.Duration {
		if r.PDM == nil {
			return 0
		}
		return get(r.PDM).Quantile(q)
	}, aliases...)
}

func serverDelay(p *flow.PDM) *flow.Delays { return &p.Server }

func networkDelay(p *flow.PDM) *flow.Delays { return &p.Network }

// duration is a field that is absent when it is 0.
func duration(name, doc string, get func(*flow.Record) time.Duration, aliases ...string) field {
	return field{
		name: name, aliases: aliases, kind: kindDuration, max: 1<<63 - 1, doc: doc, sum: true,
		numbers: func(r *flow.Record) (a, b uint64, n int) {
			d := get(r)
			if d <= 0 {
				return 0, 0, 0
			}
			return uint64(d), 0, 1
		},
	}
}

func named(name string, aliases []string, doc string, names []string,
	get func(*flow.Record) uint64, nameOf func(uint64) string, parse func(string) (uint64, error),
) field {
	return field{
		name: name, aliases: aliases, kind: kindName, doc: doc, names: names, nameOf: nameOf, parseName: parse,
		numbers: func(r *flow.Record) (a, b uint64, n int) { return get(r), 0, 1 },
	}
}

// ofList is a field whose names are known beforehand.
func ofList(name string, aliases []string, doc string, list map[uint64]string, get func(*flow.Record) uint64) field {
	var names []string
	for _, n := range list {
		names = append(names, n)
	}
	slices.Sort(names)
	return named(name, aliases, doc, names, get,
		func(n uint64) string { return list[n] },
		func(s string) (uint64, error) {
			for n, text := range list {
				if text == s {
					return n, nil
				}
			}
			return 0, notOneOf(s, names)
		})
}

func attributed(get func(*flow.Record) uint64) func(*flow.Record) (uint64, uint64, int) {
	return func(r *flow.Record) (a, b uint64, n int) {
		if r.Unattributed {
			return 0, 0, 0
		}
		return get(r), 0, 1
	}
}

func icmp(get func(*flow.Record) uint64) func(*flow.Record) (uint64, uint64, int) {
	return func(r *flow.Record) (a, b uint64, n int) {
		if r.Unattributed || !r.ICMP() {
			return 0, 0, 0
		}
		return get(r), 0, 1
	}
}

func tunnels() map[uint64]string {
	m := map[uint64]string{}
	for t := flow.TunnelNone; t <= flow.TunnelIPIP; t++ {
		m[uint64(t)] = t.String()
	}
	return m
}

func initiators() map[uint64]string {
	m := map[uint64]string{}
	for i := flow.InitiatorUnknown; i <= flow.InitiatorDst; i++ {
		m[uint64(i)] = i.String()
	}
	return m
}

func evidence() map[uint64]string {
	m := map[uint64]string{}
	for e := flow.EvidenceNone; e <= flow.EvidenceHandshake; e++ {
		m[uint64(e)] = e.String()
	}
	return m
}

func endReasons() map[uint64]string {
	m := map[uint64]string{}
	for e := flow.EndReasonNone; e <= flow.EndReasonLackOfResources; e++ {
		m[uint64(e)] = e.String()
	}
	return m
}

// Field describes one field for the reference page.
type Field struct {
	Name, Doc, Example string
	Aliases            []string
	Sum                bool // of grouped records it tests the row
}

// Fields describes every field there is.
func Fields() []Field {
	list := make([]Field, len(fields))
	for i := range fields {
		f := &fields[i]
		list[i] = Field{Name: f.name, Doc: f.doc, Aliases: f.aliases, Example: f.kind.example(f), Sum: f.sum}
		if f.kind == kindFlag {
			list[i].Example = f.name
		}
	}
	return list
}
