package filter

import (
	"math"
	"net/netip"
	"slices"
	"strings"

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
	signed   bool // a number in two's complement

	columns []column // of the record, one of which has to fit
	only    Node     // a record without it has none of them; nil: any may

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

// fields, in the order of the reference page: those of the record in its order, with
// those that are two of it among them, and those that are part of one.
var fields = func() []field {
	var list []field
	for i := range flow.Fields {
		if f, ok := ofRecordField(&flow.Fields[i]); ok {
			list = append(list, f)
		}
		if flow.Fields[i].Name == "dport" {
			list = append(list, eitherEnd...)
		}
	}
	return append(list, parts...)
}()

// eitherEnd are those of one or the other end of a flow.
var eitherEnd = []field{
	{
		name: "addr", aliases: []string{"host", "net", "ip", "src or dst", "src or dst host", "src or dst net"},
		kind: kindAddress, doc: "source or destination address", example: "host 192.0.2.1, net 10/8, host www.example.com",
		columns:   []column{{of: flow.FieldNamed("src")}, {of: flow.FieldNamed("dst")}},
		addresses: func(r *flow.Record) (a, b netip.Addr) { return r.Src, r.Dst },
	},
	{
		name: "port", aliases: []string{"portrange", "src or dst port", "src or dst portrange"}, example: "port 53, port 443 or 8080, portrange 8000-8099",
		kind: kindNumber, max: 1<<16 - 1, services: true, doc: "source or destination port, not of ICMP",
		columns: []column{{of: flow.FieldNamed("sport")}, {of: flow.FieldNamed("dport")}},
		only:    Not{isICMP},
		numbers: func(r *flow.Record) (a, b uint64, n int) {
			if r.Unattributed || r.ICMP() {
				return 0, 0, 0
			}
			return uint64(r.SrcPort), uint64(r.DstPort), 2
		},
	},
}

// parts are made of some bits of a field, or of whether there is one.
var parts = []field{
	{
		name: "dscp", kind: kindNumber, max: 63, doc: "DSCP of the first packet",
		columns: []column{{of: flow.FieldNamed("tos"), mask: 0xfc, shift: 2}},
		numbers: func(r *flow.Record) (a, b uint64, n int) { return uint64(r.TOS >> 2), 0, 1 },
	},
	{
		name: "ecn", kind: kindNumber, max: 3, doc: "ECN of the first packet",
		columns: []column{{of: flow.FieldNamed("tos"), mask: 3}},
		numbers: func(r *flow.Record) (a, b uint64, n int) { return uint64(r.TOS & 3), 0, 1 },
	},
	{
		name: "pdm", aliases: []string{"marked"}, kind: kindFlag, doc: "flows whose packets carry PDM, sent or received",
		columns: []column{{of: flow.FieldNamed("pdm.sent")}},
		flag:    func(r *flow.Record) bool { return r.PDM != nil },
	},
	{
		name: "ioam", kind: kindFlag, doc: "flows whose packets bring IOAM traces or edge-to-edge options that end at this node",
		columns: []column{{of: flow.FieldNamed("ioam.packets")}},
		flag:    func(r *flow.Record) bool { return r.IOAM != nil },
	},
}

// ofRecordField is the test of a field of the record; not all have one.
func ofRecordField(of *flow.Field) (f field, ok bool) {
	doc, _, _ := strings.Cut(of.Doc, "; absent")
	f = field{
		name: of.Name, aliases: of.Aliases, doc: doc, example: of.Example, max: of.Max, services: of.Port, sum: of.Merge.Sum(),
		columns: []column{{of: of}},
	}
	switch {
	case of.Kind == flow.Text && of.Str != nil:
		f.kind, f.text = kindText, of.Str
		f.doc += ": a name or a glob"
	case of.Kind == flow.Address:
		f.kind = kindAddress
		f.addresses = func(r *flow.Record) (a, b netip.Addr) { return of.Addr(r), netip.Addr{} }
	case of.Kind == flow.Flag:
		f.kind = kindFlag
		f.flag = func(r *flow.Record) bool { return of.Uint(r) != 0 }
	case of.Uint == nil:
		return f, false
	default:
		f.numbers = func(r *flow.Record) (a, b uint64, n int) {
			if of.Missing != nil && of.Missing(r) {
				return 0, 0, 0
			}
			return of.Uint(r), 0, 1
		}
		f.setNumber(of)
	}
	return f, true
}

// setNumber sets how a number is written.
func (f *field) setNumber(of *flow.Field) {
	switch {
	case of.Name == "direction":
		f.named([]string{"ingress", "egress", "in", "out", "inbound", "outbound"}, of.Values, parseDirection)
	case of.Name == "family":
		f.named([]string{"4", "6"}, []string{4: "4", 6: "6"}, nil)
	case of.Kind == flow.Name:
		f.named(slices.Sorted(slices.Values(of.Values)), of.Values, nil)
	case of.Kind == flow.Protocol:
		f.kind, f.parseName = kindName, parseProto
		f.names = []string{"tcp", "udp", "icmp", "icmpv6", "sctp", "or a number up to 255"}
		f.nameOf = func(n uint64) string { return flow.ProtoName(uint8(n)) }
	case of.Kind == flow.Bits:
		f.setFlags(of)
	case of.Duration():
		f.kind, f.max = kindDuration, math.MaxInt64
	case of.Kind == flow.Signed:
		f.kind, f.signed, f.max = kindNumber, true, math.MaxInt64
	default:
		f.kind, f.size = kindNumber, of.Unit == "bytes"
	}
}

// named is a field of few words: those to offer, and by value. Nil: a word is the one
// by value.
func (f *field) named(offered, byValue []string, parse func(string) (uint64, error)) {
	f.kind, f.names = kindName, offered
	f.nameOf = func(n uint64) string { return byValue[n] }
	f.parseName = parse
	if parse == nil {
		f.parseName = func(s string) (uint64, error) {
			if n := slices.Index(byValue, s); n >= 0 && s != "" {
				return uint64(n), nil
			}
			return 0, notOneOf(s, offered)
		}
	}
}

// setFlags makes a field one of TCP flags.
func (f *field) setFlags(of *flow.Field) {
	f.kind, f.names, f.parseName, f.only = kindBits, flagNames, parseFlags, isTCP
	f.doc += "; + joins bits that must all be there, 0 is none"
	f.numbers = func(r *flow.Record) (a, b uint64, n int) {
		if r.Proto != 6 {
			return 0, 0, 0
		}
		return of.Uint(r), 0, 1
	}
	f.nameOf = func(n uint64) string {
		if n == 0 {
			return "0" // no bit at all
		}
		return flow.TCPFlagNames(uint16(n))
	}
}

// short is the shorter name of a field in an inner object.
func (f *field) short() string {
	if strings.Contains(f.name, ".") && len(f.aliases) > 0 {
		return f.aliases[0]
	}
	return f.name
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
