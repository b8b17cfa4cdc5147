package ioam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

const (
	// flowLifetime is how long a flow without packets is remembered.
	flowLifetime = 2 * time.Minute
	// maxLinked is how many flows are remembered.
	maxLinked = 16384
)

// Flow is a flow whose packets have traces.
type Flow struct {
	Iface    flow.Iface
	Proto    uint8
	Src, Dst netip.AddrPort
	Path     PathID // of its latest packets
	Packets  uint64 // on that path
	Last     time.Time
	// Count packets took Sum from the first node to the last.
	Count uint64
	Sum   int64
}

// Mean is the time from the first node to the last; 0: not known.
func (f *Flow) Mean() time.Duration {
	if f.Count == 0 {
		return 0
	}
	return time.Duration(f.Sum / int64(f.Count))
}

// Change is flows between two hosts that moved from one path to another.
type Change struct {
	Time        time.Time
	Namespace   uint16
	Source      netip.Addr
	Destination netip.Addr
	From, To    PathID
	Flows       int // 0: other flows than before
}

// pair is what a path carries: all flows from one host to another.
type pair struct {
	source, destination netip.Addr
	namespace           uint16
}

// pairPath is the path with the most packets of a pair.
type pairPath struct {
	path PathID
	at   time.Time
}

// flowKeyOf is a flow without the place that it was counted in.
func flowKeyOf(k *abiIoamFlowKey) abiIoamFlowKey {
	out := *k
	out.Epoch, out.Cpu = 0, 0
	return out
}

// linked is what all CPUs counted of a flow in an interval.
type linked struct {
	abiIoamFlow             // on the path that had the most packets
	all         abiIoamFlow // on every path
}

func (l *linked) add(v *abiIoamFlow) {
	if l.Path == v.Path {
		addFlow(&l.abiIoamFlow, v)
	} else if v.Packets > l.Packets {
		l.abiIoamFlow = *v
	}
	addFlow(&l.all, v)
}

// addFlow adds what another CPU counted.
func addFlow(to, v *abiIoamFlow) {
	if v.Count > 0 && (to.Count == 0 || v.Min < to.Min) {
		to.Min = v.Min
	}
	if v.Count > 0 && (to.Count == 0 || v.Max > to.Max) {
		to.Max = v.Max
	}
	to.Packets += v.Packets
	to.Count += v.Count
	to.Sum += v.Sum
	to.Numbers.Received += v.Numbers.Received
	to.Numbers.Lost += v.Numbers.Lost
	to.Numbers.Reordered += v.Numbers.Reordered
	to.Numbers.Duplicates += v.Numbers.Duplicates
}

// delta is what an interval reported of a flow on a path; nil: none is known.
func (l *linked) delta(k *abiIoamFlowKey, path *Path, changes uint64, now time.Time) *flow.Delta {
	v := &l.all
	report := flow.IOAM{
		Packets: v.Packets, Changes: changes,
		Received: v.Numbers.Received, Lost: v.Numbers.Lost, Reordered: v.Numbers.Reordered, Duplicates: v.Numbers.Duplicates,
	}
	if path != nil {
		report.IOAMPath = path.brief()
	}
	if path != nil && path.Relative() || disagree(&Times{Count: v.Count, Min: v.Min}, maxWhole) {
		report.Relative = true
	} else {
		report.Delay = flow.Delays{Count: v.Count, Sum: uint64(v.Sum), Min: uint64(v.Min), Max: uint64(v.Max)}
	}
	at := now.UnixNano()
	return &flow.Delta{
		Key:    datapath.FlowKey(k.Saddr, k.Daddr, k.Sport, k.Dport, k.Iface, k.Meta, k.Proto),
		Counts: flow.Counts{IOAM: &report, First: at, Last: at},
	}
}

// drainFlows reads which flows took which path, and notices those that moved. It returns what
// options reported of flows.
func (p *paths) drainFlows(e datapath.Epoch) ([]*flow.Delta, error) {
	now := time.Unix(0, e.At.Wall).UTC()
	var key abiIoamFlowKey
	var value abiIoamFlow
	var ended []abiIoamFlowKey
	var errs []error
	interval := map[abiIoamFlowKey]*linked{}
	all := p.maps["ioam_flows"].Iterate()
	for all.Next(&key, &value) {
		if uint32(key.Epoch) != e.Number {
			continue
		}
		ended = append(ended, key)
		k := flowKeyOf(&key)
		if interval[k] == nil {
			interval[k] = &linked{}
		}
		interval[k].add(&value)
	}
	errs = append(errs, all.Err())
	for _, k := range ended {
		errs = append(errs, p.maps["ioam_flows"].Delete(k))
	}
	deltas := p.link(now, interval)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("reading flows on IOAM paths: %w", err)
	}
	return deltas, nil
}

