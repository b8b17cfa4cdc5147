package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/packed"
)

// counts are the running totals by interface, direction and reason: a hash map, and
// the cache in front of it (bpf/count.h).
type counts struct {
	hash   *ebpf.Map
	memory []byte
	caches []countCache // by CPU
}

func openCounts(hash, cache *ebpf.Map) (c counts, err error) {
	c.hash = hash
	n := int(cache.MaxEntries())
	if c.memory, err = unix.Mmap(cache.FD(), 0, n*int(unsafe.Sizeof(countCache{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return c, fmt.Errorf("map the counts by reason: %w", err)
	}
	c.caches = unsafe.Slice((*countCache)(unsafe.Pointer(&c.memory[0])), n)
	return c, nil
}

func (c *counts) close() {
	if c.memory != nil {
		_ = unix.Munmap(c.memory)
		c.memory, c.caches = nil, nil
	}
}

// cached are the totals in the cache.
func (c *counts) cached(names map[uint8]string, want func(uint8) bool) (out []flow.Uncounted) {
	for s := range c.slots() {
		k := keyOf(s)
		if k.Used == 0 || !want(k.Reason) {
			continue
		}
		out = append(out, flow.Uncounted{
			Iface: flow.Iface(k.Iface), Direction: flow.Direction(k.Direction), Reason: names[k.Reason],
			Packets: atomic.LoadUint64(&s.Value.Packets), Frames: atomic.LoadUint64(&s.Value.Frames), Bytes: atomic.LoadUint64(&s.Value.Bytes),
		})
	}
	return out
}

// forget drops the totals of an interface. No program counts there any more, so
// nobody else writes its slots; the key is last, since a program may then take one.
func (c *counts) forget(iface flow.Iface) error {
	for s := range c.slots() {
		if k := keyOf(s); k.Used != 0 && k.Iface == uint32(iface) {
			s.Value = countValue{}
			atomic.StoreUint64(&s.Key, 0)
		}
	}
	return deleteKeys[countKey, countValue](c.hash, func(k countKey) bool { return k.Iface == uint32(iface) })
}

func (c *counts) slots() iter.Seq[*countSlot] {
	return func(yield func(*countSlot) bool) {
		for i := range c.caches {
			for j := range c.caches[i].Slot {
				if !yield(&c.caches[i].Slot[j]) {
					return
				}
			}
		}
	}
}

// keyOf is the key of a slot, which a program may take at this moment.
func keyOf(s *countSlot) countKey {
	word := atomic.LoadUint64(&s.Key)
	return *(*countKey)(unsafe.Pointer(&word))
}

// Uncounted returns running totals of packets in no flow. Implements flow.Probe.
func (d *Datapath) Uncounted() ([]flow.Uncounted, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reasons(func(reason uint8) bool { return reason < uint8(tcReasonClassREASON_FIRST_COUNTED) })
}

// Incomplete returns running totals of packets that are in a flow of which
// something could not be learned (ports of a fragment, a handshake's time).
func (d *Datapath) Incomplete() ([]flow.Uncounted, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reasons(func(reason uint8) bool { return reason >= uint8(tcReasonClassREASON_FIRST_COUNTED) })
}

func (d *Datapath) reasons(want func(uint8) bool) ([]flow.Uncounted, error) {
	if !d.open {
		return nil, nil
	}
	names, err := reasonNames()
	if err != nil {
		return nil, err
	}
	inMap, err := CountsBy(d.counts.hash, names, want)
	if err != nil {
		return nil, err
	}
	return joined(append(inMap, d.counts.cached(names, want)...)), nil
}

// joined has the sums of what several places count of the same packets.
func joined(list []flow.Uncounted) (out []flow.Uncounted) {
	type key struct {
		flow.Iface
		flow.Direction
		reason string
	}
	at := make(map[key]int, len(list))
	for _, u := range list {
		k := key{u.Iface, u.Direction, u.Reason}
		i, known := at[k]
		if !known {
			at[k] = len(out)
			out = append(out, u)
			continue
		}
		out[i].Packets += u.Packets
		out[i].Frames += u.Frames
		out[i].Bytes += u.Bytes
	}
	return out
}

// CountsBy sums a map of counts by interface, direction and reason over the
// processors.
func CountsBy(m *ebpf.Map, names map[uint8]string, want func(uint8) bool) ([]flow.Uncounted, error) {
	var out []flow.Uncounted
	var key countKey
	var perCPU []countValue
	all := m.Iterate()
	for all.Next(&key, &perCPU) {
		if !want(key.Reason) {
			continue
		}
		sum := Sum(perCPU)
		out = append(out, flow.Uncounted{
			Iface: flow.Iface(key.Iface), Direction: flow.Direction(key.Direction), Reason: names[key.Reason],
			Packets: sum.Packets, Frames: sum.Frames, Bytes: sum.Bytes,
		})
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("reading counts by reason: %w", err)
	}
	return out, nil
}

// deleteKeys takes elements out of a map of values per CPU.
func deleteKeys[K, V any](m *ebpf.Map, gone func(K) bool) error {
	var found []K
	var key K
	var value []V
	all := m.Iterate()
	for all.Next(&key, &value) {
		if gone(key) {
			found = append(found, key)
		}
	}
	errs := []error{all.Err()}
	for _, key := range found {
		errs = append(errs, m.Delete(key))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forgetting an interface: %w", err)
	}
	return nil
}

// reasonNames are the names of enum reason in bpf/abi.h, lower case and without
// the prefix, from the programs' own type information. That alone is read: to read the programs takes as long as to load one.
var reasonNames = sync.OnceValues(func() (map[uint8]string, error) {
	types, err := btf.LoadSpecFromReader(bytes.NewReader(packed.Object(_TcBytes)))
	if err != nil {
		return nil, fmt.Errorf("reading the types of the built-in programs: %w", err)
	}
	return enumNames(types, "reason", "REASON_")
})

// EnumNames are the names of an enum by value, lower case and without the prefix,
// from the type information of an object.
func EnumNames(load func() (*ebpf.CollectionSpec, error), name, prefix string) (map[uint8]string, error) {
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the built-in programs: %w", err)
	}
	return enumNames(spec.Types, name, prefix)
}

func enumNames(types *btf.Spec, name, prefix string) (map[uint8]string, error) {
	var enum *btf.Enum
	if err := types.TypeByName(name, &enum); err != nil {
		return nil, fmt.Errorf("names of enum %s: %w", name, err)
	}
	names := map[uint8]string{}
	for _, v := range enum.Values {
		names[uint8(v.Value)] = strings.ToLower(strings.TrimPrefix(v.Name, prefix))
	}
	return names, nil
}
