package interp

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// memory is an address space of segments with gaps between them: an access beyond a segment is an error.
type memory struct {
	segments []segment // by base
	next     uint64
}

type segment struct {
	base uint64
	data []byte
	what string
	// fill is called before n bytes at an offset are used; nil: they are there.
	fill func(offset, n uint64) error
}

// Where memories begin, and the kernel's own does.
const (
	mapSpace, scratchSpace = 1 << 44, 1 << 45
	kernelSpace            = 1 << 63

	gap = 1 << 12
)

// add gives data an address.
func (m *memory) add(what string, data []byte) uint64 { return m.addFilled(what, data, nil) }

// addFilled is add of data that fill reads when it is used.
func (m *memory) addFilled(what string, data []byte, fill func(offset, n uint64) error) uint64 {
	base := m.next
	m.segments = append(m.segments, segment{base, data, what, fill})
	m.next = (base + uint64(len(data)) + 2*gap - 1) / gap * gap
	return base
}

// at is the memory of n bytes at an address.
func (m *memory) at(address, n uint64) ([]byte, error) {
	i := sort.Search(len(m.segments), func(i int) bool { return m.segments[i].base > address }) - 1
	if i < 0 {
		return nil, fmt.Errorf("no memory at %#x", address)
	}
	s := &m.segments[i]
	offset := address - s.base
	if offset+n > uint64(len(s.data)) {
		return nil, fmt.Errorf("%d bytes at %d of %s, which has %d", n, offset, s.what, len(s.data))
	}
	if s.fill != nil {
		if err := s.fill(offset, n); err != nil {
			return nil, fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return s.data[offset : offset+n : offset+n], nil
}

func (m *memory) load(address, size uint64) (uint64, error) {
	b, err := m.at(address, size)
	if err != nil {
		return 0, err
	}
	switch size {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.NativeEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.NativeEndian.Uint32(b)), nil
	default:
		return binary.NativeEndian.Uint64(b), nil
	}
}

func (m *memory) store(address, size, value uint64) error {
	b, err := m.at(address, size)
	if err != nil {
		return err
	}
	switch size {
	case 1:
		b[0] = byte(value)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(value))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(value))
	default:
		binary.NativeEndian.PutUint64(b, value)
	}
	return nil
}
