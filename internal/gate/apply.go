package gate

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

func randomKeys() (keys [8]uint64) {
	var b [64]byte
	_, _ = rand.Read(b[:]) // never fails
	for i := range keys {
		keys[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return keys
}

func (g *Gate) options(which uint32, now time.Time) engine.Options {
	return engine.Options{Now: now, Copy: which, Limits: g.cfg.Tables}
}

// Apply replaces the rules: each packet meets the old ones or the new ones. Rules that are
// in both go on with their counters and token buckets. After an error the old ones stay.
func (g *Gate) Apply(rs *rules.Ruleset) error {
	if err := g.checkCookies(rs); err != nil {
		return err
	}
	g.applying.Lock()
	defer g.applying.Unlock()
	return g.apply(rs, time.Now())
}

// Rules are those that were applied last, with those that have ended since.
func (g *Gate) Rules() *rules.Ruleset {
	g.applying.Lock()
	defer g.applying.Unlock()
	return g.rules
}

func (g *Gate) apply(rs *rules.Ruleset, now time.Time) error {
	which := 1 - g.which
	table, err := g.compile(rs, which, now)
	if err != nil {
		return err
	}
	if table.SaysFlows() { // before the first packet meets these rules
		if err := g.sayFlows(true); err != nil {
			return err
		}
	}
	if err := g.do(func() error { return g.turn(table, which, hasCookies(rs)) }); err != nil {
		return err
	}
	g.rules, g.which = rs, which
	if !table.SaysFlows() {
		if err := g.sayFlows(false); err != nil {
			return err
		}
	}
	g.expireAt(table.Next)
	return nil
}

// sayFlows has packets that meet the rules at XDP meet them at tc, too, where flows are counted; or no longer.
func (g *Gate) sayFlows(do bool) error {
	if g.core == nil || g.saysFlows.Swap(do) == do {
		return nil
	}
	return g.core.Refresh()
}

// Refresh has interfaces whose packets meet the rules at tc try XDP again: a program of someone else's may have gone.
func (g *Gate) Refresh() error {
	if g.core == nil {
		return nil
	}
	return g.core.Refresh()
}

// expireAt has the rules compiled again when something ends.
func (g *Gate) expireAt(next time.Time) {
	g.expiry.Lock()
	defer g.expiry.Unlock()
	if g.expiry.timer != nil {
		g.expiry.timer.Stop()
	}
	if !next.IsZero() && !g.expiry.closed {
		g.expiry.timer = time.AfterFunc(time.Until(next), g.expire)
	}
}

// retryExpiry is when what should have ended is tried again.
const retryExpiry = time.Second

// expire leaves out what has ended.
func (g *Gate) expire() {
	g.applying.Lock()
	defer g.applying.Unlock()
	if err := g.apply(g.rules, time.Now()); err != nil {
		g.log.Warn("packet rules whose time has ended stay for another second", "error", err)
		g.expireAt(time.Now().Add(retryExpiry))
	}
}

// turn fills the copy that no program uses, and has all packets use it.
func (g *Gate) turn(table *engine.Table, which uint32, cookies bool) error {
	had := g.cookies
	g.cookies = cookies
	if err := g.refreshCookies(); err != nil {
		g.cookies = had
		return err
	}
	next := g.control
	next.Table[which] = table.Header
	clear(next.Iface[which][:])
	next.Copy = next.Copy&^1 + engine.Copies + which
	for i, p := range g.ifaces {
		if err := table.AddIface(&next, uint32(i), p.Name, p.hooks, p.answers); err != nil {
			return fmt.Errorf("gate of %s: %w", p.Name, err)
		}
	}
	kept, removed := g.assign(table)
	if err := g.write(table, which, kept, &next); err != nil {
		g.free = append(g.free, added(kept, g.slots)...)
		return err
	}
	g.table, g.slots = table, kept
	g.forgetRules()
	g.dropped.learn(table.Rules)
	// Now no program counts for what was removed, or reads the old tables.
	if err := g.core.Wait(); err != nil {
		return err
	}
	return g.retire(removed)
}

// assign gives each rule a slot: that which it has, or a free one.
func (g *Gate) assign(t *engine.Table) (kept map[uint32]uint16, removed []uint16) {
	kept = map[uint32]uint16{}
	for _, r := range t.Rules {
		slot, ok := g.slots[r.ID]
		if !ok {
			slot = g.free[len(g.free)-1] // there are twice as many as rules, and those of leaving
			g.free = g.free[:len(g.free)-1]
		}
		kept[r.ID] = slot
	}
	for id, slot := range g.slots {
		if _, ok := kept[id]; !ok {
			removed = append(removed, slot)
		}
	}
	return kept, removed
}

// added are the slots that only the first has.
func added(next, before map[uint32]uint16) (slots []uint16) {
	for id, slot := range next {
		if _, ok := before[id]; !ok {
			slots = append(slots, slot)
		}
	}
	return slots
}

// write fills a copy, and then turns to it.
func (g *Gate) write(t *engine.Table, which uint32, slots map[uint32]uint16, next *engine.Control) error {
	h := &t.Header
	done, err := g.writeRows(t, written{})
	for _, err := range []error{
		err,
		put(g.maps["gate_pages"], h.Page, t.Pages),
		put(g.maps["gate_rules"], h.Rule, t.Programs(func(id uint32) uint16 { return slots[id] })),
	} {
		if err != nil {
			return fmt.Errorf("writing packet rules: %w", err)
		}
	}
	filled := *next
	filled.Copy = g.control.Copy // programs still use the other one
	if err := g.publish(&filled); err != nil {
		return err
	}
	if err := g.publish(next); err != nil {
		return err
	}
	g.written = done
	return nil
}

// written is how much of a table is in the maps.
type written struct{ rows, lines int }

// writeRows writes the rows and lines of a table that are not in the maps yet.
func (g *Gate) writeRows(t *engine.Table, had written) (written, error) {
	return written{len(t.Rows), len(t.Lines)}, errors.Join(
		put(g.maps["gate_lines"], t.FirstLine()+uint32(had.lines), t.Lines[had.lines:]),
		put(g.maps["gate_rows"], t.Header.Row+uint32(had.rows), t.Rows[had.rows:]))
}

// change makes a control block visible to the programs, in place: what they have decided before they do not repeat.
func (g *Gate) change(c *engine.Control) error {
	if err := g.publish(c); err != nil {
		return err
	}
	return g.forgetVerdicts()
}

// forgetVerdicts has the programs look again at packets that are like others.
func (g *Gate) forgetVerdicts() error {
	next := g.control
	next.Copy += engine.Copies // the copy stays
	return g.publish(&next)
}

// publish makes a control block visible to the programs.
func (g *Gate) publish(c *engine.Control) error {
	if err := g.maps[".data.gate"].Put(uint32(0), c); err != nil {
		return fmt.Errorf("turning to other packet rules: %w", err)
	}
	g.control = *c
	return nil
}

// put writes elements of an array from a number on.
func put[T any](m *ebpf.Map, first uint32, values []T) error {
	if len(values) == 0 {
		return nil
	}
	keys := make([]uint32, len(values))
	for i := range keys {
		keys[i] = first + uint32(i)
	}
	_, err := m.BatchUpdate(keys, values, nil)
	return err
}
