// Package engine compiles a rule set to the read-only tables of bpf/gate/abi.h.
// Input: a rules.Ruleset and a time. Output: a Table, the same in user space (Find, for
// tests) and for the programs, or an error if it does not fit. Caller: package gate.
//
// Each dimension of a packet leads to a row, the set of rules whose condition about it
// holds. Equal rows are stored once, so that few remain. The rules that match a packet are
// in the rows of all dimensions; the first of them that decides wins.
package engine

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// The types of the tables, and sizes that callers need.
type (
	Control = abiGateControl
	Rule    = abiGateRule
	Row     = abiGateRow
	Page    = abiGatePage
	Line    = abiGateLine
	Iface   = abiGateIface
	Count   = abiGateCount
	Sources = abiGateSources
	// Flows of dropped packets.
	Drop     = abiGateDrop
	DropSet  = abiGateDropSet
	DropPart = abiGateDropPart
	Again    = abiGateAgain
	// Captured packets.
	Packet   = abiGatePacket
	Captured = abiGateCaptured
)

const (
	// Feature is the bit of enum feature.
	Feature = abiFeatureFEATURE_GATE

	MaxRules  = uint32(abiGateSizeGATE_RULES_MAX) // of a rule set, whatever the limits are
	FirstSlot = uint16(abiGateSlotGATE_SLOT_FIRST)
	Copies    = uint32(abiGateSizeGATE_COPIES)
	MaxRows   = uint32(abiGateSizeGATE_ROWS) // of a copy

	SlotPassed = uint32(abiGateSlotGATE_SLOT_PASSED)
	SlotNotIP  = uint32(abiGateSlotGATE_SLOT_NOT_IP)

	ActionDrop = uint8(abiGateActionGATE_DROP)

	CaptureDropped = uint32(abiGateCaptureGATE_CAPTURE_DROPPED)
	CaptureSampled = uint32(abiGateCaptureGATE_CAPTURE_SAMPLED)
	CapturePassed  = uint32(abiGateCaptureGATE_CAPTURE_PASSED)

	DropWays = uint32(abiGateDropSizeGATE_DROP_WAYS)

	HookXDP = uint8(abiGateHookGATE_HOOK_XDP)
	HookTC  = uint8(abiGateHookGATE_HOOK_TC)

	SlotForgotten = uint32(abiGateSlotGATE_SLOT_FORGOTTEN)
	SlotBanned    = uint32(abiGateSlotGATE_SLOT_BANNED)
	SlotExempt    = uint32(abiGateSlotGATE_SLOT_EXEMPT)
)

// HintSources are the names of enum hint_source; absent ones have none.
var HintSources = [...]string{
	abiHintSourceHINT_HARDWARE: "hardware", abiHintSourceHINT_DRIVER: "driver", abiHintSourceHINT_COMPUTED: "computed",
}

// Limits are the sizes of one copy of the tables.
type Limits struct{ Lines, Rules, Pages uint32 }

// Slots is how many counters a processor has: for rules of both copies, after those of what no rule decided.
func (l Limits) Slots() uint32 { return uint32(FirstSlot) + Copies*l.Rules }

// Options are what a table depends on besides the rules.
type Options struct {
	Now    time.Time // rules and members of sets whose time has ended are left out
	Copy   uint32    // that the table is for
	Limits Limits
}

// Table is a compiled rule set.
type Table struct {
	Rules  []*rules.Rule // by their bit
	Next   time.Time     // when the next rule or member of a set ends; zero: never
	Header abiGateTable
	Rows   []Row
	Pages  []Page
	Lines  []Line // of the tries, and then of the words of rows

	options Options
	rows    map[uint64][]uint16 // by a hash of what they have
	seed    maphash.Seed
	pages   map[Page]uint16
	words   words
}

// ruleBits is a set of rules.
type ruleBits []uint64

