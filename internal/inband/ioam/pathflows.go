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
	out.Epoch, out.Cpu, out.Meta = 0, 0, 0
	return out
}

// drainFlows reads which flows took which path, and notices those that moved.
func (p *paths) drainFlows(e datapath.Epoch) error {
	now := time.Unix(0, e.At.Wall).UTC()
	var key abiIoamFlowKey
	var value abiIoamFlow
	var ended []abiIoamFlowKey
	var errs []error
	interval := map[abiIoamFlowKey]*abiIoamFlow{} // by all CPUs
	all := p.maps["ioam_flows"].Iterate()
	for all.Next(&key, &value) {
		if uint32(key.Epoch) != e.Number {
			continue
		}
		ended = append(ended, key)
		k := flowKeyOf(&key)
		sum := interval[k]
		if sum == nil || sum.Path != value.Path && value.Packets > sum.Packets {
			own := value
			interval[k] = &own
		} else if sum.Path == value.Path {
			sum.Packets += value.Packets
			sum.Count += value.Count
			sum.Sum += value.Sum
		}
	}
	errs = append(errs, all.Err())
	for _, k := range ended {
		errs = append(errs, p.maps["ioam_flows"].Delete(k))
	}
	p.link(now, interval)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reading flows on IOAM paths: %w", err)
	}
	return nil
}

// link adds the flows of an interval.
func (p *paths) link(now time.Time, interval map[abiIoamFlowKey]*abiIoamFlow) {
	type move struct {
		pair
		from, to PathID
	}
	moved := map[move]int{}
	carried := map[pair]map[PathID]uint64{}
	for k, v := range interval {
		path := p.known[v.Path]
		if path == nil || path.Unreported {
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
				continue
			}
			f = &Flow{
				Iface: flow.Iface(k.Iface), Proto: k.Proto, Path: path.ID,
				Src: netip.AddrPortFrom(at.source, datapath.HostPort(k.Sport)), Dst: netip.AddrPortFrom(at.destination, datapath.HostPort(k.Dport)),
			}
			p.flows[k] = f
		}
		if f.Path != path.ID {
			moved[move{at, f.Path, path.ID}]++
			f.Path, f.Packets, f.Count, f.Sum = path.ID, 0, 0, 0
		}
		f.Packets += v.Packets
		f.Count += v.Count
		f.Sum += v.Sum
		f.Last = now
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
}

// linked are the flows on paths, those with the most packets first.
func (p *paths) linked() []Flow {
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
