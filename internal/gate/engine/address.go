package engine

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// key is an address as the tries have it: that of IPv4 is the upper 32 bits.
type key struct{ high, low uint64 }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.high, other.high), cmp.Compare(k.low, other.low))
}

func keyOf(a netip.Addr) key {
	if a.Is4() {
		b := a.As4()
		return key{high: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := a.As16()
	return key{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// after is the first address behind a prefix; false: there is none.
func after(p netip.Prefix) (key, bool) {
	k, n := keyOf(p.Addr()), p.Bits()
	var carry uint64
	switch {
	case n == 0:
		return key{}, false
	case n <= 64:
		k.high, carry = bits.Add64(k.high, 1<<(64-n), 0)
	default:
		k.low, carry = bits.Add64(k.low, 1<<(128-n), 0)
		k.high, carry = bits.Add64(k.high, 0, carry)
	}
	return k, carry == 0
}

// bound is an address from which on another row is right.
type bound struct {
	key
	row uint16
}

func (c *compiler) addresses() (err error) {
	h := &c.Header
	for _, end := range []struct {
		used  uint32
		of    func(*rules.Match) *rules.Addrs
		none  *uint16
		roots *[2]uint32
	}{
		{uint32(abiGateUsedGATE_USES_SRC), func(m *rules.Match) *rules.Addrs { return &m.Src }, &h.NoSrc, &h.Src},
		{uint32(abiGateUsedGATE_USES_DST), func(m *rules.Match) *rules.Addrs { return &m.Dst }, &h.NoDst, &h.Dst},
	} {
		free := c.where(func(m *rules.Match) bool { return len(end.of(m).Prefixes)+len(end.of(m).Sets) == 0 })
		if !c.use(end.used, free) {
			continue
		}
		if *end.none, err = c.row(free); err != nil {
			return err
		}
		s := c.sweep(end.of, free)
		for i, family := range []int{4, 6} {
			first, bounds, err := s.run(family)
			if err != nil {
				return err
			}
			if end.roots[i], err = c.trie(bounds, uint32(first), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep goes along the addresses, from each end of a prefix to the next. Lists are the
// sets, and the prefixes that single rules name: rules with the same set share it.
type sweep struct {
	c     *compiler
	lists [][]netip.Prefix
	conds [][]*cond // that name a list
	now   ruleBits  // whose condition holds
}

// cond is the condition of a rule: the address is in one of the lists, or with not in none.
type cond struct {
	rule int
	not  bool
	in   int // of its lists
}

func (c *compiler) sweep(of func(*rules.Match) *rules.Addrs, free ruleBits) *sweep {
	s := &sweep{c: c, now: slices.Clone(free)}
	numbers := map[string]int{}
	for i, r := range c.Rules {
		a := of(&r.Match)
		if free.has(i) {
			continue
		}
		one := &cond{rule: i, not: a.Not}
		s.now.put(i, a.Not)
		for _, name := range a.Sets {
			n, ok := numbers[name]
			if !ok {
				n = s.list(c.members(name))
				numbers[name] = n
			}
			s.conds[n] = append(s.conds[n], one)
		}
		if len(a.Prefixes) > 0 {
			n := s.list(a.Prefixes)
			s.conds[n] = append(s.conds[n], one)
		}
	}
	return s
}

func (s *sweep) list(p []netip.Prefix) int {
	s.lists, s.conds = append(s.lists, p), append(s.conds, nil)
	return len(s.lists) - 1
}

// members are the prefixes of a set that have not ended.
func (c *compiler) members(name string) (list []netip.Prefix) {
	for _, m := range c.sets[name].Prefixes {
		if !c.ended(m.Until) {
			list = append(list, m.Prefix)
		}
	}
	return list
}

// turn is where a prefix of a list begins or ends.
type turn struct {
	key
	list, delta int
}

// run finds the row of the lowest address of a family, and where rows change.
func (s *sweep) run(family int) (first uint16, bounds []bound, err error) {
	var turns []turn
	for i, list := range s.lists {
		for _, p := range list {
			if p.Addr().Is4() != (family == 4) {
				continue
			}
			turns = append(turns, turn{keyOf(p.Addr()), i, 1})
			if end, ok := after(p); ok {
				turns = append(turns, turn{end, i, -1})
			}
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return a.compare(b.key) })
	depth := make([]int, len(s.lists))
	row, err := s.c.row(s.now)
	if err != nil {
		return 0, nil, err
	}
	first = row
	for i := 0; i < len(turns); {
		at := turns[i].key
		for ; i < len(turns) && turns[i].key == at; i++ {
			n := turns[i].list
			was := depth[n] > 0
			depth[n] += turns[i].delta
			if is := depth[n] > 0; is != was {
				s.turn(n, turns[i].delta)
			}
		}
		next, err := s.c.row(s.now)
		if err != nil {
			return 0, nil, err
		}
		switch {
		case at == key{}:
			first = next
		case next != row:
			bounds = append(bounds, bound{at, next})
		}
		row = next
	}
	// Prefixes that reach the end do not turn there.
	for n := range depth {
		if depth[n] > 0 {
			s.turn(n, -1)
		}
	}
	return first, bounds, nil
}

// turn begins or ends a list.
func (s *sweep) turn(list, delta int) {
	for _, one := range s.conds[list] {
		one.in += delta
		s.now.put(one.rule, (one.in > 0) != one.not)
	}
}
