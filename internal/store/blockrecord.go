package store

import (
	"slices"

	"github.com/waymark-net/waymark/internal/flow"
)

// recorded are the fields by which others say whether a record has them, or what follows from them.
var recorded = slices.DeleteFunc(slices.Clone(coded), func(f *flow.Field) bool {
	return !slices.Contains([]string{"family", "proto", "dport", "unattributed", "rtt.responder_ns", "rtt.initiator_ns"}, f.Name)
})

// held is what all records of a block have of a field; unless they have the same, is is false.
type held struct {
	is    bool
	value uint64
}

// placed is what all records have of the interval.
type placed struct {
	is   bool
	link link
	on   link // the other side
}

// Records are records of the rows, with what is no column: the interfaces, what dropped packets and what options reported.
// Of other fields they have those by which a record says whether it has a value, and what follows from others.
func (b *Block) Records() []flow.Record {
	if b.records == nil {
		b.records = make([]flow.Record, BlockRows)
	}
	for i, f := range recorded {
		b.put(&b.held[i], f)
	}
	b.place()
	return b.records[:b.rows]
}

// put has the records have a field. What all of them have already is not written again.
func (b *Block) put(h *held, f *flow.Field) {
	c := &b.columns[Column(f)]
	if !c.same {
		for i, n := range c.list[:b.rows] {
			f.PutUint(&b.records[i], n)
		}
		h.is = false
		return
	}
	if n := c.list[0]; !h.is || h.value != n {
		for i := range b.records {
			f.PutUint(&b.records[i], n)
		}
		*h = held{true, n}
	}
}

// place has the records have what the interval has of them.
func (b *Block) place() {
	link, other := &b.columns[columnLink], &b.columns[columnOther]
	reported, drop := &b.columns[columnReported], &b.columns[columnDrop]
	w := row{link: uint32(link.list[0]), other: uint32(other.list[0])}
	if b.OnePlace() && reported.same && reported.list[0] == 0 && drop.same && drop.list[0] == 0 {
		at := placed{is: true, link: b.iv.links[w.link]}
		if w.other != 0 {
			at.on = b.iv.links[w.other-1]
		}
		if at == b.placed {
			return
		}
		for i := range b.records {
			b.unplace(i)
			w.place(b.iv, &b.records[i], nil)
		}
		b.placed = at
		return
	}
	b.placed = placed{}
	for i := range b.rows {
		w = row{link: uint32(link.list[i]), other: uint32(other.list[i]), reported: uint32(reported.list[i]), drop: uint32(drop.list[i])}
		b.unplace(i)
		var memory *reports
		if w.reported != 0 {
			if b.memory == nil {
				b.memory = make([]reports, BlockRows)
			}
			memory = &b.memory[i]
		}
		w.place(b.iv, &b.records[i], memory)
	}
}

// unplace takes out what a record may not have.
func (b *Block) unplace(i int) {
	r := &b.records[i]
	r.Other, r.OtherIfIndex, r.Drop, r.PDM, r.IOAM = "", 0, nil, nil, nil
}
