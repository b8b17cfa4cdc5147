package engine

import (
	"net/netip"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// allowed makes the tries of the allow lists: they find 1 for sources that cannot be banned.
func (c *compiler) allowed(rs *rules.Ruleset) (err error) {
	list := rs.AllowList(func(until time.Time) bool { return c.ended(until) })
	for i, is4 := range []bool{true, false} {
		first, bounds := inside(list, is4)
		if c.Header.Allow[i], err = c.trie(bounds, first, 0); err != nil {
			return err
		}
	}
	return nil
}

// inside is where prefixes of a family begin (1) and end (0). first is what the lowest address is.
func inside(list []netip.Prefix, is4 bool) (first uint32, bounds []bound) {
	var turns []turn
	for _, p := range list {
		if p.Addr().Is4() != is4 {
			continue
		}
		turns = append(turns, turn{key: keyOf(p.Addr()), delta: 1})
		if end, ok := after(p); ok {
			turns = append(turns, turn{key: end, delta: -1})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return a.compare(b.key) })
	depth, was := 0, uint16(0)
	for i, t := range turns {
		depth += t.delta
		if i+1 < len(turns) && turns[i+1].key == t.key {
			continue
		}
		is := uint16(min(depth, 1))
		switch {
		case t.key == key{}:
			first = uint32(is)
		case is != was:
			bounds = append(bounds, bound{t.key, is})
		}
		was = is
	}
	return first, bounds
}

// Allowed reports whether an allow list has an address, by the tables.
func (t *Table) Allowed(a netip.Addr) bool {
	i := 0
	if !a.Is4() {
		i = 1
	}
	return t.find(t.Header.Allow[i], keyOf(a)) != 0
}
