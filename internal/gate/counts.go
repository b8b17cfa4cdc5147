package gate

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

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
		a = a.plus(&Amounts{Removed: g.gone})
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

// totals are the counters of all processors, by slot.
func (g *Gate) totals() ([]Counts, error) {
	return totalsOf(g.maps["gate_counts"], g.cfg.Tables.Slots())
}

func totalsOf(m *ebpf.Map, slots uint32) ([]Counts, error) {
	all, err := countsOf(m)
	if err != nil {
		return nil, err
	}
	sums := make([]Counts, slots)
	for i := range all {
		sums[i%len(sums)].add(&all[i])
	}
	return sums, nil
}

// counts are the counters as the programs keep them.
func countsOf(m *ebpf.Map) ([]engine.Count, error) {
	keys, values := make([]uint32, m.MaxEntries()), make([]engine.Count, m.MaxEntries())
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) || n != len(values) {
		return nil, fmt.Errorf("reading the counters of packet rules: %d of %d: %w", n, len(values), err)
	}
	return values, nil
}

// retire keeps what rules counted that are gone, and clears their slots for others. No
// program uses them.
func (g *Gate) retire(slots []uint16) error {
	if len(slots) == 0 {
		return nil
	}
	totals, err := g.totals()
	if err != nil {
		return err
	}
	for _, slot := range slots {
		g.gone = g.gone.plus(totals[slot])
		for cpu := range g.cpus + 1 {
			if err := g.maps["gate_counts"].Put(cpu*g.cfg.Tables.Slots()+uint32(slot), engine.Count{}); err != nil {
				return fmt.Errorf("clearing the counters of a packet rule: %w", err)
			}
		}
		if err := g.maps["gate_buckets"].Put(uint32(slot), int64(0)); err != nil {
			return fmt.Errorf("clearing the limit of a packet rule: %w", err)
		}
		g.free = append(g.free, slot)
	}
	return nil
}
