// Package flow turns what a probe counted into flow records. Input: per scan
// interval, the deltas of a probe (datapath or capture). Output: records, of every
// interval for the live views, and of expired flows for the exporters.
package flow

import (
	"net/netip"
	"time"
)

// Direction of a packet at the interface it was counted on.
type Direction uint8

// Values as IPFIX flowDirection (element 61).
const (
	Ingress Direction = 0
	Egress  Direction = 1
)

// EndReason says why a record was exported, as IPFIX flowEndReason (element 136).
type EndReason uint8

// EndReasonNone marks a record of a flow that goes on: a delta of one scan interval.
const (
	EndReasonNone            EndReason = 0
	EndReasonIdleTimeout     EndReason = 1
	EndReasonActiveTimeout   EndReason = 2
	EndReasonEndOfFlow       EndReason = 3
	EndReasonForcedEnd       EndReason = 4
	EndReasonLackOfResources EndReason = 5
)

// Record is one flow in one direction on one interface over one interval. All
// counters are deltas over [First, Last] and count packets as they are on the
// wire: segments, not GSO bursts.
type Record struct {
	Iface     string // interface name
	Netns     string // name of its network namespace; empty: the agent's own
	IfIndex   uint32
	Direction Direction

	Other        string // interface on the other side of packets that XDP forwarded; empty: it forwarded none
	OtherIfIndex uint32

	Family           uint8      // IP version, 4 or 6; also when Unattributed
	Src, Dst         netip.Addr // IPv4 as 4-byte, IPv6 as 16-byte addresses; zero when Unattributed
	Proto            uint8      // IANA protocol number, after IPv6 extension headers
	SrcPort, DstPort uint16     // ICMP: echo identifier and type<<8|code
	VLAN, InnerVLAN  uint16     // outer and inner VLAN id, 0: untagged
	Tunnel           Tunnel     // what was taken off to reach this flow
	VNI              uint32     // VXLAN or Geneve network, GRE key

	TOS            uint8  // of the first packet: DSCP<<2 | ECN
	TCPFlags       uint16 // or of all packets, bits as on the wire (RFC 9293, 12 bits)
	FlowLabel      uint32 // IPv6, of the first packet
	TTLMin, TTLMax uint8  // TTL or hop limit

	Counters

	First, Last time.Time // of the packets counted here
	EndReason   EndReason

	// Unattributed is true for packets that were counted but whose flow could
	// not be kept: no addresses and ports, all else as far as known.
	Unattributed bool

	Initiator   Initiator // which end began the conversation
	InitiatorBy Evidence  // how that is known

	RTT  RTT
	Drop *Drop // nil: no rule dropped packets; shared between records, never changed
	PDM  *PDM  // nil: the flow is not marked
	IOAM *IOAM // nil: its packets bring no IOAM options that end here
}

// RTT is the TCP handshake seen from this interface; zero: not seen.
type RTT struct {
	Responder time.Duration // SYN to SYN-ACK: the way to the responder and back
	Initiator time.Duration // SYN-ACK to ACK: the way to the initiator and back
}

// Handshake is the whole round trip between both ends, or 0 when only one half was seen.
func (r RTT) Handshake() time.Duration {
	if r.Responder == 0 || r.Initiator == 0 {
		return 0
	}
	return r.Responder + r.Initiator
}

// Tunnel names the encapsulation that was taken off to reach a flow.
type Tunnel uint8

// Values as enum tunnel in bpf/abi.h.
const (
	TunnelNone   Tunnel = 0
	TunnelVXLAN  Tunnel = 1
	TunnelGeneve Tunnel = 2
	TunnelGRE    Tunnel = 3
	TunnelIPIP   Tunnel = 4
)
