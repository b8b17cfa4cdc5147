package flow

import (
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"
	"unsafe"
)

// The functions below complete a field by where its value lies in a record. They
// keep the offset, not the function that reported them: one call for each value, as if
// it were written out.

// offset is where a value lies in a record. Nothing that it is taken from is a
// pointer, so that the record need not be asked again.
type offset[T any] uintptr

func offsetOf[T any](of func(*Record) *T) offset[T] {
	var r Record
	return offset[T](uintptr(unsafe.Pointer(of(&r))) - uintptr(unsafe.Pointer(&r)))
}

func (o offset[T]) in(r *Record) *T { return (*T)(unsafe.Add(unsafe.Pointer(r), uintptr(o))) }

// location is where a number lies in a record, and how many bytes it takes.
type location struct {
	offset uintptr
	bytes  uint8 // 0: it does not lie in the record itself
}

func (o offset[T]) location() location {
	var v T
	return location{uintptr(o), uint8(unsafe.Sizeof(v))}
}

// Numbers reads Uint, or Nanos, of many records: without a call for each where numbers lie in the records.
func (f *Field) Numbers(of []Record, to []uint64) {
	if len(of) == 0 {
		return
	}
	first := unsafe.Add(unsafe.Pointer(&of[0]), f.at.offset)
	switch f.at.bytes {
	case 1:
		numbersAt[uint8](first, to[:len(of)])
	case 2:
		numbersAt[uint16](first, to[:len(of)])
	case 4:
		numbersAt[uint32](first, to[:len(of)])
	case 8:
		numbersAt[uint64](first, to[:len(of)])
	default:
		get := f.Uint
		if f.Nanos != nil {
			get = func(r *Record) uint64 { return uint64(f.Nanos(r)) }
		}
		for i := range of {
			to[i] = get(&of[i])
		}
	}
}

func numbersAt[T unsigned](first unsafe.Pointer, to []uint64) {
	for i := range to {
		to[i] = uint64(*(*T)(unsafe.Add(first, uintptr(i)*unsafe.Sizeof(Record{}))))
	}
}

// completed adds what does not depend on the type.
func completed(f Field) Field {
	if f.Endpoint {
		return missing(f, func(r *Record) bool { return r.Unattributed })
	}
	return f
}

// missing says when a record has no value.
func missing(f Field, is func(*Record) bool) Field {
	f.Missing = is
	f.Absent = func(_ *Origin, r *Record) bool { return is(r) }
	return f
}

// merging adds Compare, Copy and Combine of values that have an order.
func merging[T any](f Field, o offset[T], compare func(a, b T) int) Field {
	f.Compare = func(a, b *Record) int { return compare(*o.in(a), *o.in(b)) }
	f.Copy = func(to, from *Record) { *o.in(to) = *o.in(from) }
	switch f.Merge {
	case MergeMin:
		f.Combine = func(to, from *Record) {
			if f := o.in(from); compare(*f, *o.in(to)) < 0 {
				*o.in(to) = *f
			}
		}
	case MergeMax:
		f.Combine = func(to, from *Record) {
			if f := o.in(from); compare(*f, *o.in(to)) > 0 {
				*o.in(to) = *f
			}
		}
	}
	return completed(f)
}

// absentZero says that a field whose value is 0 is absent.
func absentZero(f Field) Field {
	value, set, none := f.Uint, f.Set, f.Missing
	f.zeroAbsent = true
	f.Absent = func(_ *Origin, r *Record) bool { return value(r) == 0 || none != nil && none(r) }
	if f.Kind == Name {
		f.Set = func(s string, o *Origin, r *Record) error {
			if _, err := indexOf(f.Values[1:], s, f.Name); err != nil {
				return err
			}
			return set(s, o, r)
		}
	}
	return f
}

func number[T unsigned](f Field, of func(*Record) *T) Field {
	o := offsetOf(of)
	if f.Kind == Text {
		f.Kind = Number
	}
	if f.Max == 0 {
		f.Max = uint64(^T(0))
	}
	f.at = o.location()
	f.Uint = func(r *Record) uint64 { return uint64(*o.in(r)) }
	f.PutUint = func(r *Record, n uint64) { *o.in(r) = T(n) }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, *o.in(r)) }
	f.Set = func(s string, _ *Origin, r *Record) error { return parseUint(s, o.in(r)) }
	f.AppendKey = func(b []byte, r *Record) []byte { return binary.NativeEndian.AppendUint64(b, uint64(*o.in(r))) }
	f = merging(f, o, cmp.Compare)
	if f.Merge == MergeOr {
		f.Combine = func(to, from *Record) { *o.in(to) |= *o.in(from) }
	}
	return f
}

// counter is a sum; all of them are merged by Counters.Add.
func counter(f Field, of func(*Counters) *uint64) Field {
	f.Merge, f.Counter = MergeSum, of
	return number(f, func(r *Record) *uint64 { return of(&r.Counters) })
}