// link adds the flows of an interval.
func (p *paths) link(now time.Time, interval map[abiIoamFlowKey]*linked) (deltas []*flow.Delta) {
	type move struct {
		pair
		from, to PathID
	}
	moved := map[move]int{}
	carried := map[pair]map[PathID]uint64{}
	for k, v := range interval {
		path := p.known[v.Path]
		if path == nil || path.Unreported {
			deltas = append(deltas, v.delta(&k, nil, 0, now))
			continue
		}
		at := pair{netip.AddrFrom16(k.Saddr).Unmap(), netip.AddrFrom16(k.Daddr).Unmap(), path.Namespace}
		if carried[at] == nil {
			carried[at] = map[PathID]uint64{}
		}
		carried[at][path.ID] += v.Packets
		f := p.flows[k]
		if f == nil {
			if len(p.flows) >= maxLinked {
				deltas = append(deltas, v.delta(&k, path, 0, now))
				continue
			}
			f = &Flow{
				Iface: flow.Iface(k.Iface), Proto: k.Proto, Path: path.ID,
				Src: netip.AddrPortFrom(at.source, datapath.HostPort(k.Sport)), Dst: netip.AddrPortFrom(at.destination, datapath.HostPort(k.Dport)),
			}
			p.flows[k] = f
		}
		changes := uint64(0)
		if f.Path != path.ID {
			changes = 1
			moved[move{at, f.Path, path.ID}]++
			f.Path, f.Packets, f.Count, f.Sum = path.ID, 0, 0, 0
		}
		f.Packets += v.Packets
		f.Count += v.Count
		f.Sum += v.Sum
		f.Last = now
		deltas = append(deltas, v.delta(&k, path, changes, now))
	}
	for at, sums := range carried {
		most := slices.MaxFunc(slices.Collect(maps.Keys(sums)), func(a, b PathID) int {
			return cmp.Or(cmp.Compare(sums[a], sums[b]), cmp.Compare(b, a))
		})
		was, known := p.pairs[at]
		if known && sums[was.path] > 0 {
			most = was.path // it carries packets still
		} else if known && moved[move{at, was.path, most}] == 0 {
			moved[move{at, was.path, most}] = 0
		}
		if known || len(p.pairs) < maxLinked {
			p.pairs[at] = pairPath{most, now}
		}
	}
	for m, flows := range moved {
		p.changes++
		if p.onChange != nil {
			p.onChange(&Change{Time: now, Namespace: m.namespace, Source: m.source, Destination: m.destination, From: m.from, To: m.to, Flows: flows})
		}
	}
	maps.DeleteFunc(p.flows, func(_ abiIoamFlowKey, f *Flow) bool { return now.Sub(f.Last) > flowLifetime })
	maps.DeleteFunc(p.pairs, func(_ pair, at pairPath) bool { return now.Sub(at.at) > pathLifetime })
	return deltas
}

// listFlows are the flows on paths, those with the most packets first.
func (p *paths) listFlows() []Flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Flow, 0, len(p.flows))
	for _, f := range p.flows {
		out = append(out, *f)
	}
	order.By(out, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), cmp.Compare(a.Proto, b.Proto))
	})
	return out
}

// StreamPaths reports new paths, and flows that moved from one to another, until ctx ends.
// There is one such stream at a time.
func (r *Registrar) StreamPaths(ctx context.Context, path func(*Report), change func(*Change)) error {
	p := r.paths
	p.mu.Lock()
	p.onPath, p.onChange = path, change
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.onPath, p.onChange = nil, nil
	p.mu.Unlock()
	return nil
}

// StreamTraces reports traces one by one until ctx ends, as many as each CPU may report in a
// second. There is one such stream at a time.
func (r *Registrar) StreamTraces(ctx context.Context, perSecond uint32, trace func(*Report)) error {
	set := func(perSecond uint32, trace func(*Report)) error {
		r.paths.mu.Lock()
		r.paths.onTrace = trace
		r.paths.mu.Unlock()
		return r.do(func() error {
			control := r.control
			control.Raw = perSecond
			return r.publish(&control)
		})
	}
	if err := set(perSecond, trace); err != nil {
		return err
	}
	<-ctx.Done()
	_ = set(0, nil) // fails where the datapath is closed
	return nil
}
