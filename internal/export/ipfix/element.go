package ipfix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/flow"
)

// DocumentationPEN is the enterprise number that RFC 5612 sets aside for
// documentation. Waymark's own elements have it until the project holds one.
const DocumentationPEN = 32473

// reversePEN marks the reverse of a standard element (RFC 5103 section 6.1).
const reversePEN = 29305

// reverseBit makes the number of the reverse of one of Waymark's own elements
// (RFC 5103 section 6.2 leaves the choice to the enterprise).
const reverseBit = 1 << 14

// Element is an information element that the exporter sends.
type Element = flow.Element

// Elements are all information elements in use, for the encoder and the documents:
// those of the fields of records, then those of options.
func Elements() []Element { return elements }

// unit is the code of an own element's unit: packets, nanoseconds or none.
func unit(e *Element) uint16 {
	switch {
	case strings.HasSuffix(e.Name, "Nanoseconds"):
		return 8
	case e.Semantics == "deltaCounter" && !strings.HasSuffix(e.Name, "DelayDeltaCount") && !strings.HasSuffix(e.Name, "ChangeDeltaCount"):
		return 3
	}
	return 0
}

// Codes of the IPFIX registry that RFC 5610 refers to.
var (
	dataTypes = map[string]uint8{"unsigned8": 1, "unsigned16": 2, "unsigned32": 3, "unsigned64": 4, "signed64": 8, "boolean": 11, "string": 13}
	semantics = map[string]uint8{"": 0, "quantity": 1, "totalCounter": 2, "deltaCounter": 3, "identifier": 4, "flags": 5}
)

var elements = func() (list []Element) {
	add := func(of []Element) {
		for i := range of {
			if !slices.ContainsFunc(list, func(e Element) bool { return e.Name == of[i].Name }) {
				list = append(list, of[i])
			}
		}
	}
	for i := range flow.Fields {
		add(flow.Fields[i].IPFIX)
	}
	add(optionElements)
	return list
}()

// optionElements are of no field.
var optionElements = []Element{
	flow.IANA(149, "observationDomainId", "unsigned32", "identifier", "scope: this exporter"),
	flow.IANA(302, "selectorId", "unsigned64", "identifier", "scope: 1"),
	flow.IANA(304, "selectorAlgorithm", "unsigned16", "identifier", "4: uniform probabilistic sampling (RFC 5477)"),
	flow.IANA(35, "samplingAlgorithm", "unsigned8", "identifier", "1: deterministic, 2: random"),
	flow.IANA(41, "exportedMessageTotalCount", "unsigned64", "totalCounter", "messages sent since the agent started"),
	flow.IANA(42, "exportedFlowRecordTotalCount", "unsigned64", "totalCounter", "flow records sent since the agent started"),
	flow.IANA(40, "exportedOctetTotalCount", "unsigned64", "totalCounter", "bytes of these messages"),
	flow.IANA(144, "exportingProcessId", "unsigned32", "identifier", "scope: process id of the agent"),
	flow.IANA(166, "notSentFlowTotalCount", "unsigned64", "totalCounter", "flow records lost before they were sent"),
	flow.IANA(167, "notSentPacketTotalCount", "unsigned64", "totalCounter", "packets counted in these records"),
	flow.IANA(168, "notSentOctetTotalCount", "unsigned64", "totalCounter", "bytes counted in these records"),
	flow.IANA(346, "privateEnterpriseNumber", "unsigned32", "identifier", "scope: Waymark's number"),
	flow.IANA(303, "informationElementId", "unsigned16", "identifier", "scope: one of Waymark's own elements"),
	flow.IANA(339, "informationElementDataType", "unsigned8", "identifier", "its type (RFC 5610)"),
	flow.IANA(344, "informationElementSemantics", "unsigned8", "identifier", "its semantics (RFC 5610)"),
	flow.IANA(345, "informationElementUnits", "unsigned16", "identifier", "its unit (RFC 5610)"),
	flow.IANA(342, "informationElementRangeBegin", "unsigned64", "quantity", "0: any value of the type"),
	flow.IANA(343, "informationElementRangeEnd", "unsigned64", "quantity", "0: any value of the type"),
	flow.IANAText(341, "informationElementName", flow.VariableLen, "its name"),
	flow.IANAText(340, "informationElementDescription", flow.VariableLen, "what it says"),
	flow.IANA(145, "templateId", "unsigned16", "identifier", "scope: a template"),
	flow.IANA(173, "flowKeyIndicator", "unsigned64", "flags", "bit n: field n of the template is a flow key"),
}

func element(name string) *Element {
	for i := range elements {
		if elements[i].Name == name {
			return &elements[i]
		}
	}
	panic(fmt.Sprintf("ipfix: no element %q in the table", name))
}
