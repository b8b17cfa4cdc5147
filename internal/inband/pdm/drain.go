package pdm

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
)

// reader turns what the programs keep of marked flows into deltas, and
// forgets states that are too old.
type reader struct {
	cfg      Config
	maps     map[string]*ebpf.Map
	reported map[uint64]reportedState // by id of the state
	deleted  uint64                   // states deleted for their age
	stats    Stats                    // what totals does not tell
	refused  uint64                   // at the last drain
	rounds   uint64                   // drains so far

	places places
	states pdmBatch[abiMarkKey, abiPdmState]
	delays pdmBatch[abiPdmDelaysKey, abiPdmFlowDelays]
}

// reportedState is a state's running counts as they were reported last.
type reportedState struct {
	counts stateCounts
	round  uint64 // the drain that saw it last
}

// stateCounts are the running counts of a state, which wrap.
type stateCounts struct {
	lost                                                         uint64
	sent, received, reordered, duplicates, discarded, suspicious uint32
}

func newReader(cfg Config, maps map[string]*ebpf.Map) *reader {
	return &reader{
		cfg: cfg, maps: maps, reported: map[uint64]reportedState{},
		places: places{near: maps["pdm_near"], words: maps["pdm_words"]},
	}
}

// totals sums the counters of all processors.
func (r *reader) totals() (sum abiPdmTotals, err error) {
	perCPU, err := r.perCPU()
	return datapath.Sum(perCPU), err
}

func (r *reader) perCPU() (totals []abiPdmTotals, err error) {
	var perCPU []abiPdmCpu
	if err := r.maps["pdm_cpus"].Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("reading the counters of marking: %w", err)
	}
	for i := range perCPU {
		totals = append(totals, perCPU[i].Totals)
	}
	return totals, nil
}

// guarded sums what the guards of marked flows found out, on all processors.
func (r *reader) guarded() (abiMarkTotals, error) {
	sum, err := datapath.Total[abiMarkTotals](r.maps["mark_stats"], uint32(abiMarkKindMARK_PDM))
	if err != nil {
		return sum, fmt.Errorf("reading what became of marked packets: %w", err)
	}
	return sum, nil
}

// drain emits what marked packets reported since the last drain: counts of every
// state, and the delays of the epoch that no program uses any more. Then it
// deletes states older than their lifetime.
func (r *reader) drain(epoch uint32, at datapath.Moment, emit func(*flow.Delta)) error {
	start := time.Now()
	defer func() { r.stats.Drain = time.Since(start) }()
	defer r.places.close()
	reported, err := r.drainDelays(epoch)
	if err != nil {
		return err
	}
	if err := r.drainStates(at, reported, emit); err != nil {
		return err
	}
	for _, d := range reported { // of states that were pushed out
		r.emitIngress(at, &d.key, d.place, &d.pdm, emit)
	}
	return nil
}

// reportedDelays are the delays of one state.
type reportedDelays struct {
	key   abiMarkKey
	place ingressPlace
	pdm   flow.PDM
}

// ingressPlace is where a flow's packets were read.
type ingressPlace struct {
	iface uint32
	meta  uint32
	dport uint16 // as it lies in memory
}

