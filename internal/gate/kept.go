package gate

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/engine"
)

// Amounts are running totals, in a form that outlasts the agent.
type Amounts struct {
	Rules   map[uint32]Counts         `json:"rules"` // by id
	Bans    map[netip.Prefix]BanTotal `json:"bans"`  // in effect
	Passed  Counts                    `json:"passed"`
	NotIP   Counts                    `json:"not_ip"`
	Removed Counts                    `json:"removed"`
	Banned  Counts                    `json:"banned"`
	Exempt  Counts                    `json:"exempt"`
	// Forgotten are token buckets, see Counters.
	Forgotten uint64 `json:"forgotten_sources"`
}

// BanTotal is what a ban dropped.
type BanTotal struct {
	Dropped      uint64 `json:"dropped"`
	DroppedBytes uint64 `json:"dropped_bytes"`
}

// plus is a sum.
func (c Counts) plus(o Counts) Counts {
	return Counts{c.Packets + o.Packets, c.Bytes + o.Bytes, c.Dropped + o.Dropped, c.DroppedBytes + o.DroppedBytes}
}

// plus is a sum of both.
func (a *Amounts) plus(o *Amounts) *Amounts {
	sum := &Amounts{
		Rules: map[uint32]Counts{}, Bans: map[netip.Prefix]BanTotal{},
		Passed: a.Passed.plus(o.Passed), NotIP: a.NotIP.plus(o.NotIP), Removed: a.Removed.plus(o.Removed),
		Banned: a.Banned.plus(o.Banned), Exempt: a.Exempt.plus(o.Exempt), Forgotten: a.Forgotten + o.Forgotten,
	}
	for _, one := range []*Amounts{a, o} {
		for id, c := range one.Rules {
			sum.Rules[id] = sum.Rules[id].plus(c)
		}
		for p, b := range one.Bans {
			was := sum.Bans[p]
			sum.Bans[p] = BanTotal{was.Dropped + b.Dropped, was.DroppedBytes + b.DroppedBytes}
		}
	}
	return sum
}

// keptMaps are those that count on with the programs that stay on interfaces, by the names of their pins.
var keptMaps = map[string]string{
	"counts": "gate_counts", "parts": "gate_drop_parts", "rules": "gate_rules", "control": ".data.gate", "bans": "gate_bans", "ban_counts": "gate_ban_counts",
	"buckets": "gate_buckets", // as many as slots
}

// keptPrefix begins the names of directories with pins of maps, which are as this version has them.
var keptPrefix = fmt.Sprintf("maps-4-%d-%d-%d-", unsafe.Sizeof(engine.Control{}), unsafe.Sizeof(engine.Rule{}), unsafe.Sizeof(engine.DropPart{}))

// former are maps of an agent before, whose programs may still run.
type former struct {
	dir  string
	maps map[string]*ebpf.Map
}

// keepMaps pins what counts on without the agent, when the first program is about to stay on an interface: an agent that does
// not start leaves nothing.
func (g *Gate) keepMaps() error {
	if !g.cfg.Keep || g.kept {
		return nil
	}
	dir := filepath.Join(g.pins, fmt.Sprint(keptPrefix, time.Now().UnixNano()))
	err := os.Mkdir(dir, 0o700)
	for pin, name := range keptMaps {
		if err == nil {
			err = g.maps[name].Pin(filepath.Join(dir, pin))
		}
	}
	if err != nil {
		return fmt.Errorf("keeping the counters of packet rules: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	g.kept = true
	return nil
}

// findFormers opens what agents before have left.
func (g *Gate) findFormers() {
	entries, err := os.ReadDir(g.pins)
	if err != nil { // there is nothing
		return
	}
	g.attachedBefore = datapath.Attached(g.pins)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "maps-") {
			continue
		}
		f := &former{dir: e.Name(), maps: map[string]*ebpf.Map{}}
		if strings.HasPrefix(e.Name(), keptPrefix) {
			err = f.open(filepath.Join(g.pins, f.dir), g.maps)
		} else {
			err = errOtherVersion
		}
		if err != nil {
			g.log.Warn("gate: what rules of an agent before have counted is not taken over", "pins", f.dir, "error", err)
			f.close()
		}
		g.formers = append(g.formers, f)
	}
}