func (b ruleBits) set(n int)      { b[n/64] |= 1 << (n % 64) }
func (b ruleBits) clear(n int)    { b[n/64] &^= 1 << (n % 64) }
func (b ruleBits) has(n int) bool { return b[n/64]>>(n%64)&1 != 0 }

func (b ruleBits) put(n int, is bool) {
	if is {
		b.set(n)
	} else {
		b.clear(n)
	}
}

// and is what two sets share.
func (b ruleBits) and(other ruleBits) ruleBits {
	both := make(ruleBits, len(b))
	for i := range b {
		both[i] = b[i] & other[i]
	}
	return both
}

// Compile makes the tables of the rules that are in effect.
func Compile(rs *rules.Ruleset, o Options) (*Table, error) {
	t := &Table{options: o, rows: map[uint64][]uint16{}, seed: maphash.MakeSeed(), pages: map[Page]uint16{}}
	t.Header.Row, t.Header.Page, t.Header.Rule = o.Copy*MaxRows, o.Copy*o.Limits.Pages, o.Copy*o.Limits.Rules
	for _, r := range rs.Rules {
		if !t.ended(r.Until) {
			t.Rules = append(t.Rules, r)
		}
	}
	if err := t.fits(); err != nil {
		return nil, err
	}
	t.Header.Rules = uint32(len(t.Rules))
	for len(t.Rules) > 64*int(abiGateSizeGATE_GROUPS)<<t.words.shift {
		t.words.shift++
	}
	t.Header.GroupMask = 1<<t.words.shift - 1
	c := &compiler{Table: t, sets: map[string]*rules.Set{}, all: t.noRules()}
	for i, r := range t.Rules {
		c.all.set(i)
		if !r.DryRun {
			t.Header.Has |= uint32(has[r.Action])
		}
	}
	for _, s := range rs.Sets {
		c.sets[s.Name] = s
	}
	t.Header.Summary = t.summary(c.all)
	for _, one := range []func() error{c.heads, c.subs, c.codePoints, c.ifaces, c.numbers, c.addresses} {
		if err := one(); err != nil {
			return nil, err
		}
	}
	if err := c.allowed(rs); err != nil {
		return nil, err
	}
	return t, c.append()
}

// fits refuses more rules than there may be.
func (t *Table) fits() error {
	n, most := uint32(len(t.Rules)), t.options.Limits.Rules
	switch {
	case n > MaxRules:
		return fmt.Errorf("the rule set has %d rules, and at most %d fit: merge rules that differ in one value, or use sets", n, MaxRules)
	case n > most:
		return fmt.Errorf("the rule set has %d rules, and gate.max_rules is %d: raise it, merge rules that differ in one value, or use sets", n, most)
	}
	return nil
}

// has are rules about which a table says whether there are any.
var has = map[rules.Action]abiGateHas{rules.ActionNoFlow: abiGateHasGATE_HAS_NO_FLOW, rules.ActionOnlyFlow: abiGateHasGATE_HAS_ONLY_FLOW}

// SaysFlows reports whether rules say which packets have flow records.
func (t *Table) SaysFlows() bool { return t.Header.Has != 0 }

// compiler is a table in the making.
type compiler struct {
	*Table
	sets map[string]*rules.Set
	all  ruleBits
}

// ended reports whether something has ended, and notes when the next ends.
func (t *Table) ended(until time.Time) bool {
	if until.IsZero() {
		return false
	}
	if !t.options.Now.Before(until) {
		return true
	}
	if t.Next.IsZero() || until.Before(t.Next) {
		t.Next = until
	}
	return false
}

// where is the rules for which something holds.
func (c *compiler) where(holds func(*rules.Match) bool) ruleBits {
	b := c.noRules()
	for i, r := range c.Rules {
		b.put(i, holds(&r.Match))
	}
	return b
}

// use notes that rules have conditions about a dimension, if some have.
func (c *compiler) use(dimension uint32, free ruleBits) bool {
	if slices.Equal(free, c.all) {
		return false
	}
	c.Header.Used |= dimension
	return true
}

