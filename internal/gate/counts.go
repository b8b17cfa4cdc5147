package gate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// Counts are running totals.
type Counts struct {
	Packets uint64 `json:"packets"` // that matched; a GSO frame is as many as its segments
	Bytes   uint64 `json:"bytes"`   // by the IP header; of the frame where that cannot be read
	Dropped uint64 `json:"dropped"` // of Packets
	// DroppedBytes is of Bytes.
	DroppedBytes uint64 `json:"dropped_bytes"`
}

// add adds what the programs have counted: each packet once.
func (c *Counts) add(o *engine.Count) {
	c.Packets += o.Packets + o.Dropped
	c.Bytes += o.Bytes + o.DroppedBytes
	c.Dropped += o.Dropped
	c.DroppedBytes += o.DroppedBytes
}

// RuleCounts are those of a rule since it was applied first.
type RuleCounts struct {
	Rule *rules.Rule
	Counts
	PacketRate, ByteRate float64 // per second, between the last two drains
}

// Counters are all counters of the gate.
type Counters struct {
	Rules   []RuleCounts // that are in effect, in order
	Passed  Counts       // packets that no rule decided about
	NotIP   Counts       // other frames
	Removed Counts       // of rules that are no longer in effect
	Banned  Counts       // packets whose source was banned
	Exempt  Counts       // packets of banned prefixes that an allow list let through to the rules
	// Forgotten are token buckets of sources that were given to others before they were
	// full again: these sources had their burst too early.
	Forgotten uint64
}

// Counters reads all counters.
func (g *Gate) Counters() (c Counters, err error) {
	err = g.do(func() error {
		totals, err := g.totals()
		if err != nil {
			return err
		}
		a, err := g.inherited()
		if err != nil {
			return err
		}
		a = a.plus(&Amounts{Removed: g.removed(totals)})
		a.addSlots(totals)
		for _, r := range g.table.Rules {
			one := RuleCounts{Rule: r, Counts: totals[g.slots[r.ID]].plus(a.Rules[r.ID])}
			delete(a.Rules, r.ID)
			one.PacketRate, one.ByteRate = g.rates.of(r.ID)
			c.Rules = append(c.Rules, one)
		}
		for _, gone := range a.Rules {
			a.Removed = a.Removed.plus(gone)
		}
		c.Passed, c.NotIP, c.Removed, c.Banned, c.Exempt, c.Forgotten = a.Passed, a.NotIP, a.Removed, a.Banned, a.Exempt, a.Forgotten
		return nil
	})
	return c, err
}

// slotCount is how many counters a processor has. Those of removed rules are more where packets that were like others are not
// counted there yet: at most one in each part.
func (g *Gate) slotCount() uint32 { return g.cfg.Tables.Slots() + 2*g.cpus }

// totals are the counters of all processors, by slot.
func (g *Gate) totals() ([]Counts, error) {
	return totalsOf(g.maps["gate_counts"], g.maps["gate_drop_parts"], g.slotCount())
}

func totalsOf(counts, parts *ebpf.Map, each uint32) ([]Counts, error) {
	var c datapath.Mapped[engine.Count]
	var p datapath.Mapped[engine.DropPart]
	defer c.Close()
	defer p.Close()
	if err := errors.Join(c.OpenToRead(counts), p.OpenToRead(parts)); err != nil {
		return nil, fmt.Errorf("reading the counters of packet rules: %w", err)
	}
	return (&tally{c.Values, p.Values, each}).totals(), nil
}

// removed is what rules counted that are gone.
func (g *Gate) removed(totals []Counts) Counts {
	sum := g.gone
	for _, slot := range g.leaving {
		sum = sum.plus(totals[slot])
	}
	return sum
}

// retire keeps what rules counted that are gone, and clears their slots for others. Programs use them no more, but to count what they
// remember.
func (g *Gate) retire(slots []uint16) error {
	g.leaving = append(g.leaving, slots...)
	return g.release()
}

// release clears the slots of removed rules for which no program has anything left to count.
func (g *Gate) release() error {
	if len(g.leaving) == 0 {
		return nil
	}
	waiting := (&tally{parts: g.dropped.parts.Values, each: g.slotCount()}).waits()
	totals, err := g.totals() // afterwards: those of others do not change
	if err != nil {
		return err
	}
	for _, slot := range g.leaving {
		if !waiting[slot] {
			g.gone = g.gone.plus(totals[slot])
			if err := g.clear(slot); err != nil {
				return err
			}
			g.free = append(g.free, slot)
		}
	}
	g.leaving = slices.DeleteFunc(g.leaving, func(slot uint16) bool { return !waiting[slot] })
	return nil
}

// clear has a slot count from 0.
func (g *Gate) clear(slot uint16) error {
	for cpu := range g.cpus + 1 {
		if err := g.maps["gate_counts"].Put(cpu*g.slotCount()+uint32(slot), engine.Count{}); err != nil {
			return fmt.Errorf("clearing the counters of a packet rule: %w", err)
		}
	}
	if err := g.maps["gate_buckets"].Put(uint32(slot), int64(0)); err != nil {
		return fmt.Errorf("clearing the limit of a packet rule: %w", err)
	}
	return nil
}

// take keeps what a memory that no program uses has of a removed rule.
func (g *Gate) take(a *engine.Again) {
	p := (&tally{each: g.slotCount()}).pending(a)
	if slices.Contains(g.leaving, uint16(p.slot)) {
		g.gone = g.gone.plus(Counts{p.packets, p.bytes, p.packets, p.bytes})
		a.Packets, a.Settled = 0, 0
	}
}
