package interp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"
)

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// kernelInfo is what translated instructions take for granted.
type kernelInfo struct {
	types *btf.Spec
	names map[uint64]string // of functions, by address
	base  uint64            // that calls are relative to
}

var readKernel = sync.OnceValues(func() (*kernelInfo, error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	k := &kernelInfo{types: types, names: map[uint64]string{}}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	wanted := func(name string) bool {
		return strings.Contains(name, "bpf") || strings.Contains(name, "map_") || strings.Contains(name, "trie_")
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || !wanted(fields[2]) { // four: of a module
			continue
		}
		address, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("read /proc/kallsyms: %w", err)
		}
		k.names[address] = fields[2]
		if fields[2] == "__bpf_call_base" {
			k.base = address
		}
	}
	if k.base == 0 {
		return nil, fmt.Errorf("/proc/kallsyms does not show __bpf_call_base: is CAP_SYSLOG missing?")
	}
	return k, nil
})

// offset finds a member, also in structures without a name, of a struct.
func (k *kernelInfo) offset(structure, member string) (uint64, error) {
	var s *btf.Struct
	if err := k.types.TypeByName(structure, &s); err != nil {
		return 0, fmt.Errorf("struct %s: %w", structure, err)
	}
	if at, ok := memberIn(s.Members, member); ok {
		return at, nil
	}
	return 0, fmt.Errorf("struct %s has no %s", structure, member)
}

func memberIn(members []btf.Member, name string) (uint64, bool) {
	for _, m := range members {
		at := uint64(m.Offset.Bytes())
		if m.Name == name {
			return at, true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if in, ok := memberIn(inner, name); ok {
			return at + in, true
		}
	}
	return 0, false
}

func (k *kernelInfo) sizeOf(structure string) (int, error) {
	var s *btf.Struct
	if err := k.types.TypeByName(structure, &s); err != nil {
		return 0, fmt.Errorf("struct %s: %w", structure, err)
	}
	return int(s.Size), nil
}
