package ioam

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

const (
	// maxHops is the most hops of a path.
	maxHops = int(abiIoamPathSizeIOAM_HOPS)
	// cellsPerPath is how many of a path's times have a place, on average over all CPUs.
	cellsPerPath = 24
	// pathLifetime is how long a path without packets is kept.
	pathLifetime = time.Hour
	// maxPathFlows is how many flows are linked to paths in two scan intervals, by all CPUs.
	maxPathFlows = 65536
	// reportRing is the size of the ring of new paths and raw traces.
	reportRing = 1 << 18
)

// pathMaps are the maps of paths.
var pathMaps = []string{"ioam_paths", "ioam_cells", "ioam_cells_used", "ioam_known", "ioam_reports", "ioam_flows", "ioam_edges_by_sender"}

// PathStats are running totals since the start.
type PathStats struct {
	Paths       int    // that are kept
	MaxPaths    uint32 // that are kept at most
	Changes     uint64 // of the path of some flows
	Traces      uint64 // that were added to a path
	ReportsLost uint64 // reports of new paths, which came again later
	RawLost     uint64 // raw traces beyond the rate, or that did not fit the ring
	DelaysLost  uint64 // traces whose times were not kept: too many paths at a time
	FlowsLost   uint64 // traces whose flow was not kept
	Edges       uint64 // edge-to-edge options that were read
	EdgesLost   uint64 // those that were not counted: too many senders, or CPUs that read of one
}

// paths keeps the paths of traces that end at this node.
type paths struct {
	max     uint32
	maps    map[string]*ebpf.Map
	cpus    *ebpf.Map // ioam_cpus
	reports *datapath.Ringbuf

	mu     sync.Mutex
	known  map[uint64]*Path // by number in the kernel
	turned time.Time        // when the recent minute began

	flows    map[abiIoamFlowKey]*Flow
	pairs    map[pair]pairPath
	changes  uint64
	onPath   func(*Report) // of a new path; called with the lock held, as all; nil: nobody listens
	onTrace  func(*Report) // of a raw trace
	onChange func(*Change)

	edgesSeen   map[abiIoamEdgeKey]edgeSeen
	edgesLooked time.Time
}

// Report is the trace of one packet.
type Report struct {
	New         bool // the first of its path; else on request
	Time        time.Time
	Path        PathID
	Iface       flow.Iface
	Source      netip.Addr
	Destination netip.Addr
	Trace       *wire.Trace
	Hops        []wire.Hop // from the encapsulating node on
	Reached     int        // as in Path
}

func newPaths(most uint32) *paths {
	return &paths{max: most, known: map[uint64]*Path{}, flows: map[abiIoamFlowKey]*Flow{}, pairs: map[pair]pairPath{}}
}

// sizes are those of the maps, where an object has them.
func (p *paths) sizes(cpus uint32) map[string]uint32 {
	return map[string]uint32{
		"ioam_paths": 2 * p.max * cpus, "ioam_cells": 2 * p.cells(), "ioam_known": p.max, "ioam_reports": reportRing,
		"ioam_flows": maxPathFlows, "ioam_edges_by_sender": maxEdges,
	}
}

// cells are those of one epoch.
func (p *paths) cells() uint32 { return p.max * cellsPerPath }

// open gets the maps.
func (p *paths) open(c *datapath.Core) (err error) {
	if p.maps, err = c.Maps(pathMaps...); err != nil {
		return err
	}
	p.reports, err = datapath.OpenRingbuf(p.maps["ioam_reports"], 1)
	return err
}

// follow reads reports as they come.
func (p *paths) follow(ctx context.Context) error {
	for {
		more, err := p.reports.Wait(ctx)
		if err != nil || !more {
			return err
		}
		if err := p.reports.Read(p.report); err != nil {
			return fmt.Errorf("ring of IOAM traces: %w", err)
		}
	}
}

