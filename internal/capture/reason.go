package capture

// reason says why a packet is in no flow, or what could not be learned of it.
// Names are those of enum reason in bpf/abi.h, so that both probes tell the same.
type reason uint8

const (
	counted reason = iota // in a flow

	// The packet is in no flow.
	reasonARP
	reasonEtherType  // neither IPv4 nor IPv6
	reasonVLANDepth  // more than two tags
	reasonTruncated  // shorter than its link or IP header, or a header was not captured
	reasonMalformed  // a length, version or IHL that cannot be
	reasonExtChain   // more than eight extension headers
	reasonSampledOut // not chosen
	reasonRingFull   // the ring was full

	// The packet is in a flow.
	reasonFragmentUnmatched // its first fragment was not seen: ports 0
	reasonHandshakeLost     // a handshake took the place of another
	reasonGSOInexact        // what its segments repeat is not known: too few bytes

	reasons // their number
)

// firstCounted is the first reason that does not take the packet out of the flows.
const firstCounted = reasonFragmentUnmatched

var reasonNames = [reasons]string{
	counted:                 "counted",
	reasonARP:               "arp",
	reasonEtherType:         "ethertype",
	reasonVLANDepth:         "vlan_depth",
	reasonTruncated:         "truncated",
	reasonMalformed:         "malformed",
	reasonExtChain:          "ext_chain",
	reasonSampledOut:        "sampled_out",
	reasonRingFull:          "ring_full",
	reasonFragmentUnmatched: "fragment_unmatched",
	reasonHandshakeLost:     "handshake_lost",
	reasonGSOInexact:        "gso_inexact",
}

func (r reason) String() string { return reasonNames[r] }
