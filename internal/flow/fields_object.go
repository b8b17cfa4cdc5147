package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/inband"
)

// object is an inner object, which few records have.
type object[T any] struct {
	name    string // "pdm"
	element string // how names of its information elements begin
	at      func(*Record) **T
}

func (o object[T]) of(r *Record) *T { return *o.at(r) }

// made is the object of a record, made when it has none.
func (o object[T]) made(r *Record) *T {
	p := o.at(r)
	if *p == nil {
		*p = new(T)
	}
	return *p
}

func (o object[T]) missing(r *Record) bool { return o.of(r) == nil }

// field completes a field that every such object has.
func (o object[T]) field(id uint16, element, dataType, semantics string, f Field) Field {
	f.Name = o.name + "." + f.Name
	f = missing(f, o.missing)
	f.IPFIX = []Element{own(id, o.element+element, dataType, semantics, f.Doc)}
	return f
}

// sum is an unsigned sum of packets.
func (o object[T]) sum(id uint16, element string, f Field, of func(*T) *uint64) Field {
	f = o.field(id, element+"DeltaCount", "unsigned64", "deltaCounter", f)
	f.Unit, f.Merge, f.Kind, f.Max, f.inObject = "packets", MergeSum, Number, maxUint64, of
	f.Uint = func(r *Record) uint64 {
		if o.missing(r) {
			return 0
		}
		return *of(o.of(r))
	}
	f.PutUint = func(r *Record, n uint64) { *of(o.made(r)) = n }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, *of(o.of(r))) }
	f.Set = func(s string, _ *Origin, r *Record) error { return parseUint(s, of(o.made(r))) }
	return f
}

// signedSum is a sum that may fall.
func (o object[T]) signedSum(id uint16, element string, f Field, of func(*T) *int64) Field {
	f = o.field(id, element+"DeltaCount", "signed64", "deltaCounter", f)
	f.Unit, f.Merge, f.Kind = "packets", MergeSum, Signed
	f.Uint = func(r *Record) uint64 {
		if o.missing(r) {
			return 0
		}
		return uint64(*of(o.of(r)))
	}
	f.PutUint = func(r *Record, n uint64) { *of(o.made(r)) = int64(n) }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return strconv.AppendInt(b, *of(o.of(r)), 10) }
	f.Set = func(s string, _ *Origin, r *Record) (err error) {
		*of(o.made(r)), err = strconv.ParseInt(s, 10, 64)
		return err
	}
	return sometimes(f)
}

// sometimes says that a sum that is 0 is absent.
func sometimes(f Field) Field {
	f.Doc += "; absent: none"
	return absentZero(f)
}

// sumsOf are where the unsigned sums of an object lie.
func sumsOf[T any](fields []Field) (list []func(*T) *uint64) {
	for i := range fields {
		if of, ok := fields[i].inObject.(func(*T) *uint64); ok {
			list = append(list, of)
		}
	}
	return list
}

// delays are the fields of an object in an object: a record without such delays has none
// of them. Their elements have consecutive numbers, from id on.
type delays[T any] struct {
	object[T]
	key, title, part string // "server", "server delay", "Server"
	id               uint16
	times            func(*T) *Delays
}

func (d delays[T]) of(r *Record) *Delays { return d.times(d.object.of(r)) }

func (d delays[T]) none(r *Record) bool { return d.missing(r) || d.of(r).Count == 0 }

// field is what they have in common; number is the element's, −1: there is none.
func (d delays[T]) field(key, unit, doc string, number int, elementEnd, semantics, elementDoc string) Field {
	f := missing(Field{Name: d.name + "." + d.key + "." + key, Kind: Number, Unit: unit, Max: maxInt64, Doc: doc, Merge: MergeDelays}, d.none)
	switch key {
	case "min_ns", "max_ns", "p90_ns", "p99_ns": // they stand behind the median
		f.Title = strings.ToUpper(strings.TrimSuffix(key, "_ns"))
	}
	if number >= 0 {
		f.IPFIX = []Element{own(d.id+uint16(number), d.element+d.part+"Delay"+elementEnd, "unsigned64", semantics, elementDoc)}
	}
	return f
}

// stored is a value that does not follow from others.
func (d delays[T]) stored(f Field, value func(*Delays) *uint64) Field {
	f.Max = maxUint64
	f.Uint = func(r *Record) uint64 {
		if d.missing(r) {
			return 0
		}
		return *value(d.of(r))
	}
	f.PutUint = func(r *Record, n uint64) { *value(d.times(d.made(r))) = n }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, *value(d.of(r))) }
	f.Set = func(s string, _ *Origin, r *Record) error {
		times := d.times(d.made(r))
		if err := parseUint(s, value(times)); err != nil {
			return err
		}
		return times.counted()
	}
	return f
}

// derived is a value that follows from others.
func (d delays[T]) derived(f Field, value func(*Delays) uint64, aliases ...string) Field {
	f.Aliases, f.Derived = aliases, true
	f.Uint = func(r *Record) uint64 {
		if d.missing(r) {
			return 0
		}
		return value(d.of(r))
	}
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, f.Uint(r)) }
	return f
}

