package datapath

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
)

// unattributedReader turns the kernel's running totals of packets without a
// flow into deltas.
type unattributedReader struct {
	sums     *ebpf.Map
	reported map[unattributedKey]unattributedSum
	last     time.Time
}

func newUnattributedReader(m *ebpf.Map) *unattributedReader {
	return &unattributedReader{sums: m, reported: map[unattributedKey]unattributedSum{}, last: time.Now()}
}

func (r *unattributedReader) drain(now time.Time, emit func(*flow.Delta)) error {
	var key unattributedKey
	var perCPU []unattributedSum
	iter := r.sums.Iterate()
	for iter.Next(&key, &perCPU) {
		sum := Sum(perCPU)
		reported := r.reported[key]
		if sum == reported { // all of it: a program may be between two of its additions
			continue
		}
		r.reported[key] = sum
		m := meta(key.Meta)
		d := flow.Delta{Unattributed: true}
		d.Key = flow.Key{
			Iface: flow.Iface(key.Iface), Proto: key.Proto,
			Direction: m.direction(), Tunnel: m.tunnel(), IPv6: m.ipv6(),
		}
		d.Counts = flow.Counts{
			Counters: flow.Counters{
				Packets: sum.Packets - reported.Packets, Bytes: sum.Bytes - reported.Bytes, PayloadBytes: sum.Payload - reported.Payload,
			},
			First: r.last.UnixNano(), Last: now.UnixNano(),
		}
		if m.forwarded() {
			d.Forwarded = d.Packets
		}
		OnLink(&d, uint32(key.Meta), sum.Overhead-reported.Overhead, sum.GsoPackets-reported.GsoPackets, sum.GsoBytes-reported.GsoBytes)
		emit(&d)
	}
	if err := iter.Err(); err != nil {
		return fmt.Errorf("reading unattributed packets: %w", err)
	}
	r.last = now
	return nil
}
