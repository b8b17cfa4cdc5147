package disk

import (
	"context"
	"errors"
	"net/netip"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/query"
)

// Sightings implements query.Sighter. Of what cannot be read, an answer has no records either.
func (e *engine) Sightings(ctx context.Context, p *query.Plan, before uint64, each func([]query.Sighting) bool) error {
	r := e.newRun(ctx, p, before)
	r.sighted = func(list []query.Sighting) bool {
		r.full = r.full || !each(list)
		return !r.full
	}
	r.all()
	if r.spent != "" {
		return errors.New(r.spent)
	}
	return nil
}

// flows are the columns that make the flows of a block.
type flows struct{ src, dst, sport, dport, proto *vector }

func (b *block) flows() (f flows, err error) {
	for _, c := range []struct {
		name string
		to   **vector
	}{{"src", &f.src}, {"dst", &f.dst}, {"sport", &f.sport}, {"dport", &f.dport}, {"proto", &f.proto}} {
		if *c.to, err = b.whole(columnNamed(c.name)); err != nil {
			return f, err
		}
	}
	return f, nil
}

// of is the flow of a row; it is not known of unattributed ones, and zero.
func (f *flows) of(row int32) (flow query.Digest, known bool) {
	src, dst := f.src.addressAt(row), f.dst.addressAt(row)
	if src == nil || dst == nil {
		return flow, false
	}
	return query.FlowDigest(src, dst, uint16(f.sport.orZero(row)), uint16(f.dport.orZero(row)), uint8(f.proto.orZero(row))), true
}

// textAt is that of a row; empty: it is missing.
func (v *vector) textAt(row int32) (b []byte) {
	if v != nil {
		_, b, _ = v.cell(int(row))
	}
	return b
}

// sight takes what the rows of a block say about where packets come from.
func (r *run) sight(b *block) error {
	at, err := r.at(b, false)
	if err != nil || len(at) == 0 {
		return err
	}
	of, err := b.flows()
	if err != nil {
		return err
	}
	m := &again{block: b}
	if err := m.read(); err != nil {
		return err
	}
	vectors := make([]*vector, 5)
	for i, name := range []string{"packets", "ttl_max", "first", "direction", "netns"} {
		if vectors[i], err = b.whole(columnNamed(name)); err != nil {
			return err
		}
	}
	egress := flow.Egress.String()
	var netns []byte
	list, name := make([]query.Sighting, 0, query.SightingsAtOnce), ""
	for _, row := range at {
		flow, known := of.of(row)
		if !known {
			continue
		}
		if text := vectors[4].textAt(row); string(text) != string(netns) {
			netns, name = text, string(text)
		}
		list = append(list, query.Sighting{
			Flow: flow, Copies: of.copies(row), Netns: name, Egress: string(vectors[3].textAt(row)) == egress,
			TTL: uint8(vectors[1].orZero(row)), Packets: vectors[0].orZero(row) - m.times(int(row)), First: int64(vectors[2].orZero(row)),
		})
		if len(list) == cap(list) {
			if !r.sighted(list) {
				return nil
			}
			list = list[:0]
		}
	}
	r.sighted(list)
	return nil
}

// copies reports whether packets of a row may come to several hosts.
func (f *flows) copies(row int32) bool {
	a := f.dst.addressAt(row)
	return mayCopy(a) && hops.Copies(netip.AddrFrom16([16]byte(a)).Unmap())
}

// mayCopy sorts out most addresses: others are of multicast, of IPv6 or, mapped to it, of IPv4.
func mayCopy(a []byte) bool { return a[0] == 0xff || a[0] == 0 && a[12] >= 224 }
