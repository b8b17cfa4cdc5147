package datapath

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

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
		var sum unattributedSum
		for _, v := range perCPU {
			sum.Packets += v.Packets
			sum.Bytes += v.Bytes
			sum.Payload += v.Payload
			sum.Overhead += v.Overhead
			sum.GsoPackets += v.GsoPackets
			sum.GsoBytes += v.GsoBytes
		}
		reported := r.reported[key]
		if sum == reported { // all of it: a program may be between two of its additions
			continue
		}
		r.reported[key] = sum
		m := meta(key.Meta)
		packets := sum.Packets - reported.Packets
		wire := sum.Bytes - reported.Bytes + packets*m.linkLen() + sum.Overhead - reported.Overhead
		d := flow.Delta{Unattributed: true}
		d.Key = flow.Key{
			Iface: flow.Iface(key.Iface), Proto: key.Proto,
			Direction: m.direction(), Tunnel: m.tunnel(), IPv6: m.ipv6(),
		}
		d.Counts = flow.Counts{
			Counters: flow.Counters{
				Packets: packets, Bytes: sum.Bytes - reported.Bytes, PayloadBytes: sum.Payload - reported.Payload, WireBytes: wire,
			},
			Frames:     packets - (sum.GsoPackets - reported.GsoPackets),
			FrameBytes: wire - packets*m.accelLen() - (sum.GsoBytes - reported.GsoBytes),
			First:      r.last.UnixNano(), Last: now.UnixNano(),
		}
		emit(&d)
	}
	if err := iter.Err(); err != nil {
		return fmt.Errorf("reading unattributed packets: %w", err)
	}
	r.last = now
	return nil
}

// Uncounted returns running totals of packets in no flow. Implements flow.Probe.
func (d *Datapath) Uncounted() ([]flow.Uncounted, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reasons(func(reason uint8) bool { return reason < uint8(ingressReasonClassREASON_FIRST_COUNTED) })
}

// Incomplete returns running totals of packets that are in a flow of which
// something could not be learned (ports of a fragment, a handshake's time).
func (d *Datapath) Incomplete() ([]flow.Uncounted, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reasons(func(reason uint8) bool { return reason >= uint8(ingressReasonClassREASON_FIRST_COUNTED) })
}

func (d *Datapath) reasons(want func(uint8) bool) ([]flow.Uncounted, error) {
	if !d.open {
		return nil, nil
	}
	names, err := reasonNames()
	if err != nil {
		return nil, err
	}
	return CountsBy(d.counts, names, want)
}

// CountsBy sums a map of counts by interface, direction and reason over the
// processors.
func CountsBy(m *ebpf.Map, names map[uint8]string, want func(uint8) bool) ([]flow.Uncounted, error) {
	var out []flow.Uncounted
	var key countKey
	var perCPU []countValue
	iter := m.Iterate()
	for iter.Next(&key, &perCPU) {
		if !want(key.Reason) {
			continue
		}
		u := flow.Uncounted{
			Iface: flow.Iface(key.Iface), Direction: flow.Direction(key.Direction), Reason: names[key.Reason],
		}
		for _, v := range perCPU {
			u.Packets += v.Packets
			u.Frames += v.Frames
			u.Bytes += v.Bytes
		}
		out = append(out, u)
	}
	if err := iter.Err(); err != nil {
		return nil, fmt.Errorf("reading counts by reason: %w", err)
	}
	return out, nil
}

// deleteKeys takes elements out of a map of values per CPU.
func deleteKeys[K, V any](m *ebpf.Map, gone func(K) bool) error {
	var found []K
	var key K
	var value []V
	iter := m.Iterate()
	for iter.Next(&key, &value) {
		if gone(key) {
			found = append(found, key)
		}
	}
	errs := []error{iter.Err()}
	for _, key := range found {
		errs = append(errs, m.Delete(key))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forgetting an interface: %w", err)
	}
	return nil
}

// reasonNames are the names of enum reason in bpf/abi.h, lower case and without
// the prefix, from the programs' own type information.
var reasonNames = sync.OnceValues(func() (map[uint8]string, error) {
	return EnumNames(loadIngress, "reason", "REASON_")
})

// EnumNames are the names of an enum by value, lower case and without the prefix,
// from the type information of an object.
func EnumNames(load func() (*ebpf.CollectionSpec, error), name, prefix string) (map[uint8]string, error) {
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the built-in programs: %w", err)
	}
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
