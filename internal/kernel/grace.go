package kernel

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Grace waits until every BPF program that ran at the time of the call has
// ended. Programs run inside RCU read-side critical sections, and membarrier's
// global command is a synchronize_rcu().
type Grace struct {
	outer *ebpf.Map // only where membarrier is missing
	inner *ebpf.Map
}

// NewGrace prepares the way of waiting that this kernel has.
func NewGrace() (*Grace, error) {
	if Membarrier.Has() {
		return &Grace{}, nil
	}
	return NewMapGrace()
}

// NewMapGrace is the way of kernels without membarrier. It uses that an update
// of a map of maps returns only when no program can still use the map that was
// replaced.
func NewMapGrace() (*Grace, error) {
	spec := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("inner map to wait with: %w", err)
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: spec,
	})
	if err != nil {
		inner.Close()
		return nil, fmt.Errorf("outer map to wait with: %w", err)
	}
	return &Grace{outer: outer, inner: inner}, nil
}

// Wait returns when the grace period is over: after some 10 ms as a rule.
func (g *Grace) Wait() error {
	if g.outer != nil {
		if err := g.outer.Update(uint32(0), g.inner, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("waiting for programs by a map of maps: %w", err)
		}
		return nil
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("waiting for programs by membarrier: %w", errno)
		}
	}
}

// Close frees what NewGrace made.
func (g *Grace) Close() {
	if g.outer != nil {
		g.outer.Close()
		g.inner.Close()
	}
}