// heads are version, fragment and protocol together.
func (c *compiler) heads() (err error) {
	protos := [abiGateHeadGATE_PROTOS]ruleBits{}
	for p := range abiGateHeadGATE_PROTO_NONE {
		protos[p] = c.where(func(m *rules.Match) bool { return holds(&m.Proto, uint16(p)) })
	}
	free := c.where(func(m *rules.Match) bool { return isFree(&m.Proto) })
	protos[abiGateHeadGATE_PROTO_NONE] = free
	used := free.and(c.where(func(m *rules.Match) bool { return m.Family == 0 && m.Fragment == nil }))
	if !c.use(uint32(abiGateUsedGATE_USES_HEAD), used) && len(c.Rules) <= 64 {
		return nil
	}
	c.Header.Used |= uint32(abiGateUsedGATE_USES_HEAD) // there are words in rows only
	for state := range abiGateStateGATE_STATES {
		known := state >= abiGateStateGATE_STATE_IPV4WHOLE
		b := c.where(func(m *rules.Match) bool {
			return (m.Family == 0 || m.Family == familyOf(state)) &&
				(m.Fragment == nil || known && *m.Fragment == (state >= abiGateStateGATE_STATE_IPV4FRAGMENT))
		})
		for p := range abiGateHeadGATE_PROTOS {
			if c.Header.Head[uint32(state)*uint32(abiGateHeadGATE_PROTOS)+uint32(p)], err = c.row(b.and(protos[p])); err != nil {
				return err
			}
		}
	}
	return nil
}

func familyOf(state abiGateState) uint8 { return 4 + 2*uint8(state&1) }

// subs are TCP flags and ICMP types.
func (c *compiler) subs() (err error) {
	free := c.where(func(m *rules.Match) bool { return m.TCPFlags == nil && isFree(&m.ICMPType) })
	if !c.use(uint32(abiGateUsedGATE_USES_SUB), free) {
		return nil
	}
	for n := range abiGateSubGATE_SUB_NONE {
		b := c.where(func(m *rules.Match) bool {
			if n < abiGateSubGATE_SUB_TYPE {
				return isFree(&m.ICMPType) && (m.TCPFlags == nil || uint8(n)&m.TCPFlags.Mask == m.TCPFlags.Value)
			}
			return m.TCPFlags == nil && holds(&m.ICMPType, uint16(n-abiGateSubGATE_SUB_TYPE))
		})
		if c.Header.Sub[n], err = c.row(b); err != nil {
			return err
		}
	}
	c.Header.Sub[abiGateSubGATE_SUB_NONE], err = c.row(free)
	return err
}

func (c *compiler) codePoints() (err error) {
	free := c.where(func(m *rules.Match) bool { return isFree(&m.DSCP) })
	if !c.use(uint32(abiGateUsedGATE_USES_DSCP), free) {
		return nil
	}
	for n := range abiGateDscpGATE_DSCP_NONE {
		if c.Header.Dscp[n], err = c.row(c.where(func(m *rules.Match) bool { return holds(&m.DSCP, uint16(n)) })); err != nil {
			return err
		}
	}
	c.Header.Dscp[abiGateDscpGATE_DSCP_NONE], err = c.row(free)
	return err
}

func (c *compiler) ifaces() error {
	c.use(uint32(abiGateUsedGATE_USES_IFACE), c.where(func(m *rules.Match) bool { return len(m.Ifaces) == 0 }))
	return nil
}

// isFree reports whether there is no condition.
func isFree(r *rules.Ranges) bool { return len(r.List)+len(r.Sets) == 0 }

// holds reports whether a condition without sets holds for a number.
func holds(r *rules.Ranges, n uint16) bool {
	return isFree(r) || r.Not != slices.ContainsFunc(r.List, func(one rules.Range) bool { return one.First <= n && n <= one.Last })
}