// drainDelays reads and deletes the delays of one epoch.
func (r *reader) drainDelays(epoch uint32) (map[uint64]*reportedDelays, error) {
	reported := map[uint64]*reportedDelays{}
	var used []abiPdmDelaysKey
	m := r.maps["pdm_delays"]
	err := r.delays.each(m, func(k *abiPdmDelaysKey, v *abiPdmFlowDelays) {
		if k.Epoch != epoch {
			return
		}
		used = append(used, *k)
		reported[k.Id] = &reportedDelays{
			key: v.Key, place: ingressPlace{iface: v.InIface, meta: v.InMeta, dport: v.InDport},
			pdm: flow.PDM{Server: delaysOf(&v.Server), Network: delaysOf(&v.Network)},
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading delays: %w", err)
	}
	for i := range used {
		if err := m.Delete(&used[i]); err != nil {
			return nil, fmt.Errorf("deleting delays that were read: %w", err)
		}
	}
	return reported, nil
}

func delaysOf(h *abiPdmHistogram) flow.Delays {
	d := flow.Delays{Count: h.Count, Sum: h.Sum, Min: h.Min, Max: h.Max}
	for i, n := range h.Bucket {
		if n > 0 {
			d.Buckets = append(d.Buckets, flow.DelayBucket{Index: uint8(i), Count: uint64(n)})
		}
	}
	return d
}

// drainStates emits what states counted, with their delays, which leave reported.
func (r *reader) drainStates(at datapath.Moment, reported map[uint64]*reportedDelays, emit func(*flow.Delta)) error {
	// A state whose number is in here but that is not in the map was pushed out,
	// unless it was deleted for its age.
	before, err := r.perCPU()
	if err != nil {
		return err
	}
	r.stats.States = 0
	var stale []foundState
	var live, far uint64
	r.rounds++
	round := r.rounds
	err = r.each(func(f foundState, s *abiPdmState) {
		r.stats.States++
		if !f.near {
			far++
		}
		if cpu := s.Id >> abiStateIdSTATE_CPU_SHIFT; cpu < uint64(len(before)) &&
			s.Id&(1<<abiStateIdSTATE_CPU_SHIFT-1) <= before[cpu].Created {
			live++
		}
		var delays *flow.PDM
		if d := reported[s.Id]; d != nil {
			delays = &d.pdm
			delete(reported, s.Id)
		}
		r.report(at, &f.key, s, delays, round, emit)
		if r.isStale(at, s) {
			stale = append(stale, f)
		}
	})
	if err != nil {
		return fmt.Errorf("reading the state of marked flows: %w", err)
	}
	for id, t := range r.reported {
		if t.round != round {
			delete(r.reported, id)
		}
	}
	// Read last, so that a state which went meanwhile is not missed twice.
	totals, err := r.totals()
	if err != nil {
		return err
	}
	var created uint64
	for _, v := range before {
		created += v.Created
	}
	if gone := r.deleted + totals.Renewed + live; created > gone+r.stats.Evicted {
		r.stats.Evicted = created - gone
		r.stats.Alerts++
	} else if totals.Refused > r.refused {
		r.stats.Alerts++
	}
	r.refused = totals.Refused
	deleted, err := r.deleteStale(at, stale, round, emit)
	if err != nil {
		return err
	}
	return setVacant(r.maps, r.cfg, r.stats.States, far-deleted)
}

// setVacant says how many states may be made until the next drain; far: states that have no place.
func setVacant(maps map[string]*ebpf.Map, cfg Config, states, far uint64) error {
	vacant := [2]int64{int64(cfg.MaxEntries) - int64(states), int64(cfg.far()) - int64(far)}
	if cfg.Evict {
		vacant = [2]int64{math.MaxInt64, math.MaxInt64}
	}
	if err := maps[".data.vacant"].Put(uint32(0), vacant); err != nil {
		return fmt.Errorf("setting how many flows may begin to be marked: %w", err)
	}
	return nil
}

// report emits what a state counted since it was reported last.
func (r *reader) report(at datapath.Moment, k *abiMarkKey, s *abiPdmState, delays *flow.PDM, round uint64, emit func(*flow.Delta)) {
	now := stateCounts{
		sent: s.Psn - s.PsnFirst, received: s.Received, lost: s.Lost, reordered: s.Reordered,
		duplicates: s.Duplicates, discarded: s.Discarded, suspicious: s.Suspicious,
	}
	was := r.reported[s.Id].counts
	// A packet that comes late takes its loss back. Where that was reported, it is
	// made up for by the next loss: no count is negative.
	now.lost = max(now.lost, was.lost)
	r.reported[s.Id] = reportedState{counts: now, round: round}
	if sent := now.sent - was.sent; sent > 0 {
		r.emitEgress(at, k, s, sent, emit)
	}
	if now.received == was.received && now.suspicious == was.suspicious && delays == nil {
		return
	}
	p := flow.PDM{
		Received:   uint64(now.received - was.received),
		Lost:       int64(now.lost - was.lost),
		Reordered:  uint64(now.reordered - was.reordered),
		Duplicates: uint64(now.duplicates - was.duplicates),
		Discarded:  uint64(now.discarded - was.discarded),
		Suspicious: uint64(now.suspicious - was.suspicious),
	}
	if delays != nil {
		p.Server, p.Network = delays.Server, delays.Network
	}
	r.emitIngress(at, k, ingressPlace{iface: s.InIface, meta: s.InMeta, dport: s.InDport}, &p, emit)
}

// remoteOf is the address of the other end. In a key, a link-local one has the interface in bytes that are 0 on the wire.
func remoteOf(k *abiMarkKey) [16]byte {
	remote := k.Remote
	if netip.AddrFrom16(remote).IsLinkLocalUnicast() {
		clear(remote[4:8])
	}
	return remote
}

// emitEgress reports packets sent, under the key that the flow table has them by.
func (r *reader) emitEgress(at datapath.Moment, k *abiMarkKey, s *abiPdmState, sent uint32, emit func(*flow.Delta)) {
	vlan, inner := datapath.VLANs(s.OutMeta)
	d := flow.Delta{Counts: flow.Counts{PDM: &flow.PDM{Sent: uint64(sent)}, First: at.Wall, Last: at.Wall}}
	d.Key = flow.Key{
		Src: k.Local, Dst: remoteOf(k), SrcPort: datapath.HostPort(k.Lport), DstPort: datapath.HostPort(s.OutDport),
		Iface: flow.Iface(s.OutIface), VLAN: vlan, InnerVLAN: inner,
		Proto: k.Proto, Direction: flow.Egress, IPv6: true,
	}
	emit(&d)
}

func (r *reader) emitIngress(at datapath.Moment, k *abiMarkKey, place ingressPlace, p *flow.PDM, emit func(*flow.Delta)) {
	vlan, inner := datapath.VLANs(place.meta)
	d := flow.Delta{Counts: flow.Counts{PDM: p, First: at.Wall, Last: at.Wall}}
	d.Key = flow.Key{
		Src: remoteOf(k), Dst: k.Local, SrcPort: datapath.HostPort(k.Rport), DstPort: datapath.HostPort(place.dport),
		Iface: flow.Iface(place.iface), VLAN: vlan, InnerVLAN: inner,
		Proto: k.Proto, Direction: flow.Ingress, IPv6: true,
	}
	if k.Proto == unix.IPPROTO_ICMPV6 {
		d.SrcPort = datapath.HostPort(k.Lport) // the identifier, in both directions
	}
	emit(&d)
}

// stampBits are the bits of a time in a stamp.
const stampBits = 64 - abiStampPSN_BITS

// clockAhead is CLOCK_AHEAD in bpf/pdm/state.h.
const clockAhead = 1 << abiStampCLOCK_AHEAD_SHIFT

// What package policy and bpf/pdm/abi.h both say: a difference does not compile.
var (
	same [1]struct{}

	_ = same[policy.Max-abiPolicyPOLICIES_MAX]
	_ = same[policy.MaxPorts-abiPolicyPOLICY_PORTS_MAX]
)

// age is the time since a stamp was taken.
func age(at datapath.Moment, stamp uint64) time.Duration {
	const unused = 64 - stampBits
	// Shifted up, differences wrap as the stamp does.
	ns := (uint64(at.Mono)<<unused - stamp>>unused<<unused) >> unused
	if ns >= 1<<stampBits-clockAhead {
		return 0
	}
	return time.Duration(ns)
}

// isStale reports that no packet passed in either direction for longer than the
// lifetime. A flow that fell back keeps its state until that ends.
func (r *reader) isStale(at datapath.Moment, s *abiPdmState) bool {
	checked := s.Guard.Checked
	if s.Tx == 0 && checked == 0 {
		return false // about to send its first packet
	}
	recent := func(stamp uint64) bool { return stamp != 0 && age(at, stamp) <= r.cfg.Lifetime }
	return uint64(at.Mono) >= s.Guard.Fallback && int64(uint64(at.Mono)-checked) > int64(r.cfg.Lifetime) &&
		!recent(s.Tx) && !recent(s.Rx)
}
