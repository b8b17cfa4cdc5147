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
	// Captured packets.
	Packet   = abiGatePacket
	Captured = abiGateCaptured
)

const (
	// Feature is the bit of enum feature.
	Feature = abiFeatureFEATURE_GATE

	MaxRules  = int(abiGateSizeGATE_RULES) // of a rule set
	Slots     = uint32(abiGateSizeGATE_SLOTS)
	FirstSlot = uint16(abiGateSlotGATE_SLOT_FIRST)
	Copies    = uint32(abiGateSizeGATE_COPIES)
	maxRows   = uint32(abiGateSizeGATE_ROWS_MAX)

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
type Limits struct{ Lines, Rows, Pages uint32 }

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
	Lines  []Line // of the tries

	options Options
	rows    map[ruleBits]uint16
	pages   map[Page]uint16
}

// ruleBits is a set of rules.
type ruleBits [abiGateSizeGATE_WORDS]uint64

func (b *ruleBits) set(n int)      { b[n/64] |= 1 << (n % 64) }
func (b *ruleBits) clear(n int)    { b[n/64] &^= 1 << (n % 64) }
func (b *ruleBits) has(n int) bool { return b[n/64]>>(n%64)&1 != 0 }

func (b *ruleBits) put(n int, is bool) {
	if is {
		b.set(n)
	} else {
		b.clear(n)
	}
}

// and is what two sets share.
func (b ruleBits) and(other ruleBits) ruleBits {
	for i := range b {
		b[i] &= other[i]
	}
	return b
}

func (b *ruleBits) summary() (s uint64) {
	for i, word := range b {
		if word != 0 {
			s |= 1 << i
		}
	}
	return s
}

// Compile makes the tables of the rules that are in effect.
func Compile(rs *rules.Ruleset, o Options) (*Table, error) {
	t := &Table{options: o, rows: map[ruleBits]uint16{}, pages: map[Page]uint16{}}
	t.Header.Row, t.Header.Page, t.Header.Rule = o.Copy*o.Limits.Rows, o.Copy*o.Limits.Pages, o.Copy*uint32(MaxRules)
	for _, r := range rs.Rules {
		if !t.ended(r.Until) {
			t.Rules = append(t.Rules, r)
		}
	}
	if n := len(t.Rules); n > MaxRules {
		return nil, fmt.Errorf("the rule set has %d rules, and %d fit: merge rules that differ in one value, or use sets", n, MaxRules)
	}
	c := &compiler{Table: t, sets: map[string]*rules.Set{}}
	for i, r := range t.Rules {
		c.all.set(i)
		if !r.DryRun {
			t.Header.Has |= uint32(has[r.Action])
		}
	}
	for _, s := range rs.Sets {
		c.sets[s.Name] = s
	}
	t.Header.Summary, t.Header.All = c.all.summary(), c.all
	for _, one := range []func() error{c.heads, c.subs, c.codePoints, c.ifaces, c.numbers, c.addresses} {
		if err := one(); err != nil {
			return nil, err
		}
	}
	return t, c.allowed(rs)
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

// row is the number of the row with these rules.
func (t *Table) row(b ruleBits) (uint16, error) {
	if n, ok := t.rows[b]; ok {
		return n, nil
	}
	n := uint32(len(t.Rows))
	if n >= min(t.options.Limits.Rows, maxRows) {
		return 0, fmt.Errorf("the rules combine their conditions in more than %d ways: use fewer rules or fewer different prefixes, or raise gate.rows", n)
	}
	t.rows[b] = uint16(n)
	t.Rows = append(t.Rows, Row{Summary: b.summary(), Word: b})
	return uint16(n), nil
}

// where is the rules for which something holds.
func (c *compiler) where(holds func(*rules.Match) bool) (b ruleBits) {
	for i, r := range c.Rules {
		b.put(i, holds(&r.Match))
	}
	return b
}

// use notes that rules have conditions about a dimension, if some have.
func (c *compiler) use(dimension uint32, free ruleBits) bool {
	if free == c.all {
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
	if !c.use(uint32(abiGateUsedGATE_USES_HEAD), used) {
		return nil
	}
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
