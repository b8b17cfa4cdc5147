package store

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/internal/flow"
)

// packed is what options in packets (PDM, IOAM) reported of the rows of an interval, one
// behind the other. Few flows have such options, so rows only say where theirs begins; and as
// bytes without pointers it costs the garbage collector nothing.
type packed []byte

// reports is memory for what is read from packed.
type reports struct {
	pdm  flow.PDM
	ioam flow.IOAM
}

// What a place of packed begins with says what follows.
const (
	hasPDM = 1 << iota
	hasIOAM
)

// put appends what was reported of a record and returns where get finds it; 0: nothing was.
func (t *packed) put(p *flow.PDM, i *flow.IOAM) (at uint32) {
	if p == nil && i == nil {
		return 0
	}
	at = uint32(len(*t)) + 1
	b := append(*t, 0)
	if p != nil {
		b[at-1] |= hasPDM
		b = appendPDM(b, p)
	}
	if i != nil {
		b[at-1] |= hasIOAM
		b = appendIOAM(b, i)
	}
	*t = b
	return at
}

// get is the inverse of put. It uses the memory of to again.
func (t packed) get(at uint32, to *reports) (p *flow.PDM, i *flow.IOAM) {
	if at == 0 {
		return nil, nil
	}
	has, b := t[at-1], reader(t[at:])
	if has&hasPDM != 0 {
		p = &to.pdm
		b.pdm(p)
	}
	if has&hasIOAM != 0 {
		i = &to.ioam
		b.ioam(i)
	}
	return p, i
}

// move appends to t what other holds at a place, and returns where it is now.
func (t *packed) move(other packed, at uint32, memory *reports) uint32 {
	return t.put(other.get(at, memory))
}

func appendPDM(b []byte, p *flow.PDM) []byte {
	for _, of := range flow.PDMCounters {
		b = binary.AppendUvarint(b, *of(p))
	}
	b = binary.AppendVarint(b, p.Lost)
	return appendDelays(appendDelays(b, &p.Server), &p.Network)
}

func appendIOAM(b []byte, i *flow.IOAM) []byte {
	for _, of := range flow.IOAMCounters {
		b = binary.AppendUvarint(b, *of(i))
	}
	b = appendDelays(binary.AppendVarint(b, i.Lost), &i.Delay)
	for _, n := range []uint64{uint64(i.ID), uint64(i.Namespace), uint64(i.Hops), boolean(i.Relative), uint64(len(i.Nodes))} {
		b = binary.AppendUvarint(b, n)
	}
	return append(b, i.Nodes...)
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
	if first := (*r)[0]; first < 1<<7 { // as most are
		*r = (*r)[1:]
		return uint64(first)
	}
	v, n := binary.Uvarint(*r)
	*r = (*r)[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(*r)
	*r = (*r)[n:]
	return v
}

func (r *reader) pdm(p *flow.PDM) {
	for _, of := range flow.PDMCounters {
		*of(p) = r.uvarint()
	}
	p.Lost = r.varint()
	r.delays(&p.Server)
	r.delays(&p.Network)
}

func (r *reader) ioam(i *flow.IOAM) {
	for _, of := range flow.IOAMCounters {
		*of(i) = r.uvarint()
	}
	i.Lost = r.varint()
	r.delays(&i.Delay)
	i.ID, i.Namespace, i.Hops, i.Relative = flow.IOAMPathID(r.uvarint()), uint16(r.uvarint()), uint8(r.uvarint()), r.uvarint() != 0
	n := r.uvarint()
	i.Nodes = string((*r)[:n])
	*r = (*r)[n:]
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

func boolean(b bool) (n uint64) {
	if b {
		n = 1
	}
	return n
}
