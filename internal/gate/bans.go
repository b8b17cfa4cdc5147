package gate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
)

// Ban is a source whose packets are dropped before they meet the rules, except those of
// allow lists in it.
type Ban struct {
	Prefix netip.Prefix // masked
	Since  time.Time
	Until  time.Time // zero: without end
}

// BanCounts is a ban and what it dropped.
type BanCounts struct {
	Ban
	Dropped, DroppedBytes uint64
}

// banLengths is how many lengths of prefixes can have bans, by family.
const banLengths = int(abiGateBanSizeGATE_BAN_LENGTHS)

// lengthFree is what a place for a length holds that has no bans.
const lengthFree = uint8(abiGateBanFreeGATE_BAN_FREE)

// bans are those in the kernel. Guarded by core.
type bans struct {
	list    map[netip.Prefix]banned
	free    []uint32               // slots of counters
	control abiGateBanControl      // what the programs see
	lengths [2]map[uint8]int       // how many bans have a length, by family
	done    func(BanCounts, error) // of each ban that ended; nil: nobody asks
}

type banned struct {
	Ban
	slot uint32
}

func (b *bans) init(size uint32) {
	b.list, b.lengths = map[netip.Prefix]banned{}, [2]map[uint8]int{{}, {}}
	for n := size; n > 0; n-- {
		b.free = append(b.free, n-1)
	}
	for i := range b.control.Bits {
		for n := range b.control.Bits[i] {
			b.control.Bits[i][n] = lengthFree
		}
	}
}

// Ban bans a source from the next packet on, or changes the end of its ban. A full table
// changes nothing.
func (g *Gate) Ban(b Ban) error {
	return g.do(func() error {
		if err := g.unbanEnded(time.Now()); err != nil {
			return err
		}
		one, known := g.bans.list[b.Prefix]
		if known {
			b.Since = one.Since
		} else {
			if err := g.bans.fits(b.Prefix); err != nil {
				return err
			}
			one.slot = g.bans.free[len(g.bans.free)-1]
		}
		one.Ban = b
		until, err := monotonic(b.Until)
		if err != nil {
			return err
		}
		if err := g.maps["gate_bans"].Put(banKey(b.Prefix), abiGateBan{Until: until, Slot: one.slot}); err != nil {
			return fmt.Errorf("banning %s: %w", b.Prefix, err)
		}
		if !known {
			if err := g.useLength(b.Prefix, 1); err != nil {
				_ = g.maps["gate_bans"].Delete(banKey(b.Prefix)) // not in effect without its length
				return err
			}
			g.bans.free = g.bans.free[:len(g.bans.free)-1]
		}
		g.bans.list[b.Prefix] = one
		return g.forgetVerdicts()
	})
}

// Unban ends bans. Of those that are not banned, none is an error.
func (g *Gate) Unban(prefixes ...netip.Prefix) error {
	return g.do(func() error { return g.unban(prefixes) })
}