// name is one of f.Values, by index. Fields without a value for 0 are absent then.
func name[T ~uint8](f Field, of func(*Record) *T) Field {
	o := offsetOf(of)
	f.Kind = Name
	f.at = o.location()
	f.Uint = func(r *Record) uint64 { return uint64(*o.in(r)) }
	f.PutUint = func(r *Record, n uint64) { *o.in(r) = T(n) }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return append(b, nameOf(f.Values, int(*o.in(r)))...) }
	f.Set = func(s string, _ *Origin, r *Record) error {
		i, err := indexOf(f.Values, s, f.Name)
		*o.in(r) = T(i)
		return err
	}
	f.AppendKey = func(b []byte, r *Record) []byte { return append(b, byte(*o.in(r))) }
	return merging(f, o, cmp.Compare)
}

func duration(f Field, of func(*Record) *time.Duration) Field {
	o := offsetOf(of)
	f.Kind, f.Unit, f.Max = Number, "ns", math.MaxInt64
	f.at = o.location()
	f.Uint = func(r *Record) uint64 { return uint64(*o.in(r)) }
	f.PutUint = func(r *Record, n uint64) { *o.in(r) = time.Duration(n) }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, uint64(*o.in(r))) }
	f.Set = func(s string, _ *Origin, r *Record) error { return parseDuration(s, o.in(r)) }
	return missing(merging(f, o, cmp.Compare), func(r *Record) bool { return *o.in(r) <= 0 })
}

// derived is a number that follows from other fields.
func derived(f Field, value func(*Record) uint64) Field {
	f.Kind, f.Derived = Number, true
	f.Uint = value
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, value(r)) }
	f.Compare = func(a, b *Record) int { return cmp.Compare(value(a), value(b)) }
	return completed(f)
}

func moment(f Field, of func(*Record) *time.Time) Field {
	o := offsetOf(of)
	f.Kind = Time
	f.Nanos = func(r *Record) int64 { return Nanos(*o.in(r)) }
	f.PutUint = func(r *Record, n uint64) { *o.in(r) = FromNanos(int64(n)) }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendTime(b, *o.in(r)) }
	f.Set = func(s string, _ *Origin, r *Record) (err error) {
		*o.in(r), err = parseTime(s)
		return err
	}
	return merging(f, o, time.Time.Compare)
}

func address(f Field, of func(*Record) *netip.Addr) Field {
	o := offsetOf(of)
	f.Kind = Address
	f.Addr = func(r *Record) netip.Addr { return *o.in(r) }
	f.PutAddr = func(r *Record, a netip.Addr) { *o.in(r) = a }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return o.in(r).AppendTo(b) }
	f.Set = func(s string, _ *Origin, r *Record) (err error) {
		*o.in(r), err = parseAddr(s)
		return err
	}
	return merging(f, o, netip.Addr.Compare)
}

func text(f Field, of func(*Record) *string) Field {
	o := offsetOf(of)
	f.Kind = Text
	f.Str = func(r *Record) string { return *o.in(r) }
	f.PutStr = func(r *Record, s string) { *o.in(r) = s }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return append(b, *o.in(r)...) }
	f.Set = func(s string, _ *Origin, r *Record) error {
		*o.in(r) = s
		return nil
	}
	f.AppendKey = func(b []byte, r *Record) []byte {
		s := *o.in(r)
		return append(binary.NativeEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return merging(f, o, cmp.Compare)
}

// flag is absent where it is false.
func flag(f Field, of func(*Record) *bool) Field {
	o := offsetOf(of)
	f.Kind = Flag
	f.at = o.location()
	f.Uint = func(r *Record) uint64 {
		if *o.in(r) {
			return 1
		}
		return 0
	}
	f.PutUint = func(r *Record, n uint64) { *o.in(r) = n != 0 }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return strconv.AppendBool(b, *o.in(r)) }
	f.Set = func(s string, _ *Origin, r *Record) (err error) {
		*o.in(r), err = strconv.ParseBool(s)
		return err
	}
	f.Copy = func(to, from *Record) { *o.in(to) = *o.in(from) }
	return absentZero(f)
}

// ofOrigin is what all records of an agent share.
func ofOrigin(f Field) Field {
	f.Merge = MergeFirst
	return f
}

// merged are the fields that rows combine one by one, in addition to counters.
var merged = func() (list []*Field) {
	for i := range Fields {
		if f := &Fields[i]; f.Combine != nil {
			list = append(list, f)
		}
	}
	return list
}()

// CopyMerged sets what Merge adds to, in the first record of a row.
func (r *Record) CopyMerged(from *Record) {
	r.Counters = from.Counters
	for _, f := range merged {
		f.Copy(r, from)
	}
}

// Merge adds the sums and limits of another record of the same row. What rows
// keep more of than a record can hold (means, delays, agreement) is the row's.
func (r *Record) Merge(from *Record) {
	r.Counters.Add(&from.Counters)
	for _, f := range merged {
		f.Combine(r, from)
	}
}

// FieldsMerged are the fields with one of the merges, in the order of the record.
func FieldsMerged(as ...Merge) (list []*Field) {
	for i := range Fields {
		if slices.Contains(as, Fields[i].Merge) {
			list = append(list, &Fields[i])
		}
	}
	return list
}

// Nanos are nanoseconds since the epoch, 0 for the zero time.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// FromNanos is the inverse of Nanos.
func FromNanos(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