// errOtherVersion is that maps are not as this version has them.
var errOtherVersion = errors.New("another version wrote it")

// open opens maps that are as those of this agent.
func (f *former) open(dir string, own map[string]*ebpf.Map) (err error) {
	for pin, name := range keptMaps {
		shared := pin == "counts" || pin == "parts" // the kernel shares no memory that may only be read
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, pin), &ebpf.LoadPinOptions{ReadOnly: !shared})
		if err != nil {
			return err
		}
		f.maps[pin] = m
		if is, was := own[name], m; is.Type() != was.Type() || is.KeySize() != was.KeySize() || is.ValueSize() != was.ValueSize() {
			return fmt.Errorf("%w: %s is another", errOtherVersion, pin)
		}
	}
	return nil
}

func (f *former) close() {
	for _, m := range f.maps {
		if m != nil {
			m.Close()
		}
	}
	f.maps = nil
}

// amounts are what its programs have counted until now.
func (f *former) amounts() (*Amounts, error) {
	a := &Amounts{Rules: map[uint32]Counts{}, Bans: map[netip.Prefix]BanTotal{}}
	if f.maps == nil {
		return a, nil
	}
	totals, err := totalsOf(f.maps["counts"], f.maps["parts"], f.maps["buckets"].MaxEntries())
	if err != nil {
		return nil, err
	}
	a.addSlots(totals)
	var control engine.Control
	if err := f.maps["control"].Lookup(uint32(0), &control); err != nil {
		return nil, fmt.Errorf("reading which rules there were: %w", err)
	}
	table := &control.Table[control.Copy&1]
	for n := range table.Rules {
		var r engine.Rule
		if err := f.maps["rules"].Lookup(table.Rule+n, &r); err != nil {
			return nil, fmt.Errorf("reading which rules there were: %w", err)
		}
		a.Rules[r.Id] = totals[r.Slot]
	}
	return a, f.addBans(a)
}

func (f *former) addBans(a *Amounts) error {
	var key abiGateBanKey
	var ban abiGateBan
	for each := f.maps["bans"].Iterate(); each.Next(&key, &ban); {
		var c abiGateBanCount
		if err := f.maps["ban_counts"].Lookup(ban.Slot, &c); err != nil {
			return fmt.Errorf("reading what bans dropped: %w", err)
		}
		if p, err := addressOf(key.High, key.Low, uint8(key.Ipv6)).Prefix(int(key.Bits)); err == nil {
			a.Bans[p] = BanTotal{c.Packets, c.Bytes}
		}
	}
	return nil
}

// addSlots adds what is not of a rule.
func (a *Amounts) addSlots(totals []Counts) {
	a.Passed = a.Passed.plus(totals[engine.SlotPassed])
	a.NotIP = a.NotIP.plus(totals[engine.SlotNotIP])
	a.Banned = a.Banned.plus(totals[engine.SlotBanned])
	a.Exempt = a.Exempt.plus(totals[engine.SlotExempt])
	a.Forgotten += totals[engine.SlotForgotten].Packets
}

// Formers reports whether maps of agents before were kept: they go on from what these agents inherited. Without
// them, what was written down last is all.
func (g *Gate) Formers() bool { return len(g.formers) > 0 }

// InEffect reports whether a program of an agent before still decides about packets of an interface, or did at the start.
func (g *Gate) InEffect() bool { return g.Formers() && g.attachedBefore }

