package ipfix

import (
	"fmt"
	"strings"
)

// DocumentationPEN is the enterprise number that RFC 5612 sets aside for
// documentation. Waymark's own elements have it until the project holds one.
const DocumentationPEN = 32473

// reversePEN marks the reverse of a standard element (RFC 5103 section 6.1).
const reversePEN = 29305

// reverseBit makes the number of the reverse of one of Waymark's own elements
// (RFC 5103 section 6.2 leaves the choice to the enterprise).
const reverseBit = 1 << 14

// variable is the length of a variable-length element in a template (RFC 7011 section 7).
const variable = 65535

// Element is an information element that the exporter sends.
type Element struct {
	ID        uint16
	Own       bool // one of Waymark's, under the configured enterprise number
	Name      string
	Type      string // abstract data type (RFC 7012 section 3.1)
	Semantics string // RFC 7012 section 3.2; empty: default
	Len       uint16 // octets, or variable
	Doc       string // what Waymark puts there
}

// Elements are all information elements in use, for the encoder and the documents.
func Elements() []Element { return elements }

// unit is the code of an own element's unit: packets, nanoseconds or none.
func (e *Element) unit() uint16 {
	switch {
	case strings.HasSuffix(e.Name, "Nanoseconds"):
		return 8
	case e.Semantics == "deltaCounter" && !strings.HasSuffix(e.Name, "DelayDeltaCount"):
		return 3
	}
	return 0
}

// Codes of the IPFIX registry that RFC 5610 refers to.
var (
	dataTypes = map[string]uint8{"unsigned8": 1, "unsigned16": 2, "unsigned32": 3, "unsigned64": 4, "signed64": 8, "boolean": 11}
	semantics = map[string]uint8{"": 0, "quantity": 1, "totalCounter": 2, "deltaCounter": 3, "identifier": 4, "flags": 5}
)

