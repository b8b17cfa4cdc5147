package engine

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"unsafe"
)

// noRules is an empty set of rules.
func (t *Table) noRules() ruleBits {
	words := (len(t.Rules) + 63) / 64
	return make(ruleBits, max(1, (words+1<<t.words.shift-1)>>t.words.shift<<t.words.shift))
}

// hasWords reports whether rows have words: their summary has no bit for each rule.
func (t *Table) hasWords() bool { return len(t.Rules) > 64 }

// summary is that of a row.
func (t *Table) summary(b ruleBits) (s uint64) {
	if !t.hasWords() {
		return b[0]
	}
	for i, word := range b {
		if word != 0 {
			s |= 1 << (i >> t.words.shift)
		}
	}
	return s
}

// row is the number of the row with these rules.
func (t *Table) row(b ruleBits) (uint16, error) {
	summary := t.summary(b)
	hash := maphash.Bytes(t.seed, unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), 8*len(b)))
	for _, n := range t.rows[hash] {
		if t.Rows[n].Summary == summary && t.isRow(&t.Rows[n], b) {
			return n, nil
		}
	}
	n := uint32(len(t.Rows))
	if n >= MaxRows {
		return 0, fmt.Errorf("the rules combine their conditions in more than %d ways: use fewer rules or fewer different prefixes", n)
	}
	r := Row{Summary: summary}
	if t.hasWords() {
		had := t.words.lines()
		r.First = t.words.place(summary, b)
		if err := t.more(had); err != nil {
			return 0, err
		}
	}
	t.rows[hash] = append(t.rows[hash], uint16(n))
	t.Rows = append(t.Rows, r)
	return uint16(n), nil
}

// isRow reports whether a row with the summary of these rules has them.
func (t *Table) isRow(r *Row, b ruleBits) bool {
	if !t.hasWords() {
		return true
	}
	for i, word := range b {
		if r.Summary>>(i>>t.words.shift)&1 != 0 && t.words.values[t.words.base(r)+i] != word {
			return false
		}
	}
	return true
}

// words are those of all rows. A row has a place for each of its words, as far from each other as these are; between them,
// where its summary has no bit, are words of other rows.
type words struct {
	shift  int      // words of a group, as a power of two
	values []uint64 // in whole groups
	taken  []uint64 // a bit for each group
	full   int      // groups from the start that have no space
	first  uint32   // number of the first word
	behind bool     // they are in lines, behind those of the tries
}

// placesTried are groups between the words of others that are tried before a row is put behind all of them: a bound of the time.
const placesTried = 256

// place finds places for the words of a row, and returns the number of the first that it would have.
func (w *words) place(summary uint64, b ruleBits) uint32 {
	if summary == 0 {
		return 0
	}
	low := bits.TrailingZeros64(summary)
	shape, end := summary>>low, len(w.values)>>w.shift
	at := max(w.full, end-placesTried)
	for w.window(at)&shape != 0 {
		at++
	}
	if more := at + bits.Len64(shape) - end; more > 0 {
		w.values = append(w.values, make([]uint64, more<<w.shift)...)
	}
	for left := shape; left != 0; left &= left - 1 {
		group := at + bits.TrailingZeros64(left)
		for len(w.taken) <= group/64+1 {
			w.taken = append(w.taken, 0)
		}
		w.taken[group/64] |= 1 << (group % 64)
		from := (low + bits.TrailingZeros64(left)) << w.shift
		copy(w.values[group<<w.shift:], b[from:from+1<<w.shift])
	}
	for w.window(w.full)&1 != 0 {
		w.full++
	}
	return w.first + uint32((at-low)<<w.shift)
}

// window says which of 64 groups from one on are taken.
func (w *words) window(at int) uint64 {
	n, shift := at/64, at%64
	if n+1 >= len(w.taken) {
		return 0
	}
	return w.taken[n]>>shift | w.taken[n+1]<<(64-shift)
}

// base is where the first word of a row would be in values.
func (w *words) base(r *Row) int { return int(int32(r.First - w.first)) }

// lines is how many lines the words take.
func (w *words) lines() int {
	return (len(w.values) + int(abiGateSizeGATE_LINE_WORDS) - 1) / int(abiGateSizeGATE_LINE_WORDS)
}

// append puts the words behind the lines of the tries. From now on each row gets lines of its own.
func (t *Table) append() error {
	w := &t.words
	w.behind, w.first = true, (t.FirstLine()+uint32(len(t.Lines)))*uint32(abiGateSizeGATE_LINE_WORDS)
	for i := range t.Rows {
		t.Rows[i].First += w.first
	}
	return t.more(0)
}

// more has the words take more lines than they had.
func (t *Table) more(had int) error {
	w := &t.words
	if !w.behind {
		return t.linesFit(len(t.Lines) + w.lines())
	}
	const each = int(abiGateSizeGATE_LINE_WORDS)
	if _, err := t.lines(w.lines() - had); err != nil {
		return err
	}
	w.values = append(w.values, make([]uint64, w.lines()*each-len(w.values))...)
	w.full = len(w.values) >> w.shift
	for i := had * each; i < len(w.values); i++ {
		n := w.first + uint32(i)
		t.Line(n / uint32(each)).word()[n%uint32(each)] = w.values[i]
	}
	return nil
}
