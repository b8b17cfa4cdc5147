package store

import (
	"encoding/binary"
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// A row is written as four numbers of its interval, its addresses, and the fields that are numbers: all that
// flow.Fields has, but what follows from others, or is written once for the interval, as marks are.

// coded are these fields, in the order of flow.Fields.
var coded = slices.DeleteFunc(pointers(flow.Fields), func(f *flow.Field) bool {
	return f.PutUint == nil || f.Derived || f.Uint == nil && f.Nanos == nil || f.Reported()
})

// code is what of a field reads and writes rows: together, those of all fields take little of the processor's cache.
type code struct {
	get   func(*flow.Record) uint64
	nanos func(*flow.Record) int64 // nil: it is no time
	put   func(*flow.Record, uint64)
}

func codeOf(f *flow.Field) code { return code{f.Uint, f.Nanos, f.PutUint} }

// codes are those of coded.
var codes = func() (list []code) {
	for _, f := range coded {
		list = append(list, codeOf(f))
	}
	return list
}()

func pointers(list []flow.Field) (all []*flow.Field) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

// addressesBytes is what the addresses of a row take.
const addressesBytes = 32

// rowBytes is the least that a row takes as bytes: no number takes less than one.
func rowBytes(fields []code) int { return addressesBytes + 3 + len(fields) + 1 }

// append writes a row whose record r is. A time is written as the distance to the one before it, the first to the
// begin of the interval.
func (w *row) append(b []byte, r *flow.Record, from int64) []byte {
	b = appendUvarint(b, uint64(w.link))
	b = appendUvarint(b, uint64(w.reported))
	b = appendUvarint(b, uint64(w.drop))
	b = appendUvarint(b, uint64(w.other))
	b = append(append(b, w.src[:]...), w.dst[:]...)
	for i := range codes {
		c := &codes[i]
		if c.nanos == nil {
			b = appendUvarint(b, c.get(r))
			continue
		}
		at := c.nanos(r)
		b = binary.AppendVarint(b, at-from)
		from = at
	}
	return b
}

// row reads a row: what its record has of its own, and the numbers of its interval.
func (r *reader) row(fields []code, withoutOther bool, w *row, to *flow.Record, from int64) {
	w.link, w.reported, w.drop, w.other = uint32(r.uvarint()), uint32(r.uvarint()), uint32(r.uvarint()), 0
	if !withoutOther {
		w.other = uint32(r.uvarint())
	}
	addresses, b := (*r)[:addressesBytes], (*r)[addressesBytes:]
	*to = flow.Record{}
	for i := range fields {
		switch c, first := &fields[i], b[0]; {
		case c.nanos != nil:
			n, size := binary.Varint(b)
			from += n
			c.put(to, uint64(from))
			b = b[size:]
		case first == 0: // as most are, and as it is without it
			b = b[1:]
		case first < 1<<7:
			c.put(to, uint64(first))
			b = b[1:]
		default:
			n, size := binary.Uvarint(b)
			c.put(to, n)
			b = b[size:]
		}
	}
	*r = b
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