var elements = []Element{
	// The flow.
	{8, false, "sourceIPv4Address", "ipv4Address", "", 4, "source"},
	{12, false, "destinationIPv4Address", "ipv4Address", "", 4, "destination"},
	{27, false, "sourceIPv6Address", "ipv6Address", "", 16, "source"},
	{28, false, "destinationIPv6Address", "ipv6Address", "", 16, "destination"},
	{7, false, "sourceTransportPort", "unsigned16", "identifier", 2, "source port; ICMP: 0"},
	{11, false, "destinationTransportPort", "unsigned16", "identifier", 2, "destination port; ICMP: type × 256 + code"},
	{4, false, "protocolIdentifier", "unsigned8", "identifier", 1, "protocol, after IPv6 extension headers"},
	{60, false, "ipVersion", "unsigned8", "identifier", 1, "4 or 6"},
	{58, false, "vlanId", "unsigned16", "identifier", 2, "outer VLAN tag, 0: untagged"},
	{10, false, "ingressInterface", "unsigned32", "identifier", 4, "interface of an ingress record, 0 of an egress record: its index; in another network namespace ingressVRFID << 22 + index"},
	{14, false, "egressInterface", "unsigned32", "identifier", 4, "likewise of an egress record"},
	{61, false, "flowDirection", "unsigned8", "identifier", 1, "0 ingress, 1 egress"},

	// What was counted.
	{1, false, "octetDeltaCount", "unsigned64", "deltaCounter", 8, "IP octets, headers included"},
	{2, false, "packetDeltaCount", "unsigned64", "deltaCounter", 8, "packets on the wire"},
	{352, false, "layer2OctetDeltaCount", "unsigned64", "deltaCounter", 8, "IP octets, link header, padding and tunnel headers"},
	{401, false, "transportOctetDeltaCount", "unsigned64", "deltaCounter", 8, "octets above the transport header"},
	{152, false, "flowStartMilliseconds", "dateTimeMilliseconds", "quantity", 8, "first packet, rounded down"},
	{153, false, "flowEndMilliseconds", "dateTimeMilliseconds", "quantity", 8, "last packet, rounded down"},
	{156, false, "flowStartNanoseconds", "dateTimeNanoseconds", "quantity", 8, "first packet, exact"},
	{157, false, "flowEndNanoseconds", "dateTimeNanoseconds", "quantity", 8, "last packet, exact"},
	{6, false, "tcpControlBits", "unsigned16", "flags", 2, "flags of all packets or'ed, as on the wire"},
	{5, false, "ipClassOfService", "unsigned8", "identifier", 1, "TOS or traffic class of the first packet"},
	{52, false, "minimumTTL", "unsigned8", "quantity", 1, "smallest TTL or hop limit"},
	{53, false, "maximumTTL", "unsigned8", "quantity", 1, "largest TTL or hop limit"},
	{136, false, "flowEndReason", "unsigned8", "identifier", 1, "why the record was exported"},
	{32, false, "icmpTypeCodeIPv4", "unsigned16", "identifier", 2, "type × 256 + code"},
	{139, false, "icmpTypeCodeIPv6", "unsigned16", "identifier", 2, "type × 256 + code"},
	{31, false, "flowLabelIPv6", "unsigned32", "identifier", 4, "flow label of the first packet"},
	{239, false, "biflowDirection", "unsigned8", "identifier", 1, "1: the source is the initiator; 0: not known, the order is a guess by the ports"},

	// What few flows have, in templates of their own.
	{234, false, "ingressVRFID", "unsigned32", "identifier", 4, "number of the network namespace of ingressInterface, 0: the agent's own"},
	{235, false, "egressVRFID", "unsigned32", "identifier", 4, "number of the network namespace of egressInterface, 0: the agent's own"},
	{243, false, "dot1qVlanId", "unsigned16", "identifier", 2, "outer VLAN tag"},
	{245, false, "dot1qCustomerVlanId", "unsigned16", "identifier", 2, "inner VLAN tag"},
	{351, false, "layer2SegmentId", "unsigned64", "identifier", 8, "VXLAN: 1 << 56 + network, else 0"},
	{1, true, "waymarkTunnelType", "unsigned8", "identifier", 1, "encapsulation taken off: 0 none, 1 VXLAN, 2 Geneve, 3 GRE, 4 IP in IP"},
	{2, true, "waymarkTunnelKey", "unsigned32", "identifier", 4, "VXLAN or Geneve network, or GRE key"},
	{3, true, "waymarkFragmentDeltaCount", "unsigned64", "deltaCounter", 8, "packets that are IP fragments"},
	{4, true, "waymarkCEPacketDeltaCount", "unsigned64", "deltaCounter", 8, "packets marked congestion experienced"},
	{5, true, "waymarkResponderRTTNanoseconds", "unsigned64", "quantity", 8, "TCP handshake, SYN to SYN-ACK; 0: not seen"},
	{6, true, "waymarkInitiatorRTTNanoseconds", "unsigned64", "quantity", 8, "TCP handshake, SYN-ACK to ACK; 0: not seen"},
	{7, true, "waymarkICMPIdentifier", "unsigned16", "identifier", 2, "ICMP echo identifier, else 0"},
	{8, true, "waymarkUnattributed", "boolean", "", 1, "true: packets whose flow could not be kept"},
	{28, true, "waymarkInitiator", "unsigned8", "identifier", 1, "who began the conversation: 1 the source, 2 the destination, 0 not known"},
	{29, true, "waymarkInitiatorEvidence", "unsigned8", "identifier", 1, "how that is known: 1 a guess by the ports, 2 whose packet was seen first, 3 an ICMP echo request, 4 a TCP handshake; 0 not known"},

	// What PDM (RFC 8250) told, in templates of their own; both halves of a marked
	// conversation are flows. The pathDelay elements of RFC 9951 don't fit, as they
	// are of one way.
	{9, true, "waymarkPDMSentDeltaCount", "unsigned64", "deltaCounter", 8, "packets marked here, a GSO burst as one"},
	{10, true, "waymarkPDMReceivedDeltaCount", "unsigned64", "deltaCounter", 8, "packets of the peer whose marks were read and believed, a GSO burst as one"},
	{11, true, "waymarkPDMLostDeltaCount", "signed64", "deltaCounter", 8, "packets of the peer that did not come; one that comes after its loss was reported offsets the next loss"},
	{12, true, "waymarkPDMReorderedDeltaCount", "unsigned64", "deltaCounter", 8, "packets of the peer that came behind later ones"},
	{13, true, "waymarkPDMDuplicateDeltaCount", "unsigned64", "deltaCounter", 8, "packets of the peer that arrived more than once"},
	{14, true, "waymarkPDMSuspiciousDeltaCount", "unsigned64", "deltaCounter", 8, "packets with impossible times, or with numbers that are not believed: kept out of the delays"},
	{15, true, "waymarkPDMDiscardedDeltaCount", "unsigned64", "deltaCounter", 8, "packets in order that do not answer the packet sent last"},
	{16, true, "waymarkPDMServerDelayDeltaCount", "unsigned64", "deltaCounter", 8, "number of delays measured; server delay: at the peer, from a request's arrival to its answer"},
	{17, true, "waymarkPDMServerDelaySumNanoseconds", "unsigned64", "deltaCounter", 8, "server delay: their sum"},
	{18, true, "waymarkPDMServerDelayMinNanoseconds", "unsigned64", "quantity", 8, "server delay: the shortest; 0: none was measured"},
	{19, true, "waymarkPDMServerDelayMaxNanoseconds", "unsigned64", "quantity", 8, "server delay: the longest"},
	{20, true, "waymarkPDMServerDelayMedianNanoseconds", "unsigned64", "quantity", 8, "server delay: the median, within 6 %"},
	{21, true, "waymarkPDMServerDelayP99Nanoseconds", "unsigned64", "quantity", 8, "server delay: what 99 of 100 do not exceed, within 6 %"},
	{22, true, "waymarkPDMNetworkDelayDeltaCount", "unsigned64", "deltaCounter", 8, "number of delays measured; network delay: a round trip without the time at the peer"},
	{23, true, "waymarkPDMNetworkDelaySumNanoseconds", "unsigned64", "deltaCounter", 8, "network delay: their sum"},
	{24, true, "waymarkPDMNetworkDelayMinNanoseconds", "unsigned64", "quantity", 8, "network delay: the shortest; 0: none was measured"},
	{25, true, "waymarkPDMNetworkDelayMaxNanoseconds", "unsigned64", "quantity", 8, "network delay: the longest"},
	{26, true, "waymarkPDMNetworkDelayMedianNanoseconds", "unsigned64", "quantity", 8, "network delay: the median, within 6 %"},
	{27, true, "waymarkPDMNetworkDelayP99Nanoseconds", "unsigned64", "quantity", 8, "network delay: what 99 of 100 do not exceed, within 6 %"},

	// Options.
	{149, false, "observationDomainId", "unsigned32", "identifier", 4, "scope: this exporter"},
	{300, false, "observationDomainName", "string", "", variable, "host name"},
	{82, false, "interfaceName", "string", "", 16, "name, filled with zeros"},
	{83, false, "interfaceDescription", "string", "", 64, "name, network namespace and host, filled with zeros"},
	{236, false, "VRFname", "string", "", 64, "network namespace, filled with zeros"},
	{302, false, "selectorId", "unsigned64", "identifier", 8, "scope: 1"},
	{304, false, "selectorAlgorithm", "unsigned16", "identifier", 2, "4: uniform probabilistic sampling (RFC 5477)"},
	{311, false, "samplingProbability", "float64", "", 8, "of a packet to be counted"},
	{34, false, "samplingInterval", "unsigned32", "quantity", 4, "N of 1:N, for collectors that know no samplingProbability; 1: every packet is counted"},
	{35, false, "samplingAlgorithm", "unsigned8", "identifier", 1, "1: deterministic, 2: random"},
	{41, false, "exportedMessageTotalCount", "unsigned64", "totalCounter", 8, "messages sent since the agent started"},
	{42, false, "exportedFlowRecordTotalCount", "unsigned64", "totalCounter", 8, "flow records sent since the agent started"},
	{40, false, "exportedOctetTotalCount", "unsigned64", "totalCounter", 8, "octets of these messages"},
	{144, false, "exportingProcessId", "unsigned32", "identifier", 4, "scope: process id of the agent"},
	{166, false, "notSentFlowTotalCount", "unsigned64", "totalCounter", 8, "flow records lost before they were sent"},
	{167, false, "notSentPacketTotalCount", "unsigned64", "totalCounter", 8, "packets counted in these records"},
	{168, false, "notSentOctetTotalCount", "unsigned64", "totalCounter", 8, "octets counted in these records"},
	{346, false, "privateEnterpriseNumber", "unsigned32", "identifier", 4, "scope: Waymark's number"},
	{303, false, "informationElementId", "unsigned16", "identifier", 2, "scope: one of Waymark's own elements"},
	{339, false, "informationElementDataType", "unsigned8", "identifier", 1, "its type (RFC 5610)"},
	{344, false, "informationElementSemantics", "unsigned8", "identifier", 1, "its semantics (RFC 5610)"},
	{345, false, "informationElementUnits", "unsigned16", "identifier", 2, "its unit (RFC 5610)"},
	{342, false, "informationElementRangeBegin", "unsigned64", "quantity", 8, "0: any value of the type"},
	{343, false, "informationElementRangeEnd", "unsigned64", "quantity", 8, "0: any value of the type"},
	{341, false, "informationElementName", "string", "", variable, "its name"},
	{340, false, "informationElementDescription", "string", "", variable, "what it says"},
	{145, false, "templateId", "unsigned16", "identifier", 2, "scope: a template"},
	{173, false, "flowKeyIndicator", "unsigned64", "flags", 8, "bit n: field n of the template is a flow key"},
}

func element(name string) *Element {
	for i := range elements {
		if elements[i].Name == name {
			return &elements[i]
		}
	}
	panic(fmt.Sprintf("ipfix: no element %q in the table", name))
}
