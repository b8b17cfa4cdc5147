package datapath

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Mapped is an array that programs and the agent share.
type Mapped[T any] struct {
	memory []byte
	Values []T
}

// Open maps the array, whose elements are T.
func (m *Mapped[T]) Open(array *ebpf.Map) error { return m.OpenPart(array, 0, int(array.MaxEntries())) }

// OpenPart maps n elements of the array from one on that begins a page. What is mapped counts as the agent's memory, touched or not.
func (m *Mapped[T]) OpenPart(array *ebpf.Map, first, n int) error {
	return m.open(array, first, n, unix.PROT_READ|unix.PROT_WRITE)
}

// OpenToRead maps an array that may only be read.
func (m *Mapped[T]) OpenToRead(array *ebpf.Map) error {
	return m.open(array, 0, int(array.MaxEntries()), unix.PROT_READ)
}

func (m *Mapped[T]) open(array *ebpf.Map, first, n, access int) (err error) {
	var one T
	size := int(unsafe.Sizeof(one))
	if m.memory, err = unix.Mmap(array.FD(), int64(first)*int64(size), n*size, access, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map %s: %w", array, err)
	}
	m.Values = unsafe.Slice((*T)(unsafe.Pointer(&m.memory[0])), n)
	return nil
}

// Close takes the memory away.
func (m *Mapped[T]) Close() {
	if m.memory != nil {
		_ = unix.Munmap(m.memory)
		m.memory, m.Values = nil, nil
	}
}
