package store

import (
	"encoding/binary"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// A row is written as three numbers of its interval, its addresses, and the fields that are numbers: all that
// flow.Fields has, but what follows from others, or is written once for the interval.

// coded are these fields, in the order of flow.Fields.
var coded = slices.DeleteFunc(pointers(flow.Fields), func(f *flow.Field) bool {
	return f.PutUint == nil || f.Derived || f.Uint == nil && f.Nanos == nil
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

// append writes a row whose record r is. A time is written as the distance to the one before it, the first to the
// begin of the interval.
func (w *row) append(b []byte, r *flow.Record, from int64) []byte {
	b = appendUvarint(b, uint64(w.link))
	b = appendUvarint(b, uint64(w.reported))
	b = appendUvarint(b, uint64(w.drop))
	b = append(append(b, w.src[:]...), w.dst[:]...)
	for _, f := range coded {
		if f.Nanos == nil {
			b = appendUvarint(b, f.Uint(r))
			continue
		}
		at := f.Nanos(r)
		b = binary.AppendVarint(b, at-from)
		from = at
	}
	return b
}

// row reads a row: what its record has of its own, and the numbers of its interval.
func (r *reader) row(fields []*flow.Field, w *row, to *flow.Record, from int64) {
	w.link, w.reported, w.drop = uint32(r.uvarint()), uint32(r.uvarint()), uint32(r.uvarint())
	addresses := (*r)[:addressesBytes]
	*r = (*r)[addressesBytes:]
	*to = flow.Record{}
	for _, f := range fields {
		if f.Nanos == nil {
			if n := r.uvarint(); n != 0 { // most are 0, as they are without it
				f.PutUint(to, n)
			}
			continue
		}
		from += r.varint()
		f.PutUint(to, uint64(from))
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
