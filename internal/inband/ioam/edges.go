package ioam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

const (
	// maxEdges is how many senders of edge-to-edge options are followed.
	maxEdges = 1024
	// edgeLifetime is how long one that is silent is kept.
	edgeLifetime = time.Hour
)

// Edge is what the edge-to-edge options of one sender say since it was first seen.
type Edge struct {
	Namespace   uint16
	Source      netip.Addr
	Destination netip.Addr
	Iface       flow.Iface // where they were read last
	Sequence    bool       // they have numbers; else there is only a delay

	Received   uint64 // packets whose number was believed, a GSO burst as one
	Lost       int64
	Reordered  uint64
	Duplicates uint64
	Discarded  uint64 // numbers far from all others
	Restarts   uint64 // of the sender

	// Delay is from the sender's time to the receipt here: a difference between two
	// clocks.
	Delay Times
	// Relative says that these clocks do not agree.
	Relative bool
}

// edgeSeen is when a sender was last known to send.
type edgeSeen struct {
	received, delays uint64
	at               time.Time
}

// each calls f for every sender.
func (p *paths) eachEdge(f func(*abiIoamEdgeKey, *abiIoamEdge)) error {
	var key abiIoamEdgeKey
	var value abiIoamEdge
	all := p.maps["ioam_edges_by_sender"].Iterate()
	for all.Next(&key, &value) {
		f(&key, &value)
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("reading senders of IOAM edge-to-edge options: %w", err)
	}
	return nil
}

// edges are all senders, those with the most packets first.
func (p *paths) edges() (out []Edge, err error) {
	err = p.eachEdge(func(k *abiIoamEdgeKey, v *abiIoamEdge) {
		e := Edge{
			Namespace: k.Space, Source: netip.AddrFrom16(k.Source), Destination: netip.AddrFrom16(k.Destination),
			Iface: flow.Iface(v.Iface), Sequence: v.Sequence != 0,
			Received: v.Received, Lost: v.Lost, Reordered: v.Reordered, Duplicates: v.Duplicates, Discarded: v.Discarded, Restarts: v.Restarts,
			Delay: timesOf(&v.Delay, v.Base),
		}
		e.Relative = disagree(&e.Delay, maxWhole)
		out = append(out, e)
	})
	order.By(out, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(b.Received, a.Received), cmp.Compare(b.Delay.Count, a.Delay.Count), a.Source.Compare(b.Source),
			a.Destination.Compare(b.Destination), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out, err
}

// forgetEdges deletes senders that have been silent for long.
func (p *paths) forgetEdges(now time.Time) error {
	if now.Sub(p.edgesLooked) < recentFor {
		return nil
	}
	p.edgesLooked = now
	var silent []abiIoamEdgeKey
	next := map[abiIoamEdgeKey]edgeSeen{}
	err := p.eachEdge(func(k *abiIoamEdgeKey, v *abiIoamEdge) {
		seen := p.edgesSeen[*k]
		if seen.at.IsZero() || seen.received != v.Received || seen.delays != v.Delay.Count {
			seen = edgeSeen{received: v.Received, delays: v.Delay.Count, at: now}
		}
		if now.Sub(seen.at) > edgeLifetime {
			silent = append(silent, *k)
			return
		}
		next[*k] = seen
	})
	p.edgesSeen = next
	for _, k := range silent {
		if gone := p.maps["ioam_edges_by_sender"].Delete(k); gone != nil && !errors.Is(gone, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
