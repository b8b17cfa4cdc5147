package ipfix

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// Set ids (RFC 7011 section 3.3.2).
const (
	setTemplate        = 2
	setOptionsTemplate = 3
)

// Template ids. Flow templates are distinguished by the bits of a variant.
const (
	idFlow = 256

	variantExtra  = 1 << 0 // with what few flows have
	variantIPv6   = 1 << 1
	variantICMP   = 1 << 2 // ICMP or ICMPv6
	variantBiflow = 1 << 3 // both halves of a conversation
	variantPDM    = 1 << 4 // marked; in IPv6, and never with variantBiflow
	variantDrop   = 1 << 5 // rules of the gate dropped packets; never with variantBiflow
	variants      = 1 << 6
)

const (
	idUnattributed = idFlow + variants + iota
	idIOAM         // the last one of flows
	idDomain
	idInterface
	idVRF
	idSampling
	idSamplingInterval
	idStatistics
	idNotSent
	idFlowKeys
	idType // the last
)

// field is an element in a template.
type field struct {
	*Element
	key     bool // distinguishes this flow from others
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

	blockICMP  = keys("waymarkICMPIdentifier")
	blockVRF   = keys("ingressVRFID", "egressVRFID")
	blockExtra = keys("ingressVRFID", "egressVRFID", "dot1qVlanId", "dot1qCustomerVlanId", "layer2SegmentId", "waymarkTunnelType", "waymarkTunnelKey")

	blockInitiator = values("waymarkInitiator", "waymarkInitiatorEvidence")
	blockBiflow    = values("biflowDirection")

	// A half is made of these; a conversation has two.
	blockHalf = values("octetDeltaCount", "packetDeltaCount", "layer2OctetDeltaCount", "transportOctetDeltaCount",
		// Collectors that read only one unit find it, the others the exact one last.
		"flowStartMilliseconds", "flowEndMilliseconds", "flowStartNanoseconds", "flowEndNanoseconds",
		"tcpControlBits", "ipClassOfService", "minimumTTL", "maximumTTL", "flowEndReason")
	blockHalfIPv6   = values("flowLabelIPv6")
	blockHalfICMPv4 = values("icmpTypeCodeIPv4")
	blockHalfICMPv6 = values("icmpTypeCodeIPv6")
	blockHalfExtra  = elementsOf(extraFields)

	blockPDM = elementsOf(pdmFields)

	blockDrop       = elementsOf(dropFields)
	blockDropMarked = elementsOf(markedDropFields)

	// Times of the flow, by which a record without counters is found again.
	blockTimes = values("flowStartNanoseconds", "flowEndNanoseconds")
	blockIOAM  = elementsOf(ioamFields)

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
			if f.Len != flow.VariableLen {
				t.length += int(f.Len)
			}
		}
		all[id] = t
	}
	for v := range uint16(variants) {
		key, half := flowBlocks(v)
		if v&variantBiflow != 0 {
			// The reverse half comes first: nfdump takes those of its elements
			// that it has no place for as forward ones, and the last one stays.
			half = join(blockBiflow, reversed(half), half)
		}
		if v&variantPDM != 0 {
			half = join(half, blockPDM)
		}
		switch v & (variantDrop | variantPDM) {
		case variantDrop:
			half = join(half, blockDrop)
		case variantDrop | variantPDM:
			half = join(half, blockDropMarked)
		}
		add(idFlow+v, 0, key, blockInitiator, half)
	}
	add(idUnattributed, 0, blockCommon, blockExtra, blockHalf, blockHalfExtra, blockDrop, blockUnattributed)

	// What IOAM reported of a flow is a record of its own: with it, those of marked flows would
	// have more fields than collectors take. It has no counters, so nothing is counted twice.
	add(idIOAM, 0, blockIPv6, blockCommon, blockICMP, blockVRF, blockTimes, blockIOAM)

	add(idDomain, 1, values("observationDomainId", "observationDomainName"))
	// Scope and lengths are those that nfdump understands.
	add(idInterface, 1, values("observationDomainId", "ingressInterface", "interfaceName", "interfaceDescription"))
	add(idVRF, 1, values("observationDomainId", "ingressVRFID", "VRFname"))
	// The elements of RFC 5477, and the older ones, which goflow2 reads.
	add(idSampling, 1, values("selectorId", "selectorAlgorithm", "samplingProbability"))
	add(idSamplingInterval, 1, values("observationDomainId", "samplingInterval", "samplingAlgorithm"))
	add(idStatistics, 1, values("observationDomainId", "exportedMessageTotalCount", "exportedFlowRecordTotalCount", "exportedOctetTotalCount"))
	add(idNotSent, 1, values("exportingProcessId", "notSentFlowTotalCount", "notSentPacketTotalCount", "notSentOctetTotalCount",
		"flowStartMilliseconds", "flowEndMilliseconds"))
	add(idFlowKeys, 1, values("templateId", "flowKeyIndicator"))
	add(idType, 2, values("privateEnterpriseNumber", "informationElementId",
		"informationElementDataType", "informationElementSemantics", "informationElementUnits",
		"informationElementRangeBegin", "informationElementRangeEnd", "informationElementName", "informationElementDescription"))
	return all
}()

