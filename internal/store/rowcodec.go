package store

import (
	"encoding/binary"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// A row is written as four numbers of its interval, its addresses, and the fields that are numbers: all that
// flow.Fields has, but what follows from others, or is written once for the interval, as marks are. Logs of earlier
// versions have rows one behind the other.

// coded are these fields, in the order of flow.Fields.
var coded = slices.DeleteFunc(pointers(flow.Fields), func(f *flow.Field) bool {
	return f.PutUint == nil || f.Derived || f.Uint == nil && f.Nanos == nil || f.Reported()
})

func pointers(list []flow.Field) (all []*flow.Field) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// addressesBytes is what the addresses of a row take.
const addressesBytes = 32

// rowBytes is the least that a row takes as bytes: no number takes less than one.
func rowBytes(fields []*flow.Field) int { return addressesBytes + 3 + len(fields) + 1 }

// isByRows reports whether an interval is of an earlier version.
func isByRows(b []byte) bool {
	return len(b) > 0 && (b[0] == versionByRows || b[0] == versionWithoutOther)
}

// decodeRows is Decode of such an interval.
func (c *Decoder) decodeRows(b []byte) (e Ended, err error) {
	defer endsEarly(&err)
	version, r := b[0], reader(b[1:])
	iv, err := c.head(&r)
	if err != nil {
		return e, err
	}
	iv.reported = slices.Clone(iv.reported)
	n := r.count(rowBytes(c.fields))
	e = Ended{iv: iv, repeated: make([]uint64, 0, n)}
	iv.rows.grow(n)
	var at row
	var record flow.Record
	for range n {
		r.row(c.fields, version == versionWithoutOther, &at, &record, flow.Nanos(iv.from))
		if int(at.link) >= len(iv.links) || int(at.reported) > len(iv.reported) || int(at.drop) > len(iv.drops) || int(at.other) > len(iv.links) {
			return e, errNotThere
		}
		w := iv.rows.add(row{})
		w.set(&record, at.link)
		w.reported, w.drop, w.other = at.reported, at.drop, at.other
		e.repeated = append(e.repeated, r.uvarint())
	}
	return e, nil
}

// row reads a row: what its record has of its own, and the numbers of its interval. A time is written as the distance to
// the one before it, the first to the begin of the interval.
func (r *reader) row(fields []*flow.Field, withoutOther bool, w *row, to *flow.Record, from int64) {
	w.link, w.reported, w.drop, w.other = uint32(r.uvarint()), uint32(r.uvarint()), uint32(r.uvarint()), 0
	if !withoutOther {
		w.other = uint32(r.uvarint())
	}
	addresses := (*r)[:addressesBytes]
	*r = (*r)[addressesBytes:]
	*to = flow.Record{}
	for _, f := range fields {
		if f.Nanos != nil {
			from += r.varint()
			f.PutUint(to, uint64(from))
		} else if n := r.uvarint(); n != 0 {
			f.PutUint(to, n)
		}
	}
	if !to.Unattributed {
		to.Src, to.Dst = address([16]byte(addresses), to.Family), address([16]byte(addresses[16:]), to.Family)
	}
}

// appendUvarint is binary.AppendUvarint; most numbers take one byte.
func appendUvarint(b []byte, n uint64) []byte {
	if n < 1<<7 {
		return append(b, byte(n))
	}
	return binary.AppendUvarint(b, n)
}

// columnsOf are the columns of blocks whose interval names these fields.
func columnsOf(fields []*flow.Field) []int {
	list := make([]int, columnFields, columnFields+len(fields))
	for i := range list {
		list[i] = i
	}
	for _, f := range fields {
		list = append(list, Column(f))
	}
	return list
}