// DropFormers removes maps of agents before that nothing goes on from.
func (g *Gate) DropFormers() {
	for _, f := range g.formers {
		f.close()
		err := os.RemoveAll(filepath.Join(g.pins, f.dir))
		g.log.Warn("gate: removed counters that an agent before has left: none of its programs is on an interface, and no file of gate.state has its rules", "pins", f.dir, "error", err)
	}
	g.formers = nil
}

// Inherit goes on from what agents before have counted. It is called before Apply, with the directories of pins whose
// counts are in it.
func (g *Gate) Inherit(a *Amounts, folded []string) {
	g.base = *a.plus(&Amounts{}) // a copy
	for _, f := range g.formers {
		for _, dir := range folded {
			if f.dir == dir {
				f.close()
			}
		}
	}
}

// inherited is what agents before have counted, and their programs until now. The caller is in core.Do.
func (g *Gate) inherited() (*Amounts, error) {
	sum := &g.base
	for _, f := range g.formers {
		one, err := f.amounts()
		if err != nil {
			return nil, fmt.Errorf("counters of an agent before (%s): %w", f.dir, err)
		}
		sum = sum.plus(one)
	}
	return sum, nil
}

// Amounts are what the gate has counted in all, the part of it that this agent's maps do not have, and the directories of
// pins whose counts are in that part.
func (g *Gate) Amounts() (all, before *Amounts, folded []string, err error) {
	err = g.do(func() error {
		for _, f := range g.formers {
			if f.maps == nil {
				folded = append(folded, f.dir)
			}
		}
		before = (&Amounts{}).plus(&g.base)
		inherited, err := g.inherited()
		if err != nil {
			return err
		}
		own := &Amounts{Rules: map[uint32]Counts{}, Bans: map[netip.Prefix]BanTotal{}}
		totals, err := g.totals()
		if err != nil {
			return err
		}
		own.Removed = g.removed(totals)
		own.addSlots(totals)
		for id, slot := range g.slots {
			own.Rules[id] = totals[slot]
		}
		for p, b := range g.bans.list {
			c, err := g.banCount(b)
			if err != nil {
				return err
			}
			own.Bans[p] = BanTotal{c.Packets, c.Bytes}
		}
		all = inherited.plus(own)
		return nil
	})
	return all, before, folded, err
}

// fold adds what the programs of agents before have counted to what is inherited: none of them runs any more. The caller
// is in core.Do.
func (g *Gate) fold() error {
	sum, err := g.inherited()
	if err != nil {
		return err
	}
	g.base = *sum
	maps.DeleteFunc(g.base.Bans, func(p netip.Prefix, _ BanTotal) bool { return g.bans.list[p].Prefix != p })
	for _, f := range g.formers {
		f.close()
	}
	g.forgetRules()
	return nil
}

// forgetRules has what rules counted that are not in effect be that of removed ones.
func (g *Gate) forgetRules() {
	maps.DeleteFunc(g.base.Rules, func(id uint32, c Counts) bool {
		_, has := g.slots[id]
		if !has {
			g.base.Removed = g.base.Removed.plus(c)
		}
		return !has
	})
}

// settle ends with agents before, when all interfaces have programs of this one.
func (g *Gate) settle() error {
	if g.settled || !g.core.Claimed() {
		return nil
	}
	g.settled = true
	if err := g.fold(); err != nil {
		return err
	}
	if g.onSettled != nil {
		go g.onSettled() // it takes the lock
	}
	return nil
}

// OnSettled has a function called when Amounts do not depend on pins of agents before any more, which Release removes.
func (g *Gate) OnSettled(f func()) { g.onSettled = f }

// Release removes the pins of agents before.
func (g *Gate) Release() error {
	var errs []error
	for _, f := range g.formers {
		errs = append(errs, os.RemoveAll(filepath.Join(g.pins, f.dir)))
	}
	if !g.cfg.Keep && len(g.formers) > 0 {
		if err := os.Remove(g.pins); !errors.Is(err, unix.ENOTEMPTY) { // a stage that has pins there yet removes it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