func (d delays[T]) quantile(q float64, f Field, aliases ...string) Field {
	f.Doc += ", within 6 %"
	return d.derived(f, func(t *Delays) uint64 { return uint64(t.Quantile(q)) }, aliases...)
}

// sums are number, sum, shortest and longest; what says which delays these are.
func (d delays[T]) sums(what string) []Field {
	title := d.title
	return []Field{
		d.stored(d.field("count", "", "number of "+title+"s: "+what+"; absent: none", 0, "DeltaCount", "deltaCounter", "number of delays measured; "+title+": "+what), func(d *Delays) *uint64 { return &d.Count }),
		d.stored(d.field("sum_ns", "ns", "sum of the "+title+"s", 1, "SumNanoseconds", "deltaCounter", title+": their sum"), func(d *Delays) *uint64 { return &d.Sum }),
		d.stored(d.field("min_ns", "ns", "shortest "+title, 2, "MinNanoseconds", "quantity", title+": the shortest; 0: none was measured"), func(d *Delays) *uint64 { return &d.Min }),
		d.stored(d.field("max_ns", "ns", "longest "+title, 3, "MaxNanoseconds", "quantity", title+": the longest"), func(d *Delays) *uint64 { return &d.Max }),
	}
}

// histogram is quantiles and what they are computed from.
func (d delays[T]) histogram() []Field {
	title, name := d.title, d.key
	buckets := d.field("buckets", "", fmt.Sprintf("histogram of the "+title+"s as [index, count], without empty buckets: bucket 0 is below 2^%d ns, then there are %d of equal width to each power of two",
		inband.MinBits, 1<<inband.SubBits), -1, "", "", "")
	buckets.Kind, buckets.Max = Pairs, 0
	buckets.Buckets = func(r *Record) []DelayBucket {
		if d.none(r) {
			return nil
		}
		return d.of(r).Buckets
	}
	buckets.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendBuckets(b, d.of(r).Buckets) }
	buckets.Set = func(s string, _ *Origin, r *Record) error {
		times := d.times(d.made(r))
		if err := times.counted(); err != nil {
			return err
		}
		return parseBuckets(s, &times.Buckets)
	}
	buckets.PutPairs = func(r *Record, pairs []uint64) error {
		times := d.times(d.made(r))
		if err := times.counted(); err != nil {
			return err
		}
		return setBuckets(pairs, &times.Buckets)
	}
	return []Field{
		d.quantile(0.5, d.field("p50_ns", "ns", "median of the "+title+"s", 4, "MedianNanoseconds", "quantity", title+": the median, within 6 %"), name),
		d.quantile(0.9, d.field("p90_ns", "ns", "what 90 of 100 "+title+"s do not exceed", -1, "", "", ""), name+"_p90"),
		d.quantile(0.99, d.field("p99_ns", "ns", "what 99 of 100 "+title+"s do not exceed", 5, "P99Nanoseconds", "quantity", title+": what 99 of 100 do not exceed, within 6 %"), name+"_p99"),
		buckets,
	}
}

// counted refuses delays that are not any, which nothing would show.
func (d *Delays) counted() error {
	if d.Count == 0 {
		return errors.New("no delays are recorded: their count is 0 or missing")
	}
	return nil
}

func appendBuckets(b []byte, buckets []DelayBucket) []byte {
	b = append(b, '[')
	for i, bucket := range buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, '['), bucket.Index)
		b = append(appendUint(append(b, ','), bucket.Count), ']')
	}
	return append(b, ']')
}

func parseBuckets(s string, to *[]DelayBucket) error {
	var list [][]uint64
	if err := json.Unmarshal([]byte(s), &list); err != nil {
		return err
	}
	pairs := make([]uint64, 0, 2*len(list))
	for _, pair := range list {
		if len(pair) != 2 {
			return fmt.Errorf("%v: %w", pair, errBuckets)
		}
		pairs = append(pairs, pair...)
	}
	return setBuckets(pairs, to)
}

var errBuckets = fmt.Errorf("want [index, count], the index below %d and above the one before", inband.Buckets)

// setBuckets takes index and count of each bucket by turns.
func setBuckets(pairs []uint64, to *[]DelayBucket) error {
	if len(pairs)%2 != 0 {
		return fmt.Errorf("%v: %w", pairs, errBuckets)
	}
	*to = nil
	if len(pairs) > 0 {
		*to = make([]DelayBucket, 0, len(pairs)/2)
	}
	next := uint64(0)
	for i := 0; i < len(pairs); i += 2 {
		index, count := pairs[i], pairs[i+1]
		if index < next || index >= inband.Buckets || count == 0 {
			return fmt.Errorf("%v: %w", pairs[i:i+2], errBuckets)
		}
		next = index + 1
		*to = append(*to, DelayBucket{Index: uint8(index), Count: count})
	}
	return nil
}
