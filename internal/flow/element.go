package flow

// Element is an information element of IPFIX.
type Element struct {
	ID        uint16
	Own       bool // one of Waymark's, under the configured enterprise number
	Name      string
	Type      string // abstract data type (RFC 7012 section 3.1)
	Semantics string // RFC 7012 section 3.2; empty: default
	Len       uint16 // in bytes, or VariableLen
	Doc       string // what Waymark puts there
}

// VariableLen is the length of a variable-length element in a template (RFC 7011
// section 7).
const VariableLen = 65535

// elementLens are the bytes of types whose length is fixed.
var elementLens = map[string]uint16{
	"unsigned8": 1, "unsigned16": 2, "unsigned32": 4, "unsigned64": 8, "signed64": 8, "float64": 8, "boolean": 1,
	"ipv4Address": 4, "ipv6Address": 16, "dateTimeMilliseconds": 8, "dateTimeNanoseconds": 8,
}

// IANA is a standard element.
func IANA(id uint16, name, dataType, semantics, doc string) Element {
	return Element{ID: id, Name: name, Type: dataType, Semantics: semantics, Len: elementLens[dataType], Doc: doc}
}

// IANAText is a standard element of text: of a length, filled with zeros, or of
// VariableLen.
func IANAText(id uint16, name string, length uint16, doc string) Element {
	return Element{ID: id, Name: name, Type: "string", Len: length, Doc: doc}
}

// own is one of Waymark's elements.
func own(id uint16, name, dataType, semantics, doc string) Element {
	e := IANA(id, name, dataType, semantics, doc)
	e.Own = true
	return e
}

// Elements that belong to two fields.
var (
	responderRTT = own(5, "waymarkResponderRTTNanoseconds", "unsigned64", "quantity", "TCP handshake, SYN to SYN-ACK; 0: not seen")
	initiatorRTT = own(6, "waymarkInitiatorRTTNanoseconds", "unsigned64", "quantity", "TCP handshake, SYN-ACK to ACK; 0: not seen")

	icmpTypeCode4 = IANA(32, "icmpTypeCodeIPv4", "unsigned16", "identifier", "type × 256 + code")
	icmpTypeCode6 = IANA(139, "icmpTypeCodeIPv6", "unsigned16", "identifier", "type × 256 + code")
)
