package disk

import (
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/waymark-net/waymark/internal/flow"
)

// column is a column of a file: a field of the record, or one of the extras.
type column struct {
	name     string
	field    *flow.Field // nil: an extra
	node     parquet.Node
	optional bool
	pairs    bool
	// number is the value of a column of numbers, flags and times, unless it is one of blocks.
	number func(*entry) uint64
	wide   bool // of 64 bits
	flag   bool
	bytes  func(*entry, []byte) []byte // appends the value
}

// entry is a record with what files have in addition.
type entry struct {
	*flow.Record
	origin   *flow.Origin
	interval uint64
	// For databases: when the interval began, in ns since the Unix epoch, and the place in it.
	from int64
	row  int
}

// The extras: names that no field has.
const (
	columnInterval = "interval"
	columnRepeated = "repeated"
	columnIfIndex  = "ifindex"
	columnTime     = "time" // of the begin of an interval, for databases; files have it with their intervals
	columnRow      = "row"  // place in the interval, likewise
)

// objectNames are the inner objects that few records have.
var objectNames = []string{"drops", "pdm", "ioam"}

// lists are all columns: those of every file, and those of inner objects.
func lists() [][]column {
	all := [][]column{columns}
	for _, name := range objectNames {
		all = append(all, objects[name])
	}
	return all
}

// indexRepeated is the place of that extra in columns.
const indexRepeated = 1

// columns are those of every file, objects those that only files with such records have.
var columns, objects = func() (all []column, inner map[string][]column) {
	extra := func(name string, bits int, of func(*entry) uint64) {
		all = append(all, column{name: name, node: parquet.Encoded(parquet.Uint(bits), &parquet.RLEDictionary), number: of, wide: bits == 64})
	}
	extra(columnInterval, 64, func(e *entry) uint64 { return e.interval })
	extra(columnRepeated, 64, nil)
	extra(columnIfIndex, 32, func(e *entry) uint64 { return uint64(e.IfIndex) })
	inner = map[string][]column{}
	for i := range flow.Fields {
		c := columnOf(&flow.Fields[i])
		if object, _, ok := strings.Cut(c.name, "."); ok && slices.Contains(objectNames, object) && c.field.Counter == nil {
			inner[object] = append(inner[object], c)
			continue
		}
		all = append(all, c)
	}
	return all, inner
}()

// columnOf is the column of a field.
func columnOf(f *flow.Field) column {
	c := column{name: f.Name, field: f, optional: f.Missing != nil && f.Kind != flow.Pairs}
	switch {
	case f.Kind == flow.Pairs:
		c.pairs = true
		c.node = parquet.List(parquet.Uint(64))
		return c
	case f.Kind == flow.Time:
		c.wide = true
		c.number = func(e *entry) uint64 { return uint64(f.Nanos(e.Record)) }
		c.node = parquet.Encoded(parquet.Timestamp(parquet.Nanosecond), &parquet.DeltaBinaryPacked)
	case f.Kind == flow.Address:
		c.bytes = func(e *entry, b []byte) []byte { a := f.Addr(e.Record).As16(); return append(b, a[:]...) }
		c.node = parquet.Encoded(parquet.Leaf(parquet.FixedLenByteArrayType(16)), &parquet.RLEDictionary)
	case f.Kind == flow.Name:
		c.bytes = func(e *entry, b []byte) []byte { return append(b, f.Values[f.Uint(e.Record)]...) }
		c.node = parquet.Encoded(parquet.Enum(), &parquet.RLEDictionary)
	case f.Kind == flow.Text:
		c.bytes = func(e *entry, b []byte) []byte { return f.Append(b, e.origin, e.Record) }
		c.node = parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	default:
		c.setNumber(f)
	}
	if c.optional {
		c.node = parquet.Optional(c.node)
	}
	if c.address() { // their dictionaries are read by most queries
		c.node = parquet.Compressed(c.node, &parquet.Uncompressed)
	} else {
		c.node = parquet.Compressed(c.node, &compressed)
	}
	return c
}

