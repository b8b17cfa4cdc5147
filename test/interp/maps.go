package interp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// vmMap is a map of the kernel. What is read was the kernel's; what is written stays here until WriteBack.
type vmMap struct {
	kernel *ebpf.Map
	info   *ebpf.MapInfo
	base   uint64 // what stands for struct bpf_map
	values uint64 // of an array: the first value
	stride uint64
	read   map[uint32][]byte // of an array: what the kernel had, of elements that programs used

	elements map[string]uint64 // of all others: struct htab_elem by key; 0: deleted
	value    uint64            // offset of the value in an element
}

// useMaps reads those that code names.
func (vm *VM) useMaps(code []instruction) error {
	for i, ins := range code {
		if ins.op != opDoubleWord || (ins.src != pseudoMap && ins.src != pseudoMapValue) || vm.maps[uint32(code[i].imm)] != nil {
			continue
		}
		if _, err := vm.openMap(ebpf.MapID(ins.imm)); err != nil {
			return err
		}
	}
	return nil
}

func (vm *VM) openMap(id ebpf.MapID) (*vmMap, error) {
	if m := vm.maps[uint32(id)]; m != nil {
		return m, nil
	}
	k, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, fmt.Errorf("map %d: %w", id, err)
	}
	info, err := k.Info()
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	m := &vmMap{
		kernel: k, info: info, stride: (uint64(info.ValueSize) + 7) &^ 7,
		read: map[uint32][]byte{}, elements: map[string]uint64{},
	}
	switch info.Type {
	case ebpf.Array, ebpf.PerCPUArray, ebpf.ArrayOfMaps:
		err = vm.readArray(m)
	default:
		m.base = vm.memory.add("map "+info.Name, make([]byte, 8))
		var key uint64
		if key, err = vm.kernel.offset("htab_elem", "key"); err == nil {
			m.value = key + (uint64(info.KeySize)+7)&^7
		}
	}
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", info.Name, errors.Join(err, k.Close()))
	}
	vm.maps[uint32(id)] = m
	vm.byBase[m.base] = m
	return m, nil
}

// readArray lays an array out as struct bpf_array: one per CPU, or of maps, has pointers.
func (vm *VM) readArray(m *vmMap) error {
	header, err := vm.kernel.offset("bpf_array", "value")
	if err != nil {
		return err
	}
	n := uint64(m.info.MaxEntries)
	width := m.stride
	if m.info.Type != ebpf.Array {
		width = 8
	}
	memory := make([]byte, header+n*width)
	var fill func(offset, n uint64) error
	if m.info.Type == ebpf.Array { // tables of thousands of elements, of which packets need few
		fill = func(offset, n uint64) error {
			if offset < header {
				return fmt.Errorf("byte %d of struct bpf_array is not known", offset)
			}
			return m.fill(memory[header:], offset-header, n)
		}
	}
	m.base = vm.memory.addFilled("map "+m.info.Name, memory, fill)
	m.values = m.base + header
	if fill != nil {
		return nil
	}
	for i := range n {
		value, err := m.fetch(binary.NativeEndian.AppendUint32(nil, uint32(i)))
		if err != nil {
			return err
		}
		pointer, err := vm.pointer(m, value)
		if err != nil {
			return err
		}
		binary.NativeEndian.PutUint64(memory[header+i*width:], pointer)
	}
	return nil
}

// Poke sets the first word of a per-CPU array; one that no program used yet is left alone.
func (vm *VM) Poke(name string, word uint32) error {
	for _, m := range vm.maps {
		if m.info.Name != name || m.info.Type != ebpf.PerCPUArray {
			continue
		}
		at, err := vm.memory.load(m.values, 8)
		if err != nil {
			return err
		}
		return vm.memory.store(at, 4, uint64(word))
	}
	return nil
}

// pointer is what an array has for a value that is not in it.
func (vm *VM) pointer(m *vmMap, value []byte) (uint64, error) {
	switch {
	case m.info.Type == ebpf.PerCPUArray:
		return vm.memory.add("an element of map "+m.info.Name, value), nil
	case value == nil:
		return 0, nil
	}
	inner, err := vm.openMap(ebpf.MapID(binary.NativeEndian.Uint32(value))) // which user space reads there
	if err != nil {
		return 0, err
	}
	return inner.base, nil
}

// fill reads those elements of an array that are at an offset of its values, unless they were read before.
func (m *vmMap) fill(values []byte, offset, n uint64) error {
	for i := uint32(offset / m.stride); uint64(i)*m.stride < offset+n; i++ {
		if m.read[i] != nil {
			continue
		}
		value, err := m.fetch(binary.NativeEndian.AppendUint32(nil, i))
		if err != nil {
			return err
		}
		m.read[i] = value
		copy(values[uint64(i)*m.stride:], value)
	}
	return nil
}

// fetch reads an element of the kernel's map; of a per-CPU one, that of the first CPU. Nil: there is none.
func (m *vmMap) fetch(key []byte) ([]byte, error) {
	switch m.info.Type {
	case ebpf.PerCPUArray, ebpf.PerCPUHash, ebpf.LRUCPUHash:
		var values [][]byte
		err := m.kernel.Lookup(key, &values)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return append(values[0], make([]byte, m.stride-uint64(len(values[0])))...), nil
	}
	value, err := m.kernel.LookupBytes(key)
	return value, err
}

// element is the address of an element of a map that is no array: struct htab_elem; 0: there is none.
func (vm *VM) element(m *vmMap, key []byte) (uint64, error) {
	if at, known := m.elements[string(key)]; known {
		return at, nil
	}
	value, err := m.fetch(key)
	if err != nil {
		return 0, fmt.Errorf("map %s: %w", m.info.Name, err)
	}
	if value == nil {
		m.elements[string(key)] = 0
		return 0, nil
	}
	return vm.putElement(m, key, value), nil
}

func (vm *VM) putElement(m *vmMap, key, value []byte) uint64 {
	what := "an element of map " + m.info.Name
	e := make([]byte, m.value, m.value+m.stride)
	copy(e[m.value-(uint64(len(key))+7)&^7:], key)
	switch m.info.Type {
	case ebpf.PerCPUHash, ebpf.LRUCPUHash:
		e = binary.NativeEndian.AppendUint64(e, vm.memory.add(what, append([]byte(nil), value...)))
	default:
		e = append(e, value...)
	}
	at := vm.memory.add(what, e)
	m.elements[string(key)] = at
	return at
}

// WriteBack gives the kernel's arrays the content that programs wrote here.
func (vm *VM) WriteBack() error {
	for _, m := range vm.maps {
		if m.info.Type != ebpf.Array || m.info.Frozen() {
			continue
		}
		for i, before := range m.read {
			value, err := vm.memory.at(m.values+uint64(i)*m.stride, uint64(len(before)))
			if err != nil {
				return err
			}
			if bytes.Equal(value, before) {
				continue
			}
			if err := m.kernel.Put(i, value); err != nil {
				return fmt.Errorf("map %s: %w", m.info.Name, err)
			}
		}
	}
	return nil
}