// report takes one trace.
func (p *paths) report(raw []byte) error {
	if len(raw) < int(unsafe.Sizeof(abiIoamReport{})) {
		return fmt.Errorf("element of %d bytes", len(raw))
	}
	e := (*abiIoamReport)(unsafe.Pointer(&raw[0]))
	body, _ := wire.DecodeOption(slices.Clone(e.Option[:min(int(e.Len), len(e.Option))]))
	t, ok := body.(*wire.Trace)
	if !ok {
		return nil // unreachable: the programs have read it
	}
	hops, _ := t.Hops()
	at, err := datapath.Now()
	if err != nil {
		return err
	}
	r := &Report{
		New: abiIoamReportKind(e.Kind) == abiIoamReportKindIOAM_REPORT_PATH, Time: time.Unix(0, int64(e.Time)+at.Wall-at.Mono).UTC(),
		Iface: flow.Iface(e.Iface), Source: netip.AddrFrom16(e.Source), Destination: netip.AddrFrom16(e.Destination), Trace: t, Hops: hops,
	}
	if e.Returned != 0 {
		r.Reached = reached(hops)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	path := p.path(e.Id, len(hops))
	if path.Unreported {
		path.identify(t, hops)
		path.Reached = r.Reached
		path.Iface, path.Source, path.Destination = r.Iface, r.Source, r.Destination
		if path.First.IsZero() {
			path.First, path.Last = r.Time, r.Time
		}
	}
	r.Path = path.ID
	listener := p.onTrace
	if r.New {
		listener = p.onPath
	}
	if listener != nil {
		listener(r)
	}
	return nil
}

// path is the one with a number in the kernel.
func (p *paths) path(id uint64, hops int) *Path {
	path := p.known[id]
	if path == nil {
		path = &Path{Unreported: true, Hops: make([]Hop, hops)}
		p.known[id] = path
	}
	return path
}

// drain adds what an epoch counted, and emits what it says of flows.
func (p *paths) drain(e datapath.Epoch, emit func(*flow.Delta)) error {
	deltas, err := p.drainEpoch(e)
	for _, d := range deltas {
		emit(d)
	}
	return err
}

// drainEpoch adds what an epoch counted, and returns what it says of flows.
func (p *paths) drainEpoch(e datapath.Epoch) ([]*flow.Delta, error) {
	if err := p.reports.Read(p.report); err != nil {
		return nil, fmt.Errorf("ring of IOAM traces: %w", err)
	}
	var key abiIoamPathKey
	var value abiIoamPath
	var ended []abiIoamPathKey
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(time.Unix(0, e.At.Wall))
	all := p.maps["ioam_paths"].Iterate()
	var errs []error
	for all.Next(&key, &value) {
		if key.Epoch == e.Number {
			ended = append(ended, key)
			errs = append(errs, p.add(e, key.Id, &value))
		}
	}
	errs = append(errs, all.Err())
	for _, key := range ended {
		errs = append(errs, p.maps["ioam_paths"].Delete(key))
	}
	errs = append(errs, p.maps["ioam_cells_used"].Put(e.Number, uint32(0)), p.settle(ended))
	deltas, err := p.drainFlows(e)
	errs = append(errs, err, p.forget(time.Unix(0, e.At.Wall)), p.forgetEdges(time.Unix(0, e.At.Wall)))
	if err := errors.Join(errs...); err != nil {
		return deltas, fmt.Errorf("reading IOAM paths: %w", err)
	}
	return deltas, nil
}

// turn begins another recent minute.
func (p *paths) turn(now time.Time) {
	if now.Sub(p.turned) < recentFor {
		return
	}
	p.turned = now
	for _, path := range p.known {
		path.each(func(_ int, m *Measured) { m.turn(now) })
	}
}

// add adds what one CPU counted, and clears its cells.
func (p *paths) add(e datapath.Epoch, id uint64, v *abiIoamPath) error {
	path := p.path(id, int(v.Hops))
	wall := func(mono uint64) time.Time { return time.Unix(0, int64(mono)+e.At.Wall-e.At.Mono).UTC() }
	if path.First.IsZero() || wall(v.First).Before(path.First) {
		path.First = wall(v.First)
	}
	if last := wall(v.Last); last.After(path.Last) {
		path.Last = last
	}
	path.Packets += v.Packets
	path.Bytes += v.Bytes
	if v.Cell == uint32(abiIoamCellsIOAM_NO_CELLS) || int(v.Hops) != len(path.Hops) {
		return nil
	}
	first := v.Cell + e.Number*p.cells()
	var errs []error
	path.each(func(i int, m *Measured) {
		var cell abiIoamCell
		index := first + uint32(i)
		if err := p.maps["ioam_cells"].Lookup(index, &cell); err != nil || cell.Count == 0 {
			errs = append(errs, err)
			return
		}
		base := int64(0)
		if i%2 == 1 {
			base = v.Base[i/2]
		}
		t := timesOf(&cell, base)
		m.add(&t)
		errs = append(errs, p.maps["ioam_cells"].Put(index, abiIoamCell{}))
	})
	path.judge()
	return errors.Join(errs...)
}

// settle chooses the bases of the next epoch: times between clocks that do not agree are
// counted from shortly below the least, where buckets are narrow.
func (p *paths) settle(ended []abiIoamPathKey) error {
	done := map[uint64]bool{}
	var errs []error
	for _, key := range ended {
		if done[key.Id] {
			continue
		}
		done[key.Id] = true
		var known abiIoamKnown
		if err := p.maps["ioam_known"].Lookup(key.Id, &known); err != nil {
			continue // it was forgotten
		}
		changed := false
		p.known[key.Id].each(func(i int, m *Measured) {
			if i%2 == 1 {
				if base := baseFor(&m.newer, known.Base[i/2]); base != known.Base[i/2] {
					known.Base[i/2], changed = base, true
				}
			}
		})
		if changed {
			errs = append(errs, p.maps["ioam_known"].Update(key.Id, known, ebpf.UpdateExist))
		}
	}
	return errors.Join(errs...)
}

const (
	plausible = int64(abiIoamDifferenceIOAM_PLAUSIBLE)
	slack     = int64(time.Millisecond) // that a base may be below the least time
)

// baseFor is the base for times such as these.
func baseFor(t *Times, was int64) int64 {
	switch {
	case t.Count == 0:
		return was
	case t.Min >= 0 && t.Min < plausible:
		return 0
	case t.Min >= was && t.Min-was <= 2*slack && was != 0:
		return was
	}
	return t.Min - slack/8
}

// forget drops paths that have had no packets for long or, where many are known, for the
// longest time.
func (p *paths) forget(now time.Time) error {
	ids := make([]uint64, 0, len(p.known))
	for id := range p.known {
		ids = append(ids, id)
	}
	order.By(ids, func(a, b uint64) int { return cmp.Compare(p.known[a].Last.UnixNano(), p.known[b].Last.UnixNano()) })
	excess := len(ids) - int(p.max)*7/8
	var errs []error
	for i, id := range ids {
		if age := now.Sub(p.known[id].Last); age <= pathLifetime && (i >= excess || age < recentFor) {
			break
		}
		delete(p.known, id)
		if err := p.maps["ioam_known"].Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// list are the paths that were reported, those with the most packets first.
func (p *paths) list() []Path {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Path, 0, len(p.known))
	for _, path := range p.known {
		if !path.Unreported {
			out = append(out, path.clone())
		}
	}
	order.By(out, func(a, b Path) int { return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.ID, b.ID)) })
	return out
}

// stats reads the totals.
func (p *paths) stats() (s PathStats, err error) {
	all, err := totals(p.cpus)
	if err != nil {
		return s, err
	}
	sum := all.Paths
	s.Traces, s.ReportsLost, s.RawLost = sum.Traces, sum.ReportsLost, sum.RawLost
	s.DelaysLost, s.FlowsLost = sum.DelaysLost, sum.FlowsLost
	s.Edges, s.EdgesLost = sum.Edges, sum.EdgesLost
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Paths, s.MaxPaths, s.Changes = len(p.known), p.max, p.changes
	return s, nil
}

// pathKeys are the keys of the hash of paths, from random bytes.
func pathKeys(random []byte) (keys [abiIoamPathSizeIOAM_PATH_KEYS]uint32) {
	for i := range keys {
		keys[i] = binary.LittleEndian.Uint32(random[4*i:])
	}
	return keys
}
