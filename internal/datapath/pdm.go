package datapath

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/kernel"
)

// PDM configures marking and reading of PDM (RFC 8250).
type PDM struct {
	MaxEntries   uint32        // flows whose state is kept
	Lifetime     time.Duration // a state without packets is forgotten after this
	NewPerSecond uint32        // states that may begin in one second; 0: 1/16 of the free entries
	Evict        bool          // new states push out old ones where no entry is free, as benchmarks need it
	Packets      bool          // no GSO burst is marked: each packet on the wire has a number of its own
	ClosedDomain bool          // forwarded packets may be marked, too
	Strip        bool          // received packets lose the option before the stack gets them
	Raw          uint32        // events told in one second by one processor; 0: none
}

// DefaultPDM is what marks with little cost.
func DefaultPDM() PDM {
	return PDM{MaxEntries: 65536, Lifetime: time.Minute}
}

// maxDelayFlows bounds the flows that tell delays in one interval: each takes
// some 1.8 kB while it does.
const maxDelayFlows = 16384

// Sizes of maps that are there for PDM alone; without it they are as small as
// can be.
const (
	pdmCounts    = 4096
	pdmIfaces    = 1 << 16 // interfaces that mark; elements are allocated when needed
	pdmUnnamed   = 1 << 16
	pdmEventRing = 1 << 20
	pdmPaths     = 16384 // destinations
)

// setPDM sets sizes and constants for marking, or for none.
func (d *Datapath) setPDM(spec *ebpf.CollectionSpec) error {
	var p PDM
	sizes := map[string]uint32{
		"pdm_states": 1, "pdm_paths": 1, "pdm_delays": 1, "pdm_counts": 1, "policy_ifaces": 1, "policy_unnamed": 1,
	}
	if d.cfg.PDM != nil {
		p = *d.cfg.PDM
		slack, err := stateSlack(p.MaxEntries)
		if err != nil {
			return err
		}
		sizes["pdm_states"] = p.MaxEntries + slack
		sizes["pdm_paths"] = min(p.MaxEntries, pdmPaths)
		sizes["pdm_delays"] = min(p.MaxEntries, maxDelayFlows)
		sizes["pdm_counts"] = pdmCounts
		sizes["policy_ifaces"] = pdmIfaces
		sizes["policy_unnamed"] = pdmUnnamed
		if p.Raw > 0 {
			sizes["pdm_events"] = pdmEventRing
		}
	}
	for name, size := range sizes {
		spec.Maps[name].MaxEntries = size
	}
	for name, value := range map[string]any{
		"cfg_pdm_packets": p.Packets, "cfg_pdm_closed_domain": p.ClosedDomain,
		"cfg_pdm_strip": p.Strip, "cfg_pdm_raw": p.Raw,
		"cfg_pdm_new_per_second": p.NewPerSecond, "cfg_pdm_lifetime": uint64(p.Lifetime),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	return nil
}

// stateSlack is how much larger the map is than the number of states in it. An LRU
// map keeps 128 free elements on each processor, and begins to evict when fewer
// are left for all; and new states are made while a drain counts the old ones.
func stateSlack(entries uint32) (uint32, error) {
	cpus, err := kernel.CPUs("possible")
	return entries/32 + min(entries, 128*(uint32(cpus)+1)), err
}

// maxLifetime keeps times well within what a stamp of 48 bits can tell.
const maxLifetime = 24 * time.Hour

// check says what is impossible.
func (p PDM) check() error {
	switch {
	case p.MaxEntries == 0:
		return errors.New("pdm: no room for a single state")
	case p.Lifetime <= 0 || p.Lifetime > maxLifetime:
		return fmt.Errorf("pdm: lifetime of states is %v: more than 0, at most %v", p.Lifetime, maxLifetime)
	}
	return nil
}

// marker is the user-space side of marking.
type marker struct {
	cfg        PDM
	maps       map[string]*ebpf.Map
	policies   []PolicyStatus
	generation uint32
	ifaces     map[flow.Iface]*policyIface // attached
	reader     *pdmReader
}

func newMarker(cfg PDM, maps map[string]*ebpf.Map) *marker {
	return &marker{cfg: cfg, maps: maps, ifaces: map[flow.Iface]*policyIface{}, reader: newPDMReader(cfg, maps)}
}

// drain emits what marked packets told, and forgets old states.
func (m *marker) drain(epoch uint32, emit func(*flow.Delta)) error {
	now, err := thisMoment()
	if err != nil {
		return err
	}
	return m.reader.drain(epoch, now, emit)
}

// errNoPDM is what callers get who ask a probe that does not mark.
var errNoPDM = errors.New("this probe does not mark: it was made without PDM")

func (d *Datapath) withPDM(f func(p *marker) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.table == nil:
		return errClosed
	case d.pdm == nil:
		return errNoPDM
	}
	return f(d.pdm)
}

