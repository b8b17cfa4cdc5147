package store

import (
	"context"
	"net/netip"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/query"
)

// Sightings calls each for the records that match, as long as it returns true, and reports whether it always did.
func (e *Ended) Sightings(f filter.Filter, each func([]query.Sighting) bool) bool {
	var r flow.Record
	var memory reports
	repeated := e.Repeated()
	list := make([]query.Sighting, 0, query.SightingsAtOnce)
	for i := range e.Len() {
		w := e.iv.rows.at(i)
		if w.unattributed {
			continue
		}
		if !f.Empty() {
			if w.record(e.iv, &r, &memory); !f.Match(&r) {
				continue
			}
		}
		list = append(list, query.Sighting{
			Flow: query.FlowDigest(w.src[:], w.dst[:], w.sport, w.dport, w.proto), Copies: hops.Copies(netip.AddrFrom16(w.dst).Unmap()),
			Netns: e.iv.links[w.link].netns, Egress: w.direction == flow.Egress, TTL: w.ttlMax,
			Packets: w.Packets - min(w.Packets, repeated[i]), First: w.first,
		})
		if len(list) == cap(list) {
			if !each(list) {
				return false
			}
			list = list[:0]
		}
	}
	return each(list)
}

// Sightings implements query.Sighter.
func (v *view) Sightings(ctx context.Context, p *query.Plan, _ uint64, each func([]query.Sighting) bool) error {
	var before *interval
	for _, iv := range v.intervals {
		if e := (Ended{iv: iv, before: before}); p.Meant(iv.sequence, iv.from, iv.to) && !e.Sightings(p.Records(), each) {
			return nil
		}
		before = iv
	}
	return ctx.Err()
}
