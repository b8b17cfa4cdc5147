package flow

import (
	"math"
	"net/netip"
)

// Origin is what all records of one agent have in common.
type Origin struct {
	Host     string
	Sampling uint32 // one packet in so many was counted; 0 and 1: every one
}

// Kind is the type of a field's value.
type Kind uint8

const (
	Text     Kind = iota // any string
	Name                 // one of Field.Values
	Address              // IPv4 or IPv6
	Time                 // RFC 3339 with nine decimals, UTC
	Number               // unsigned, at most Field.Max
	Signed               // a whole number that may be negative, of 64 bits
	Flag                 // true or false
	Pairs                // [[index, count], …]
	Protocol             // a number in JSON, a name where people read it
	Bits                 // a number, of bits that have names
)

// Quoted reports whether a value is a string in JSON.
func (k Kind) Quoted() bool { return k <= Time }

// Number reports whether a value is an unsigned number in JSON.
func (k Kind) Number() bool { return k == Number || k == Protocol || k == Bits }

// Merge is what a row has of several records. A row of one flow has every field.
type Merge uint8

const (
	MergeKey    Merge = iota // rows are grouped by it, or do not have it
	MergeFirst               // only a row of one flow has it: that of the first record
	MergeSum                 //
	MergeOr                  // of the bits
	MergeMin                 //
	MergeMax                 //
	MergeMean                // of the records that have it
	MergeAgree               // what all records have
	MergeDelays              // a histogram, or what follows from one
)

// Sum reports whether the value of a row says something that no record of it does.
// A filter tests such a field of the row.
func (m Merge) Sum() bool { return m == MergeSum || m == MergeMean || m == MergeDelays }

// Field is one value of a record, and the only place that knows it: JSON, CSV, its
// schema, filters, keys to group by, what rows merge and are sorted by, tables,
// information elements, metrics, columns of databases and the reference pages are
// made of Fields.
type Field struct {
	Name    string    // JSON key, and the name everywhere else; a dot stands before the keys of inner objects
	Aliases []string  // further names in filters, some of several words, and in --sort
	Example string    // of a filter, where the one of its kind does not fit
	Title   string    // of a table's column, where the name does not fit
	Kind    Kind      //
	Unit    string    // of a number; empty: none
	Max     uint64    // of a number
	Values  []string  // of a Name
	Doc     string    // one sentence
	Merge   Merge     //
	IPFIX   []Element // that carry it, in data or options records; few fields have none

	Endpoint bool // of an end of the flow: a record that is unattributed has none
	Port     bool // a number that may be written as the name of a service
	Derived  bool // follows from other fields

	// Absent says that JSON leaves out the value: there is none, or it is the zero
	// value, which goes without saying. Nil: it is always there.
	Absent func(*Origin, *Record) bool
	// Missing says that a record has no such value, not even 0; nil: it always has.
	// No test of a filter matches a value that is missing.
	Missing func(*Record) bool
	// Append adds the value as plain text, without quotes.
	Append func([]byte, *Origin, *Record) []byte
	// Set is the inverse of Append; nil for values that follow from others.
	Set func(string, *Origin, *Record) error

	// The value by its kind; nil: it has none of this form. Uint is that of numbers
	// (Signed in two's complement), names by their index, and flags.
	Uint func(*Record) uint64
	Addr func(*Record) netip.Addr
	Str  func(*Record) string
	// Nanos is a time in nanoseconds since the Unix epoch; 0: none. Buckets is the value of Pairs.
	Nanos   func(*Record) int64
	Buckets func(*Record) []DelayBucket
	at      location // of what Uint reads
	// PutUint, PutAddr and PutStr are the inverse of Uint (or Nanos), Addr and Str, without a
	// check; nil where only Set is.
	PutUint func(*Record, uint64)
	PutAddr func(*Record, netip.Addr)
	PutStr  func(*Record, string)
	// PutPairs sets the buckets of a histogram, given as index and count of each by turns, after the fields that count it.
	PutPairs func(r *Record, pairs []uint64) error
	// Compare orders records by the field; nil: nobody sorts by it.
	Compare func(a, b *Record) int
	// AppendKey adds the value as bytes that differ where values do.
	AppendKey func([]byte, *Record) []byte
	// Copy sets the field to that of another record.
	Copy func(to, from *Record)
	// Combine adds to a record what another one of the same row has, as Merge says;
	// nil: it is not merged, or follows from what is.
	Combine func(to, from *Record)

	// Counter is where the field lies in Counters; nil: it is none of them.
	Counter func(*Counters) *uint64

	zeroAbsent bool // a record with the value 0 has none
	inObject   any  // func(*T) *uint64: where an unsigned sum lies in the object T; nil: it is none
}

// ICMP says whether the ports of the record are ICMP or ICMPv6 identifier, type and code.
func (r *Record) ICMP() bool {
	return r.Proto == protoICMP && r.Family == 4 || r.Proto == protoICMPv6 && r.Family == 6
}

// Range is the least and the most of a number.
func (f *Field) Range() (least int64, most uint64) {
	if f.Kind == Signed {
		return math.MinInt64, math.MaxInt64
	}
	return 0, f.Max
}

// AppendWord is Append for people and tables: a protocol by its name.
func (f *Field) AppendWord(b []byte, o *Origin, r *Record) []byte {
	if f.Kind == Protocol {
		return append(b, ProtoName(uint8(f.Uint(r)))...)
	}
	return f.Append(b, o, r)
}

// Choices are the values of a Name that a record may have.
func (f *Field) Choices() []string {
	if f.zeroAbsent && len(f.Values) > 0 {
		return f.Values[1:]
	}
	return f.Values
}

// Duration reports whether the value is a time span in nanoseconds.
func (f *Field) Duration() bool { return f.Unit == "ns" }

// Short is the name in tables and lists of names: the first alias of a field in an
// inner object, if it has one.
func (f *Field) Short() string {
	if object, _ := f.Inside(); object != "" && len(f.Aliases) > 0 {
		return f.Aliases[0]
	}
	return f.Name
}

// FieldNamed finds a field by its name or an alias; nil: there is none.
func FieldNamed(name string) *Field { return byName[name] }

var byName = func() map[string]*Field {
	m := make(map[string]*Field, len(Fields))
	for i := range Fields {
		for _, name := range append([]string{Fields[i].Name}, Fields[i].Aliases...) {
			m[name] = &Fields[i]
		}
	}
	return m
}()
