package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Kinds of types that matter here (Linux, Documentation/bpf/btf.rst).
const (
	kindInt       = 1
	kindArray     = 3
	kindStruct    = 4
	kindUnion     = 5
	kindEnum      = 6
	kindFunc      = 12
	kindFuncProto = 13
	kindVar       = 14
	kindDatasec   = 15
	kindDeclTag   = 17
	kindEnum64    = 19
	lastKind      = kindEnum64
)

// Bytes that follow the record of a type: for each of its members, or at all.
var (
	extraEach = [lastKind + 1]int{kindStruct: 12, kindUnion: 12, kindEnum: 8, kindFuncProto: 8, kindDatasec: 12, kindEnum64: 12}
	extra     = [lastKind + 1]int{kindInt: 4, kindArray: 12, kindVar: 4, kindDeclTag: 4}
)

const (
	btfMagic     = 0xeb9f
	headerBytes  = 24
	recordBytes  = 12
	memberBytes  = 12
	bitsOfOffset = 1<<24 - 1 // where a struct has bit fields, the rest is a field's size
	maxNesting   = 16        // of anonymous structs
)

var errBTF = errors.New("type information that this version does not understand")

// kernelTypes is the kernel's type information, as far as the offsets of members and the numbers of functions need it. The
// library for BPF makes an index of all names first, which takes seven times as long.
type kernelTypes struct {
	records, names     []byte
	at                 []uint32 // of a type's record, by the type's number
	structs, functions map[string]uint32
}

// withKernelTypes reads the file, has the named structs and functions looked up, and frees it after use.
func withKernelTypes(file string, structs, functions []string, use func(*kernelTypes) error) error {
	raw, done, err := mapOrRead(file)
	if err != nil {
		return err
	}
	defer done()
	t := &kernelTypes{structs: map[string]uint32{}, functions: map[string]uint32{}}
	for _, name := range structs {
		t.structs[name] = 0
	}
	for _, name := range functions {
		t.functions[name] = 0
	}
	if err := t.index(raw); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return use(t)
}

// mapOrRead spares the copy, which some kernels do not.
func mapOrRead(file string) (raw []byte, done func(), err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		if raw, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE); err == nil {
			return raw, func() { _ = unix.Munmap(raw) }, nil
		}
	}
	raw, err = os.ReadFile(file)
	return raw, func() {}, err
}

func word(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// index notes where each type is, and the numbers of those that are looked for. Number 0 is no type.
func (t *kernelTypes) index(raw []byte) error {
	if len(raw) < headerBytes || binary.NativeEndian.Uint16(raw) != btfMagic {
		return errBTF
	}
	section := func(header int) ([]byte, error) {
		from := uint64(word(raw[4:])) + uint64(word(raw[header:]))
		to := from + uint64(word(raw[header+4:]))
		if to > uint64(len(raw)) {
			return nil, fmt.Errorf("a section ends at byte %d of %d: %w", to, len(raw), errBTF)
		}
		return raw[from:to], nil
	}
	var err error
	if t.records, err = section(8); err != nil {
		return err
	}
	if t.names, err = section(16); err != nil {
		return err
	}
	t.at = append(make([]uint32, 0, len(t.records)/32), 0)
	for offset := 0; offset < len(t.records); {
		if offset+recordBytes > len(t.records) {
			return fmt.Errorf("type %d is cut: %w", len(t.at), errBTF)
		}
		record := t.records[offset:]
		info := word(record[4:])
		kind, members := info>>24&31, int(info&0xffff)
		if kind > lastKind {
			return fmt.Errorf("type %d is of kind %d: %w", len(t.at), kind, errBTF)
		}
		switch kind {
		case kindStruct:
			t.note(t.structs, record)
		case kindFunc:
			t.note(t.functions, record)
		}
		t.at = append(t.at, uint32(offset))
		offset += recordBytes + extra[kind] + members*extraEach[kind]
	}
	return nil
}

// note keeps the number of a type if its name is looked for. Of several, the first counts.
func (t *kernelTypes) note(wanted map[string]uint32, record []byte) {
	name := t.name(word(record))
	if number, ok := wanted[string(name)]; ok && number == 0 {
		wanted[string(name)] = uint32(len(t.at))
	}
}

func (t *kernelTypes) name(at uint32) []byte {
	if uint64(at) >= uint64(len(t.names)) {
		return nil
	}
	name, _, _ := bytes.Cut(t.names[at:], []byte{0})
	return name
}

// offsets are those of all members of a struct in bits, members of anonymous structs and unions included.
func (t *kernelTypes) offsets(structure string) map[string]uint32 {
	found := map[string]uint32{}
	if number := t.structs[structure]; number != 0 {
		t.collect(number, 0, maxNesting, found)
	}
	return found
}

func (t *kernelTypes) collect(number, base uint32, nesting int, into map[string]uint32) {
	if nesting == 0 || uint64(number) >= uint64(len(t.at)) {
		return
	}
	record := t.records[t.at[number]:]
	info := word(record[4:])
	if kind := info >> 24 & 31; kind != kindStruct && kind != kindUnion {
		return
	}
	members := record[recordBytes:]
	for range info & 0xffff {
		if len(members) < memberBytes {
			return
		}
		at := word(members[8:])
		if info>>31 != 0 {
			at &= bitsOfOffset
		}
		if name := t.name(word(members)); len(name) > 0 {
			into[string(name)] = base + at
		} else {
			t.collect(word(members[4:]), base+at, nesting-1, into)
		}
		members = members[memberBytes:]
	}
}