// ofOrigin reports whether all records of a file have the same value, as the agent that wrote them has it.
func (c *column) ofOrigin() bool { return c.name == "host" || c.name == "sampling" }

// ofPlace reports whether the value is that of an interface.
func (c *column) ofPlace() bool {
	return c.name == "iface" || c.name == "netns" || c.name == "other_iface" || c.name == columnIfIndex
}

// address reports whether the values are addresses.
func (c *column) address() bool { return c.field != nil && c.field.Kind == flow.Address }

// coded reports whether values are stored as codes of a dictionary.
func (c *column) coded() bool {
	return !c.pairs && !c.flag && c.node.Encoding() == &parquet.RLEDictionary
}

// delta are numbers of which most are different.
func delta(f *flow.Field) bool { return f.Counter != nil || f.Duration() || f.Kind == flow.Signed }

func (c *column) setNumber(f *flow.Field) {
	c.number = func(e *entry) uint64 { return f.Uint(e.Record) }
	if f.Uint == nil { // of the origin, such as the sampling
		c.number = func(e *entry) uint64 {
			n, _ := strconv.ParseUint(string(f.Append(nil, e.origin, e.Record)), 10, 64)
			return n
		}
	}
	bits, _ := strconv.Atoi(f.Width())
	switch {
	case f.Kind == flow.Flag:
		c.flag = true
		c.node = parquet.Leaf(parquet.BooleanType)
		return
	case f.Kind == flow.Signed:
		c.node, c.wide = parquet.Int(64), true
	default:
		c.node, c.wide = parquet.Uint(bits), bits == 64
	}
	if c.wide && delta(f) {
		c.node = parquet.Encoded(c.node, &parquet.DeltaBinaryPacked)
	} else {
		c.node = parquet.Encoded(c.node, &parquet.RLEDictionary)
	}
}

// pairValues are index and count of each bucket by turns.
func (c *column) pairValues(to []parquet.Value, index int, r *flow.Record) []parquet.Value {
	buckets := c.field.Buckets(r)
	if len(buckets) == 0 {
		return append(to, parquet.NullValue().Level(0, 0, index))
	}
	for i, b := range buckets {
		repeats := 1
		if i == 0 {
			repeats = 0
		}
		to = append(to, parquet.Int64Value(int64(b.Index)).Level(repeats, 1, index), parquet.Int64Value(int64(b.Count)).Level(1, 1, index))
	}
	return to
}

// put sets the field of a record to a value that was read; of bytes, b.
func (c *column) put(r *flow.Record, n uint64, b []byte) error {
	f := c.field
	switch {
	case f.PutUint != nil && f.Kind == flow.Name:
		for i, v := range f.Values {
			if v == string(b) {
				f.PutUint(r, uint64(i))
			}
		}
	case f.PutUint != nil:
		f.PutUint(r, n)
	case f.PutAddr != nil:
		f.PutAddr(r, addressOf(b, r.Family))
	case f.PutStr != nil:
		f.PutStr(r, string(b))
	case f.Derived || f.Set == nil:
	case f.Kind == flow.Name && string(b) == f.Values[0]:
	case f.Kind == flow.Name:
		return f.Set(string(b), &flow.Origin{}, r)
	case f.Kind == flow.Text && len(b) == 0:
	case f.Kind == flow.Text:
		return f.Set(string(b), &flow.Origin{}, r)
	case f.Kind == flow.Signed:
		return f.Set(strconv.FormatInt(int64(n), 10), &flow.Origin{}, r)
	case f.Kind == flow.Flag:
		return f.Set(strconv.FormatBool(n != 0), &flow.Origin{}, r)
	default:
		return f.Set(strconv.FormatUint(n, 10), &flow.Origin{}, r)
	}
	return nil
}