// SetPolicies replaces all policies at once: every packet is judged by the old
// ones or by the new ones. Their times begin now.
func (d *Datapath) SetPolicies(policies []policy.Policy) error {
	return d.withPDM(func(p *marker) error { return p.setPolicies(policies, d.grace.Wait) })
}

// RenewPolicies lets all policies begin anew, with the time they were given.
func (d *Datapath) RenewPolicies() error {
	return d.withPDM(func(p *marker) error {
		var policies []policy.Policy
		for _, s := range p.policies {
			policies = append(policies, s.Policy)
		}
		return p.setPolicies(policies, d.grace.Wait)
	})
}

// Policies lists the policies with their ends.
func (d *Datapath) Policies() (list []PolicyStatus, err error) {
	err = d.withPDM(func(p *marker) error {
		list = slices.Clone(p.policies)
		return nil
	})
	return list, err
}

// PDMStats are running totals since Load, and what the last drain found.
type PDMStats struct {
	MaxStates uint64
	States    uint64 // at the last drain
	Bytes     uint64 // of one state in the kernel, key and value

	Marked   uint64 // skbs that left with a mark: a GSO burst is one
	Read     uint64 // skbs whose option was read
	Stripped uint64 // of these, sent on without it

	Created uint64 // states
	Expired uint64 // states deleted for their age, or begun anew after it
	Evicted uint64 // states that were pushed out: their flow's numbers begin anew
	Refused uint64 // packets of new flows that found the second's budget used up
	// Alerts counts drains that found states evicted or refused: more flows than
	// pdm.state allows for, perhaps a flood.
	Alerts uint64

	Fallbacks uint64 // flows whose marked packets did not arrive, and that go unmarked
	Blocked   uint64 // destinations where no marked packet arrived
	Narrowed  uint64 // paths that turned out to take less than expected

	DelaysLost uint64 // delays that found no room
	EventsLost uint64 // raw events beyond their rate, or that found no room
	CountsFull uint64 // skbs that found no room in the counts by reason

	Drain time.Duration // the last one
}

// PDMStats reads the counters of marking.
func (d *Datapath) PDMStats() (s PDMStats, err error) {
	err = d.withPDM(func(p *marker) error {
		totals, err := p.reader.totals()
		s = p.reader.stats
		s.Marked, s.Read, s.Stripped = totals.Marked, totals.Read, totals.Stripped
		s.Created, s.Refused = totals.Created, totals.Refused
		s.Expired += totals.Renewed
		s.Fallbacks, s.Blocked, s.Narrowed = totals.Fallbacks, totals.Blocked, totals.Narrowed
		s.DelaysLost, s.EventsLost, s.CountsFull = totals.DelaysLost, totals.EventsLost, totals.CountsFull
		s.MaxStates = uint64(p.cfg.MaxEntries)
		s.Bytes = uint64(unsafe.Sizeof(ingressPdmKey{}) + unsafe.Sizeof(ingressPdmState{}))
		return err
	})
	return s, err
}

// PDMPassed returns running totals of packets that PDM passed over, by reason:
// packets that a policy names and that left without a mark, and packets that
// came with one that was not read.
func (d *Datapath) PDMPassed() (out []flow.Uncounted, err error) {
	err = d.withPDM(func(p *marker) error {
		names, err := pdmReasonNames()
		if err != nil {
			return err
		}
		out, err = countsBy(p.maps["pdm_counts"], names, func(uint8) bool { return true })
		return err
	})
	return out, err
}

// pdmReasonNames are the names of enum pdm_reason in bpf/pdm/abi.h, lower case
// and without the prefix.
var pdmReasonNames = sync.OnceValues(func() (map[uint8]string, error) {
	spec, err := loadIngress()
	if err != nil {
		return nil, fmt.Errorf("reading the built-in programs: %w", err)
	}
	return enumNames(spec, "pdm_reason", "PDM_")
})

// enumNames are the names of an enum by value, from the programs' own type
// information.
func enumNames(spec *ebpf.CollectionSpec, name, prefix string) (map[uint8]string, error) {
	var enum *btf.Enum
	if err := spec.Types.TypeByName(name, &enum); err != nil {
		return nil, fmt.Errorf("names of enum %s: %w", name, err)
	}
	names := map[uint8]string{}
	for _, v := range enum.Values {
		names[uint8(v.Value)] = strings.ToLower(strings.TrimPrefix(v.Name, prefix))
	}
	return names, nil
}

// PDMReasons are the names that PDMPassed may give, for those who list them.
func PDMReasons() ([]string, error) {
	names, err := pdmReasonNames()
	if err != nil {
		return nil, err
	}
	delete(names, uint8(ingressPdmReasonPDM_REASON_MAX))
	return slices.Sorted(maps.Values(names)), nil
}