// Bans are those in effect, by prefix.
func (g *Gate) Bans() (list []BanCounts, err error) {
	err = g.do(func() error {
		if err := g.unbanEnded(time.Now()); err != nil {
			return err
		}
		before, err := g.inherited()
		if err != nil {
			return err
		}
		for _, b := range g.bans.list {
			one, err := g.banCounts(b, before)
			if err != nil {
				return err
			}
			list = append(list, one)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b BanCounts) int { return a.Prefix.Compare(b.Prefix) })
	return list, err
}

// OnUnban has f called with each ban that ended, and what it dropped in all.
func (g *Gate) OnUnban(f func(BanCounts, error)) { g.bans.done = f }

// fits reports why another ban does not.
func (b *bans) fits(p netip.Prefix) error {
	if len(b.free) == 0 {
		return fmt.Errorf("all %d bans are in use: unban a source, ban prefixes instead of addresses, or raise gate.bans.max", len(b.list))
	}
	lengths := b.lengths[familyOf(p)]
	if lengths[uint8(p.Bits())] == 0 && len(lengths) == banLengths {
		return fmt.Errorf("bans of %d lengths of prefixes are in use (%v), and %s has another: ban a prefix of one of these, or add the rule drop src %s",
			banLengths, slices.Sorted(maps.Keys(lengths)), p, p)
	}
	return nil
}

// familyOf is 0 for IPv4 and 1 for IPv6, as tables have them.
func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

// banKey is a prefix as the programs look for it.
func banKey(p netip.Prefix) abiGateBanKey {
	key := abiGateBanKey{Bits: uint32(p.Bits()), Ipv6: uint32(familyOf(p))}
	if p.Addr().Is4() {
		a := p.Addr().As4()
		key.High = uint64(binary.BigEndian.Uint32(a[:])) << 32
		return key
	}
	a := p.Addr().As16()
	key.High, key.Low = binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
	return key
}

// monotonic is a time on the clock of the programs; 0: without end.
func monotonic(t time.Time) (uint64, error) {
	if t.IsZero() {
		return 0, nil
	}
	now, err := datapath.Now()
	if err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(max(now.Mono+t.UnixNano()-now.Wall, 1)), nil
}

// useLength notes that a ban has a length, or with -1 has it no more: the programs look
// for each length that some ban has.
func (g *Gate) useLength(p netip.Prefix, delta int) error {
	i, length := familyOf(p), uint8(p.Bits())
	lengths := g.bans.lengths[i]
	was := lengths[length]
	next, places := g.bans.control, g.bans.control.Bits[i][:]
	switch {
	case was == 0:
		n := slices.Index(places, lengthFree)
		next.Bits[i][n] = length
		next.Used[i] = max(next.Used[i], uint32(n+1))
	case was+delta == 0:
		next.Bits[i][slices.Index(places, length)] = lengthFree
		for next.Used[i] > 0 && next.Bits[i][next.Used[i]-1] == lengthFree {
			next.Used[i]--
		}
	}
	if next != g.bans.control {
		if err := g.maps[".data.gateban"].Put(uint32(0), &next); err != nil {
			return fmt.Errorf("banning prefixes of %d bits: %w", length, err)
		}
		g.bans.control = next
	}
	if lengths[length] += delta; lengths[length] == 0 {
		delete(lengths, length)
	}
	return nil
}

// banCounts are what a ban dropped, under agents before, too.
func (g *Gate) banCounts(b banned, before *Amounts) (BanCounts, error) {
	c, err := g.banCount(b)
	was := before.Bans[b.Prefix]
	return BanCounts{b.Ban, c.Packets + was.Dropped, c.Bytes + was.DroppedBytes}, err
}

func (g *Gate) banCount(b banned) (c abiGateBanCount, err error) {
	if err := g.maps["gate_ban_counts"].Lookup(b.slot, &c); err != nil {
		return c, fmt.Errorf("reading what the ban of %s dropped: %w", b.Prefix, err)
	}
	return c, nil
}

// unbanEnded frees what the programs do not follow any more.
func (g *Gate) unbanEnded(now time.Time) error {
	var ended []netip.Prefix
	for p, b := range g.bans.list {
		if !b.Until.IsZero() && !now.Before(b.Until) {
			ended = append(ended, p)
		}
	}
	slices.SortFunc(ended, func(a, b netip.Prefix) int {
		return cmp.Or(g.bans.list[a].Until.Compare(g.bans.list[b].Until), a.Compare(b))
	})
	return g.unban(ended)
}

// unban ends bans. No program counts for them when their slots are free again.
func (g *Gate) unban(prefixes []netip.Prefix) error {
	var ended []banned
	for _, p := range prefixes {
		b, ok := g.bans.list[p]
		if !ok {
			continue
		}
		if err := g.maps["gate_bans"].Delete(banKey(p)); err != nil {
			return fmt.Errorf("ending the ban of %s: %w", p, err)
		}
		delete(g.bans.list, p)
		if err := g.useLength(p, -1); err != nil {
			return err
		}
		ended = append(ended, b)
	}
	if len(ended) == 0 {
		return nil
	}
	if err := g.core.Wait(); err != nil {
		return err
	}
	before, err := g.inherited()
	if err != nil {
		return err
	}
	for _, b := range ended {
		c, err := g.banCounts(b, before)
		delete(g.base.Bans, b.Prefix)
		if err == nil {
			err = g.maps["gate_ban_counts"].Put(b.slot, abiGateBanCount{})
		}
		if err == nil {
			g.bans.free = append(g.bans.free, b.slot)
		}
		if g.bans.done != nil {
			g.bans.done(c, err)
		}
	}
	return nil
}
