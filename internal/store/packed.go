package store

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/internal/flow"
)

// packedPDM is what PDM reported of the rows of an interval, one behind the other. Few
// flows are marked, so rows only say where theirs begins; and as bytes without
// pointers it costs the garbage collector nothing.
type packedPDM []byte

// put appends p and returns where get finds it; 0: nothing was reported.
func (t *packedPDM) put(p *flow.PDM) (at uint32) {
	if p == nil {
		return 0
	}
	b := *t
	at = uint32(len(b)) + 1
	for _, of := range flow.PDMCounters {
		b = binary.AppendUvarint(b, *of(p))
	}
	b = binary.AppendVarint(b, p.Lost)
	b = appendDelays(b, &p.Server)
	*t = appendDelays(b, &p.Network)
	return at
}

// get is the inverse of put. It uses the memory of p again.
func (t packedPDM) get(at uint32, p *flow.PDM) {
	b := reader(t[at-1:])
	for _, of := range flow.PDMCounters {
		*of(p) = b.uvarint()
	}
	p.Lost = b.varint()
	b.delays(&p.Server)
	b.delays(&p.Network)
}

// move appends to t what other holds at a place, and returns where it is now.
func (t *packedPDM) move(other packedPDM, at uint32) uint32 {
	if at == 0 {
		return 0
	}
	var p flow.PDM
	other.get(at, &p)
	return t.put(&p)
}

func appendDelays(b []byte, d *flow.Delays) []byte {
	for _, n := range []uint64{d.Count, d.Sum, d.Min, d.Max, uint64(len(d.Buckets))} {
		b = binary.AppendUvarint(b, n)
	}
	for _, bucket := range d.Buckets {
		b = binary.AppendUvarint(append(b, bucket.Index), bucket.Count)
	}
	return b
}

// reader takes numbers off the front of what put wrote.
type reader []byte

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(*r)
	*r = (*r)[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(*r)
	*r = (*r)[n:]
	return v
}

func (r *reader) delays(d *flow.Delays) {
	d.Count, d.Sum, d.Min, d.Max = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	n := r.uvarint()
	d.Buckets = d.Buckets[:0]
	for range n {
		index := (*r)[0]
		*r = (*r)[1:]
		d.Buckets = append(d.Buckets, flow.DelayBucket{Index: index, Count: r.uvarint()})
	}
}
