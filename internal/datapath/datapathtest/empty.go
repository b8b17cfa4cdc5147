package datapathtest

import (
	"errors"
	"reflect"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Empty deletes what a map holds, or makes it zero.
func Empty(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.Array:
		return zero(m)
	case ebpf.PerCPUArray:
		possible, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		zeros := make([][]byte, possible)
		for i := range zeros {
			zeros[i] = make([]byte, m.ValueSize())
		}
		for i := range m.MaxEntries() {
			if err := m.Put(i, zeros); err != nil {
				return err
			}
		}
		return nil
	case ebpf.RingBuf:
		return nil
	}
	// From the key that was deleted, the kernel begins with the first again, past all that is empty.
	var keys [][]byte
	for key, err := m.NextKeyBytes(nil); key != nil || err != nil; key, err = m.NextKeyBytes(key) {
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	for _, key := range keys {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// zeroes is written piece by piece: fresh memory as large as a map costs more than writing it.
var zeroes [1 << 16]byte

// zero zeroes an array.
func zero(m *ebpf.Map) error {
	if m.Flags()&unix.BPF_F_MMAPABLE != 0 {
		memory, err := m.Memory()
		if err != nil {
			return err
		}
		for at, size := 0, int(memory.Size()); at < size; at += len(zeroes) {
			if _, err := memory.WriteAt(zeroes[:min(len(zeroes), size-at)], int64(at)); err != nil {
				return err
			}
		}
		return nil
	}
	n := int(m.MaxEntries())
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	zeros := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())), n, n)
	_, err := m.BatchUpdate(keys, zeros.Interface(), nil)
	return err
}
