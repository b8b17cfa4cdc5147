package disk

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// near tells addresses that cannot be of a group that is meant from those that may be, so that a pass over few groups
// makes no keys of the rows of others. The groups' prefixes are marked by what a product makes of them; few others share
// a mark.
type near struct {
	masks [][2]uint64 // of the lengths that the prefixes have
	marks [1 << nearBits]byte
}

const nearBits = 13

func newNear(prefixes []netip.Prefix) *near {
	n := &near{}
	for _, p := range prefixes {
		x := prefixOf(p)
		if !slices.Contains(n.masks, x.mask) {
			n.masks = append(n.masks, x.mask)
		}
		n.marks[placeOf(x.want[0], x.want[1])] = 1
	}
	return n
}

// placeOf is the mark of a prefix.
func placeOf(high, low uint64) uint64 {
	return (high*secrets[2] ^ low*secrets[3]) >> (64 - nearBits)
}

// table is which values of a dictionary may be meant, as vector.table has them. Nothing says of which family a value is:
// it is cut as one of either.
func (n *near) table(v *vector, m *memory) []byte {
	table := m.marks(v.values() + 1)
	clear(table)
	for _, mask := range n.masks {
		for i := range table[1:] {
			at := v.packed[i*addressBytes:][:addressBytes]
			table[i+1] |= n.marks[placeOf(binary.BigEndian.Uint64(at)&mask[0], binary.BigEndian.Uint64(at[8:])&mask[1])]
		}
	}
	return table
}

// nearby leaves of rows those whose addresses may be of a group that is meant.
func (c *counts) nearby(b *block, at []int32) ([]int32, error) {
	for i := range c.keys {
		k := &c.keys[i]
		if k.near == nil {
			continue
		}
		var table []byte
		v, err := b.wholeIf(k.column, func(v *vector) bool {
			table = k.near.table(v, b.memory)
			return bytes.IndexByte(table, 1) >= 0
		})
		switch {
		case err != nil:
			return nil, err
		case v == nil || v.same:
			continue
		case v.codes == nil: // no value is
			return nil, nil
		}
		kept := 0
		for _, row := range at { // without a branch: which rows stay is hard to guess
			at[kept] = row
			kept += int(table[v.codes[row]+1])
		}
		at = at[:kept]
	}
	return at, nil
}

// prefix is one of addresses as files have them.
type prefix struct{ mask, want [2]uint64 }

// prefixOf maps those of IPv4 to IPv6 (see ofFamily).
func prefixOf(p netip.Prefix) prefix {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	mask, a := maskOf(bits), p.Addr().As16()
	return prefix{mask, [2]uint64{binary.BigEndian.Uint64(a[:]) & mask[0], binary.BigEndian.Uint64(a[8:]) & mask[1]}}
}

func (p *prefix) has(b []byte) bool {
	return (binary.BigEndian.Uint64(b)&p.mask[0])^p.want[0]|(binary.BigEndian.Uint64(b[8:addressBytes])&p.mask[1])^p.want[1] == 0
}

// table is which values of a dictionary are within the prefix, as vector.table has them.
func (p *prefix) table(v *vector, m *memory) []byte {
	table := m.marks(v.values() + 1)
	table[0] = 0
	for i := range table[1:] {
		table[i+1] = mark(p.has(v.packed[i*addressBytes:][:addressBytes]))
	}
	return table
}
