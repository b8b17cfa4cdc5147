// Package pdm is PDM (RFC 8250) in the kernel, as a stage of the datapath: it
// sizes and fills the maps of bpf/pdm and drains them. Input: policies, and the
// interfaces that the datapath attaches. Output: flow deltas with a PDM part,
// totals, and single marked packets where that is asked for. The agent registers
// it through package stage.
package pdm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Config says how packets are marked and read.
type Config struct {
	MaxEntries     uint32        // flows whose state is kept
	Lifetime       time.Duration // a state without packets is forgotten after this
	NewPerSecond   uint32        // states that may begin in one second; 0: 1/16 of the free entries
	MarksPerSecond uint32        // packets of a flow that are marked in one second; 0: all
	Evict          bool          // new states push out old ones where no entry is free, as benchmarks need it
	Packets        bool          // no GSO burst is marked: each packet on the wire has a number of its own
	ClosedDomain   bool          // forwarded packets may be marked, too
	Strip          bool          // received packets lose the option before the stack gets them
	Raw            uint32        // events reported in one second by one processor; 0: none
}

// Default marks with little cost.
func Default() Config {
	return Config{MaxEntries: 65536, Lifetime: time.Minute, MarksPerSecond: 1000}
}

// maxDelayFlows bounds the flows that report delays in one interval: each takes
// some 1.8 kB while it does.
const maxDelayFlows = 16384

// StateBytes is what the state of a marked flow takes of the kernel's memory, with
// the delays of those that have some in an interval.
const StateBytes = 1200

// Sizes of maps; without PDM they are as small as can be.
const (
	pdmCounts    = 4096
	pdmIfaces    = 1 << 16 // interfaces that mark; elements are allocated when needed
	pdmEventRing = 1 << 20
	pdmPaths     = 32768 // destinations and their services
)

// mapNames are the maps that the stage owns.
var mapNames = []string{
	"pdm_states", "pdm_near", "pdm_delays", "pdm_counts", "pdm_cpus", "pdm_events", ".data.vacant",
	"policy_prefixes", "policy_rules", "policy_ifaces", "pdm_words", ".data.policy", ".data.pdm",
}

// sharedMaps are those that it shares with other stages that insert into packets; see bpf/mark.
var sharedMaps = []string{"mark_paths", "mark_stats"}

// Stage registers PDM in the datapath.
func (m *Marker) Stage() *datapath.Stage {
	return &datapath.Stage{
		Name:     "pdm",
		Programs: []*datapath.Program{datapath.Ingress, datapath.Egress},
		Maps:     mapNames,
		Feature:  uint32(abiFeatureFEATURE_PDM),
		Check:    m.cfg.check,
		Set:      m.set,
		Open:     m.open,
		Attach:   onEgress(func(h datapath.Hook) error { return m.attach(h.Target.Iface, h.Target.Name) }),
		Detach:   onEgress(func(h datapath.Hook) error { return m.detach(h.Target.Iface) }),
		Drain:    m.drain,
	}
}

// onEgress passes hooks where packets are marked.
func onEgress(f func(datapath.Hook) error) func(datapath.Hook) error {
	return func(h datapath.Hook) error {
		if h.Type != datapath.TCEgress {
			return nil
		}
		return f(h)
	}
}

// set sets sizes and constants.
func (m *Marker) set(s *datapath.Spec) error {
	slack, err := stateSlack(m.cfg.MaxEntries)
	if err != nil {
		return err
	}
	sizes := map[string]uint32{
		"pdm_states":    m.cfg.far() + slack,
		"pdm_near":      m.cfg.MaxEntries,
		"pdm_words":     wordsOf(m.cfg.MaxEntries),
		"mark_paths":    min(m.cfg.MaxEntries, pdmPaths),
		"pdm_delays":    min(m.cfg.MaxEntries, maxDelayFlows),
		"pdm_counts":    pdmCounts,
		"policy_ifaces": pdmIfaces,
	}
	if m.cfg.Raw > 0 {
		sizes["pdm_events"] = pdmEventRing
	}
	if err := s.SetSizes(sizes); err != nil {
		return err
	}
	return s.SetConstants(map[string]any{
		"cfg_pdm_packets": m.cfg.Packets, "cfg_pdm_closed_domain": m.cfg.ClosedDomain,
		"cfg_pdm_strip": m.cfg.Strip, "cfg_pdm_raw": m.cfg.Raw,
		"cfg_pdm_marks_per_second": m.cfg.MarksPerSecond, "cfg_mark_client_ports": kernel.ClientPorts(),
		"cfg_pdm_new_per_second": m.cfg.NewPerSecond, "cfg_pdm_lifetime": uint64(m.cfg.Lifetime),
		"cfg_pdm_index": entriesOf(m.cfg.MaxEntries),
	})
}

// far is how many states the map has space for. Of as many flows as there are places, one of nine finds its entry of the
// index taken: twice as many, and some, are more than chance needs.
func (p Config) far() uint32 { return min(p.MaxEntries, p.MaxEntries/4+64) }

// stateSlack is how much larger the map is than the number of states in it. An LRU
// map keeps 128 free elements on each CPU, and begins to evict when fewer
// are left for all; and new states are made while a drain counts the old ones.
func stateSlack(entries uint32) (uint32, error) {
	cpus, err := kernel.CPUs("possible")
	return entries/32 + min(entries, 128*(uint32(cpus)+1)), err
}

// maxLifetime keeps times well within what a stamp of 48 bits can tell.
const maxLifetime = 24 * time.Hour

// check says what is impossible.
func (p Config) check() error {
	switch {
	case p.MaxEntries == 0:
		return errors.New("pdm: the state table has no space for a single state")
	case p.Lifetime <= 0 || p.Lifetime > maxLifetime:
		return fmt.Errorf("pdm: lifetime of states is %v: more than 0, at most %v", p.Lifetime, maxLifetime)
	}
	return nil
}

