package otlp

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waymark-net/waymark/internal/flow"
)

// EventName is that of log records which are flow records.
const EventName = "waymark.flow"

// Prefix of the attributes of a flow record: what follows is the field's name in JSON.
const Prefix = "flow."

// Fields of LogRecord (opentelemetry/proto/logs/v1).
const (
	logTime       protowire.Number = 1
	logSeverity   protowire.Number = 2
	logAttributes protowire.Number = 6
	logObserved   protowire.Number = 11
	logEventName  protowire.Number = 12
)

const severityInfo = 9

// column is a field of flow records as an attribute.
type column struct {
	*flow.Field
	key   key
	small []byte   // the attribute with a number below short, but for its last byte
	names [][]byte // attributes with the values of a Name, by index
}

// columns are those of each record. What the records of an agent have in common is in the resource.
var columns = func() (list []column) {
	for i := range flow.Fields {
		f := &flow.Fields[i]
		if f.Name == "host" {
			continue
		}
		c := column{Field: f, key: newKey(Prefix + f.Name)}
		c.small = appendAttribute(nil, logAttributes, c.key, appendInt(nil, 0))
		c.small = c.small[:len(c.small)-1]
		for _, name := range f.Values {
			c.names = append(c.names, appendAttribute(nil, logAttributes, c.key, appendString(nil, name)))
		}
		list = append(list, c)
	}
	return list
}()

// common is how many columns there are before the objects pdm and ioam, which few records have.
var common = slices.IndexFunc(columns, func(c column) bool { return strings.HasPrefix(c.Name, "pdm.") })

// encoder encodes flow records. Its memory is reused.
type encoder struct {
	origin flow.Origin
	words  bool // protocols by name
	record []byte
	value  value
	text   []byte
}

// append adds a flow record as a field of ScopeLogs. observed is when the agent had it.
func (e *encoder) append(b []byte, r *flow.Record, observed time.Time) []byte {
	e.record = e.record[:0]
	if !r.Last.IsZero() {
		e.record = appendFixed64(e.record, logTime, uint64(r.Last.UnixNano()))
	}
	e.record = appendNumber(e.record, logSeverity, severityInfo)
	columns := columns
	if r.PDM == nil && r.IOAM == nil {
		columns = columns[:common]
	}
	for i := range columns {
		c := &columns[i]
		if c.Absent != nil && c.Absent(&e.origin, r) {
			continue
		}
		e.attribute(c, r)
	}
	e.record = appendFixed64(e.record, logObserved, uint64(observed.UnixNano()))
	e.record = appendBytes(e.record, logEventName, EventName)
	return appendBytes(b, scopeRecords, e.record)
}

// attribute adds a field to the record: numbers and flags as such, all else as text as in JSON.
func (e *encoder) attribute(c *column, r *flow.Record) {
	v := e.value[:0]
	switch {
	case c.Kind == flow.Protocol && e.words:
		v = appendString(v, flow.ProtoName(uint8(c.Uint(r))))
	case c.Kind.Number() && c.Uint != nil:
		n := c.Uint(r)
		switch {
		case n < short: // most are, and this takes half of the time
			e.record = append(append(e.record, c.small...), byte(n))
			return
		case n > math.MaxInt64: // AnyValue has no unsigned numbers
			v = appendString(v, strconv.FormatUint(n, 10))
		default:
			v = appendInt(v, int64(n))
		}
	case c.Kind == flow.Name && c.Uint != nil && c.Uint(r) < uint64(len(c.names)):
		e.record = append(e.record, c.names[c.Uint(r)]...)
		return
	case c.Kind == flow.Flag:
		v = appendBool(v, c.Uint(r) != 0)
	case c.Kind == flow.Signed:
		v = appendInt(v, int64(c.Uint(r)))
	case c.Kind.Number(): // of the agent
		n, _ := strconv.ParseInt(string(c.Append(e.text[:0], &e.origin, r)), 10, 64)
		v = appendInt(v, n)
	case c.Kind == flow.Pairs:
		v = appendPairs(v, c.Buckets(r))
	default:
		v = e.appendText(v, c, r)
	}
	e.value = v
	e.record = appendAttribute(e.record, logAttributes, c.key, v)
}

func (e *encoder) appendText(v value, c *column, r *flow.Record) value {
	e.text = c.Append(e.text[:0], &e.origin, r)
	return appendText(v, e.text)
}

// appendPairs adds a histogram as an array of arrays of index and count.
func appendPairs(v value, buckets []flow.DelayBucket) value {
	var all, pair, elements, number value
	for _, b := range buckets {
		number = appendInt(number[:0], int64(b.Index))
		elements = appendElement(elements[:0], number)
		number = appendInt(number[:0], int64(b.Count))
		elements = appendElement(elements, number)
		pair = appendArray(pair[:0], elements)
		all = appendElement(all, pair)
	}
	return appendArray(v, all)
}