// flowBlocks are the fields of one half in a variant.
func flowBlocks(v uint16) (key, half []field) {
	key, half = join(blockIPv4, blockCommon), blockHalf
	icmp := blockHalfICMPv4
	if v&variantIPv6 != 0 {
		key, half = join(blockIPv6, blockCommon), join(blockHalf, blockHalfIPv6)
		icmp = blockHalfICMPv6
	}
	if v&variantICMP != 0 {
		key, half = join(key, blockICMP), join(half, icmp)
	}
	if v&variantExtra != 0 {
		key, half = join(key, blockExtra), join(half, blockHalfExtra)
	}
	return key, half
}

// flowLengths are the bytes of a flow record by id - idFlow.
var flowLengths = func() (lengths [idUnattributed - idFlow + 1]int) {
	for i := range lengths {
		lengths[i] = templates[idFlow+uint16(i)].length
	}
	return lengths
}()

// extraFields are the counters that are not in blockHalf, and round trips.
var extraFields = slices.Concat(
	fieldsWhere(flow.CounterFields, func(f *flow.Field) bool {
		return len(f.IPFIX) > 0 && !slices.ContainsFunc(blockHalf, func(in field) bool { return in.Name == f.IPFIX[0].Name }) && !isDrop(f)
	}),
	fieldsWhere(flow.Fields, func(f *flow.Field) bool { return strings.HasPrefix(f.Name, "rtt.") && !f.Derived }),
)

// pdmFields are those of marked flows that have an element.
var pdmFields = fieldsWhere(flow.Fields, func(f *flow.Field) bool { return strings.HasPrefix(f.Name, "pdm.") && len(f.IPFIX) > 0 })

func isDrop(f *flow.Field) bool { return strings.HasPrefix(f.Name, "drops.") }

// dropFields are those of flows of which rules dropped packets. Of marked ones only so many are sent that
// collectors take the template.
var (
	dropFields       = fieldsWhere(flow.Fields, func(f *flow.Field) bool { return isDrop(f) && len(f.IPFIX) > 0 })
	markedDropFields = fieldsWhere(flow.Fields, func(f *flow.Field) bool { return f.Name == "drops.packets" || f.Name == "drops.rule" })
)

// ioamFields are those of the object ioam, likewise.
var ioamFields = fieldsWhere(flow.Fields, func(f *flow.Field) bool { return strings.HasPrefix(f.Name, "ioam.") && len(f.IPFIX) > 0 })

func fieldsWhere(fields []flow.Field, is func(*flow.Field) bool) (list []*flow.Field) {
	for i := range fields {
		if is(&fields[i]) {
			list = append(list, &fields[i])
		}
	}
	return list
}

func elementsOf(fields []*flow.Field) (list []field) {
	for _, f := range fields {
		list = append(list, values(f.IPFIX[0].Name)...)
	}
	return list
}

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
