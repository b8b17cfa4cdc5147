package ipfix

import "encoding/binary"

// Set ids (RFC 7011 section 3.3.2).
const (
	setTemplate        = 2
	setOptionsTemplate = 3
)

// Template ids. The variants of a flow template are told apart by bits.
const (
	idFlow = 256 // plus any of the variants

	variantExtra  = 1 << 0 // with what few flows have
	variantIPv6   = 1 << 1
	variantBiflow = 1 << 2 // both halves of a conversation
)

const (
	idUnattributed = idFlow + 8 + iota
	idDomain
	idInterface
	idSampling
	idStatistics
	idNotSent
	idFlowKeys
)

// field is an element in a template.
type field struct {
	*Element
	key     bool // tells this flow from others
	reverse bool // of the responder's half
}

// template describes data records: those of flows, or options when scope > 0.
type template struct {
	id     uint16
	scope  int // the first fields that are scope
	fields []field
	length int // of a record; without variable-length fields
}

// Blocks are runs of fields that one function in record.go writes.
var (
	blockIPv4   = keys("sourceIPv4Address", "destinationIPv4Address", "sourceTransportPort", "destinationTransportPort")
	blockIPv6   = keys("sourceIPv6Address", "destinationIPv6Address", "sourceTransportPort", "destinationTransportPort")
	blockCommon = keys("protocolIdentifier", "ipVersion", "vlanId", "ingressInterface", "egressInterface", "flowDirection")

	blockHalf = values("octetDeltaCount", "packetDeltaCount", "layer2OctetDeltaCount", "transportOctetDeltaCount",
		// Collectors that read only one unit find it, the others the exact one last.
		"flowStartMilliseconds", "flowEndMilliseconds", "flowStartNanoseconds", "flowEndNanoseconds",
		"tcpControlBits", "ipClassOfService", "minimumTTL", "maximumTTL", "flowEndReason")
	blockHalfIPv4 = values("icmpTypeCodeIPv4")
	blockHalfIPv6 = values("icmpTypeCodeIPv6", "flowLabelIPv6")
	blockBiflow   = values("biflowDirection")

	blockExtra     = keys("ingressVRFID", "egressVRFID", "dot1qVlanId", "dot1qCustomerVlanId", "layer2SegmentId", "waymarkTunnelType", "waymarkTunnelKey")
	blockExtraHalf = values("waymarkFragmentDeltaCount", "waymarkCEPacketDeltaCount", "waymarkResponderRTTNanoseconds", "waymarkInitiatorRTTNanoseconds")

	blockUnattributed = values("waymarkUnattributed")
)

// templates are all templates of an exporter, indexed by id.
var templates = func() map[uint16]*template {
	all := map[uint16]*template{}
	add := func(id uint16, scope int, blocks ...[]field) {
		t := &template{id: id, scope: scope}
		for _, b := range blocks {
			t.fields = append(t.fields, b...)
		}
		for _, f := range t.fields {
			if f.Len != variable {
				t.length += int(f.Len)
			}
		}
		all[id] = t
	}
	for variant := range uint16(8) {
		address, half := blockIPv4, join(blockHalf, blockHalfIPv4)
		if variant&variantIPv6 != 0 {
			address, half = blockIPv6, join(blockHalf, blockHalfIPv6)
		}
		var extra []field
		if variant&variantExtra != 0 {
			extra, half = blockExtra, join(half, blockExtraHalf)
		}
		if variant&variantBiflow != 0 {
			half = join(half, reversed(half), blockBiflow)
		}
		add(idFlow+variant, 0, address, blockCommon, extra, half)
	}
	add(idUnattributed, 0, blockCommon, blockExtra, blockHalf, blockExtraHalf, blockUnattributed)

	add(idDomain, 1, values("observationDomainId", "observationDomainName"))
	add(idInterface, 2, values("ingressInterface", "ingressVRFID", "interfaceName", "interfaceDescription", "VRFname"))
	add(idSampling, 1, values("selectorId", "selectorAlgorithm", "samplingProbability", "samplingAlgorithm", "samplingInterval"))
	add(idStatistics, 1, values("observationDomainId", "exportedMessageTotalCount", "exportedFlowRecordTotalCount", "exportedOctetTotalCount"))
	add(idNotSent, 1, values("exportingProcessId", "notSentFlowTotalCount", "notSentPacketTotalCount", "notSentOctetTotalCount",
		"flowStartMilliseconds", "flowEndMilliseconds"))
	add(idFlowKeys, 1, values("templateId", "flowKeyIndicator"))
	return all
}()

// flowLengths are the octets of a flow record by id - idFlow.
var flowLengths = func() (lengths [idUnattributed - idFlow + 1]int) {
	for i := range lengths {
		lengths[i] = templates[idFlow+uint16(i)].length
	}
	return lengths
}()

func values(names ...string) []field {
	var fields []field
	for _, n := range names {
		fields = append(fields, field{Element: element(n)})
	}
	return fields
}

func keys(names ...string) []field {
	fields := values(names...)
	for i := range fields {
		fields[i].key = true
	}
	return fields
}

func reversed(half []field) []field {
	var fields []field
	for _, f := range half {
		f.reverse = true
		fields = append(fields, f)
	}
	return fields
}

func join(blocks ...[]field) []field {
	var fields []field
	for _, b := range blocks {
		fields = append(fields, b...)
	}
	return fields
}

// appendTo adds the template record (RFC 7011 sections 3.4.1 and 3.4.2.2).
func (t *template) appendTo(b []byte, enterprise uint32) []byte {
	b = binary.BigEndian.AppendUint16(b, t.id)
	b = binary.BigEndian.AppendUint16(b, uint16(len(t.fields)))
	if t.scope > 0 {
		b = binary.BigEndian.AppendUint16(b, uint16(t.scope))
	}
	for _, f := range t.fields {
		b = f.appendTo(b, enterprise)
	}
	return b
}

// appendTo adds the field specifier (RFC 7011 section 3.2).
func (f field) appendTo(b []byte, enterprise uint32) []byte {
	const enterpriseBit = 1 << 15
	id, pen := f.ID, uint32(0)
	switch {
	case f.Own:
		pen = enterprise
		if f.reverse {
			id |= reverseBit
		}
	case f.reverse:
		pen = reversePEN
	}
	if pen == 0 {
		b = binary.BigEndian.AppendUint16(b, id)
		return binary.BigEndian.AppendUint16(b, f.Len)
	}
	b = binary.BigEndian.AppendUint16(b, id|enterpriseBit)
	b = binary.BigEndian.AppendUint16(b, f.Len)
	return binary.BigEndian.AppendUint32(b, pen)
}

// flowKeys is the template's flowKeyIndicator: bit n is field n.
func (t *template) flowKeys() (bits uint64) {
	for i, f := range t.fields {
		if f.key && i < 64 {
			bits |= 1 << i
		}
	}
	return bits
}
