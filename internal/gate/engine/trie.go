package engine

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// Children of a node, as a power of two, by the boundaries that they share: a node takes a
// line and 4 bytes per child.
const (
	fewBits, someBits, manyBits = 4, 8, 16
	someBounds                  = 24
	manyBounds                  = 4096
)

// ref is a reference to a line.
func ref(kind abiGateRef, n uint32) uint32 { return uint32(kind)<<abiGateRefGATE_REF_SHIFT | n }

// trie stores boundaries that share the first `at` bits, and returns the reference to
// them. first is the row of what is below all of them.
func (c *compiler) trie(bounds []bound, first uint32, at int) (uint32, error) {
	wide := slices.ContainsFunc(bounds, func(b bound) bool { return b.low != 0 })
	switch n := len(bounds); {
	case n == 0:
		return first, nil
	case !wide && n <= int(abiGateSizeGATE_LEAF_KEYS):
		return c.leaf(bounds, first)
	case n <= int(abiGateSizeGATE_WIDE_KEYS):
		return c.wide(bounds, first)
	}
	return c.node(bounds, first, at)
}

func (c *compiler) leaf(bounds []bound, first uint32) (uint32, error) {
	n, err := c.lines(1)
	if err != nil {
		return 0, err
	}
	l := c.Line(n).leaf()
	l.Row[0] = first
	for i := range l.Key {
		l.Key[i], l.Row[i+1] = math.MaxUint64, l.Row[i]
		if i < len(bounds) {
			l.Key[i], l.Row[i+1] = bounds[i].high, uint32(bounds[i].row)
		}
	}
	return ref(abiGateRefGATE_REF_LEAF, n), nil
}

func (c *compiler) wide(bounds []bound, first uint32) (uint32, error) {
	n, err := c.lines(1)
	if err != nil {
		return 0, err
	}
	l := c.Line(n).wide()
	l.Row[0] = first
	for i := range l.High {
		l.High[i], l.Low[i], l.Row[i+1] = math.MaxUint64, math.MaxUint64, l.Row[i]
		if i < len(bounds) {
			l.High[i], l.Low[i], l.Row[i+1] = bounds[i].high, bounds[i].low, uint32(bounds[i].row)
		}
	}
	return ref(abiGateRefGATE_REF_WIDE, n), nil
}

func (c *compiler) node(bounds []bound, first uint32, at int) (uint32, error) {
	last := bounds[len(bounds)-1]
	at = max(at, sharedBits(bounds[0].key, last.key)&^3)
	width := widthOf(len(bounds), at)
	n, err := c.lines(1 + 1<<width/16)
	if err != nil {
		return 0, err
	}
	node := c.Line(n).node()
	node.MaskHigh, node.MaskLow = maskOf(at), maskOf(at-64)
	node.High, node.Low = last.high&node.MaskHigh, last.low&node.MaskLow
	node.At, node.Bits, node.First = uint8(at), uint8(width), n+1
	node.Below, node.Above = first, uint32(last.row)
	for i := range uint32(1) << width {
		count := 0
		for count < len(bounds) && childOf(bounds[count].key, at, width) == i {
			count++
		}
		inside := bounds[:count]
		bounds = bounds[count:]
		row := first
		if count > 0 {
			first = uint32(inside[count-1].row)
			if isStart(inside[0].key, at+width) {
				row, inside = uint32(inside[0].row), inside[1:]
			}
		}
		child, err := c.trie(inside, row, at+width)
		if err != nil {
			return 0, err
		}
		c.Line(n + 1 + i/16).child()[i%16] = child
	}
	return ref(abiGateRefGATE_REF_NODE, n), nil
}

// widthOf is by how many bits a node goes on. They are within half an address.
func widthOf(bounds, at int) int {
	left := 64 - at%64
	switch {
	case bounds >= manyBounds && left >= manyBits:
		return manyBits
	case bounds >= someBounds && left >= someBits:
		return someBits
	}
	return fewBits
}

// childOf is the number of the child that a key belongs to.
func childOf(k key, at, width int) uint32 {
	word := k.high
	if at >= 64 {
		word = k.low
	}
	return uint32(word << (at % 64) >> (64 - width))
}

// isStart reports whether no bit behind the first n is set.
func isStart(k key, n int) bool { return k.high&^maskOf(n) == 0 && k.low&^maskOf(n-64) == 0 }

// maskOf is the upper n bits, of 0 to 64.
func maskOf(n int) uint64 { return ^(math.MaxUint64 >> min(max(n, 0), 64)) }

func sharedBits(a, b key) int {
	if a.high != b.high {
		return bits.LeadingZeros64(a.high ^ b.high)
	}
	return 64 + bits.LeadingZeros64(a.low^b.low)
}

// lines takes lines, and returns the number of the first.
func (t *Table) lines(n int) (uint32, error) {
	first := len(t.Lines)
	if err := t.linesFit(first + n); err != nil {
		return 0, err
	}
	t.Lines = append(t.Lines, make([]Line, n)...)
	return t.FirstLine() + uint32(first), nil
}

func (t *Table) linesFit(n int) error {
	if n > int(t.options.Limits.Lines) {
		return fmt.Errorf("the addresses and conditions of the rules need more than %d bytes of tables: use fewer or merge them, or raise gate.table_memory", 64*t.options.Limits.Lines)
	}
	return nil
}

// FirstLine is the first line of the copy.
func (t *Table) FirstLine() uint32 { return t.options.Copy * t.options.Limits.Lines }

// Line is a line by its number.
func (t *Table) Line(n uint32) *Line { return &t.Lines[n-t.FirstLine()] }

func (l *Line) node() *abiGateNode { return (*abiGateNode)(unsafe.Pointer(l)) }
func (l *Line) leaf() *abiGateLeaf { return (*abiGateLeaf)(unsafe.Pointer(l)) }
func (l *Line) wide() *abiGateWide { return (*abiGateWide)(unsafe.Pointer(l)) }
func (l *Line) child() *[16]uint32 { return (*[16]uint32)(unsafe.Pointer(l)) }
func (l *Line) word() *[abiGateSizeGATE_LINE_WORDS]uint64 {
	return (*[abiGateSizeGATE_LINE_WORDS]uint64)(unsafe.Pointer(l))
}

// find is the row of an address: what gate_find() does in the kernel.
func (t *Table) find(root uint32, k key) uint32 {
	for r := root; ; {
		n := r & (1<<abiGateRefGATE_REF_SHIFT - 1)
		switch abiGateRef(r >> abiGateRefGATE_REF_SHIFT) {
		case abiGateRefGATE_REF_ROW:
			return r
		case abiGateRefGATE_REF_LEAF:
			l := t.Line(n).leaf()
			i := 0
			for i < len(l.Key) && k.high >= l.Key[i] {
				i++
			}
			return l.Row[i]
		case abiGateRefGATE_REF_WIDE:
			l := t.Line(n).wide()
			i := 0
			for i < len(l.High) && k.compare(key{l.High[i], l.Low[i]}) >= 0 {
				i++
			}
			return l.Row[i]
		}
		node := t.Line(n).node()
		switch (key{k.high & node.MaskHigh, k.low & node.MaskLow}).compare(key{node.High, node.Low}) {
		case -1:
			return node.Below
		case 1:
			return node.Above
		}
		i := childOf(k, int(node.At), int(node.Bits))
		r = t.Line(node.First + i/16).child()[i%16]
	}
}
