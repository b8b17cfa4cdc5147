package flow

import "math/bits"

// recall remembers who began conversations that left the table: a connection may
// be silent for longer than the idle timeout, and go on without a handshake. Its
// size is bounded: a later conversation takes the place of an earlier one.
type recall struct {
	places []recalled // a power of two of them
}

// recalled is a conversation by 63 bits of hashes.
type recalled struct {
	tag     uint32 // of the half whose verdict it is; 0: free
	check   uint32
	verdict verdict
}

// maxRecalled conversations take 768 KiB.
const maxRecalled = 1 << 16

// newRecall makes room for a part of the flows that a table holds.
func newRecall(flows int) recall {
	n := min(max(flows/4, 1), maxRecalled)
	return recall{places: make([]recalled, 1<<(bits.Len(uint(n))-1))}
}

func (r *recall) place(tag uint32) *recalled { return &r.places[int(tag>>1)&(len(r.places)-1)] }

// check is a hash that both halves of a conversation have, in addition to the tag.
func (x *index) check(k *Key) uint32 {
	a, b := x.end(&k.Src, k.SrcPort), x.end(&k.Dst, k.DstPort)
	return uint32((a ^ b) >> 32)
}

// keep remembers what only packets of the past tell.
func (t *Table) keep(e *entry) {
	if e.verdict.by == EvidenceFirst || e.verdict.by == EvidenceHandshake {
		*t.recall.place(e.tag) = recalled{e.tag, t.index.check(&e.key), e.verdict}
	}
}

// remember gives a new entry the verdict of the conversation, if it was here before.
func (t *Table) remember(e *entry) {
	p := t.recall.place(e.tag)
	if p.tag>>1 != e.tag>>1 || p.tag == 0 || p.check != t.index.check(&e.key) {
		return
	}
	e.verdict, e.judged, e.recalled = p.verdict, true, true
	if p.tag != e.tag {
		e.verdict = e.verdict.opposite()
	}
}