// Marker is PDM of one datapath. Its methods may be called from any goroutine.
type Marker struct {
	cfg Config

	core       *datapath.Core // nil: not loaded yet
	maps       map[string]*ebpf.Map
	policies   []PolicyStatus
	generation uint32
	ifaces     map[flow.Iface]*policyIface // attached
	reader     *reader
}

// New returns a Marker that has loaded nothing yet. It marks nothing before
// SetPolicies.
func New(cfg Config) *Marker {
	return &Marker{cfg: cfg, ifaces: map[flow.Iface]*policyIface{}}
}

// open gets the maps.
func (m *Marker) open(c *datapath.Core) (err error) {
	if m.maps, err = c.Maps(slices.Concat(sharedMaps, mapNames)...); err != nil {
		return err
	}
	m.reader = newReader(m.cfg, m.maps)
	m.core = c
	return setVacant(m.maps, m.cfg, 0, 0)
}

// drain emits what marked packets reported, and forgets old states.
func (m *Marker) drain(e datapath.Epoch, emit func(*flow.Delta)) error {
	return m.reader.drain(e.Number, e.At, emit)
}

// errNotLoaded is what callers get before the datapath is loaded.
var errNotLoaded = errors.New("pdm: the datapath is not loaded")

func (m *Marker) do(f func() error) error {
	if m.core == nil {
		return errNotLoaded
	}
	return m.core.Do(f)
}

// SetPolicies replaces all policies at once: every packet is tested against the old
// ones or by the new ones. Their times begin now.
func (m *Marker) SetPolicies(policies []policy.Policy) error {
	return m.do(func() error { return m.setPolicies(policies) })
}

// Renew restarts the time that all policies were given.
func (m *Marker) Renew() error {
	return m.do(func() error {
		var policies []policy.Policy
		for _, s := range m.policies {
			policies = append(policies, s.Policy)
		}
		return m.setPolicies(policies)
	})
}

// Policies lists the policies with their ends.
func (m *Marker) Policies() (list []PolicyStatus, err error) {
	err = m.do(func() error {
		list = slices.Clone(m.policies)
		return nil
	})
	return list, err
}

// Stats are running totals since Load, and what the last drain found.
type Stats struct {
	MaxStates uint64
	States    uint64 // at the last drain
	Bytes     uint64 // of one state in the kernel, key and value

	Marked   uint64 // skbs that left with a mark: a GSO burst is one
	Read     uint64 // skbs whose option was read
	Stripped uint64 // of these, sent on without it

	Created uint64 // states
	Expired uint64 // states deleted for their age, or restarted after it
	Evicted uint64 // states that were pushed out: their flow's numbers restart
	Refused uint64 // packets of new flows that found the second's budget used up
	// Alerts counts drains that found states evicted or refused: more flows than
	// pdm.state allows for, perhaps a flood.
	Alerts uint64

	Fallbacks uint64 // flows whose marked packets did not arrive, and that go unmarked
	Blocked   uint64 // destinations, or services there, where no marked packet arrived
	Narrowed  uint64 // paths that turned out to take less than expected

	DelaysLost uint64 // delays that did not fit
	EventsLost uint64 // raw events beyond their rate, or that did not fit
	CountsFull uint64 // skbs that did not fit into the counts by reason

	Drain time.Duration // the last one
}

// Stats reads the counters of marking.
func (m *Marker) Stats() (s Stats, err error) {
	err = m.do(func() error {
		totals, err := m.reader.totals()
		if err != nil {
			return err
		}
		guarded, err := m.reader.guarded()
		s = m.reader.stats
		s.Marked, s.Read, s.Stripped = totals.Marked, totals.Read, totals.Stripped
		s.Created, s.Refused = totals.Created, totals.Refused
		s.Expired += totals.Renewed
		s.Fallbacks, s.Blocked, s.Narrowed = guarded.Fallbacks, guarded.Blocked, guarded.Narrowed
		s.DelaysLost, s.EventsLost, s.CountsFull = totals.DelaysLost, totals.EventsLost, totals.CountsFull
		s.MaxStates = uint64(m.cfg.MaxEntries)
		s.Bytes = uint64(unsafe.Sizeof(abiMarkKey{}) + unsafe.Sizeof(abiPdmState{}))
		return err
	})
	return s, err
}

// Passed returns running totals of packets that PDM passed over, by reason:
// packets that a policy names and that left without a mark, and packets that
// came with one that was not read.
func (m *Marker) Passed() (out []flow.Uncounted, err error) {
	err = m.do(func() error {
		names, err := reasonNames()
		if err != nil {
			return err
		}
		out, err = datapath.CountsBy(m.maps["pdm_counts"], names, func(uint8) bool { return true })
		return err
	})
	return out, err
}

// reasonNames are the names of enum mark_reason in bpf/mark/abi.h and of enum pdm_reason, which
// continues it, in bpf/pdm/abi.h; lower case and without the prefix.
var reasonNames = sync.OnceValues(func() (map[uint8]string, error) {
	names, err := datapath.EnumNames(loadAbi, "mark_reason", "MARK_")
	if err != nil {
		return nil, err
	}
	more, err := datapath.EnumNames(loadAbi, "pdm_reason", "PDM_")
	maps.Copy(names, more)
	return names, err
})

// Reasons are the names that Passed may give, for those who list them.
func Reasons() ([]string, error) {
	names, err := reasonNames()
	if err != nil {
		return nil, err
	}
	delete(names, uint8(abiPdmReasonPDM_REASON_MAX))
	return slices.Sorted(maps.Values(names)), nil
}
