package kernel

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/btf"
)

var wantedStructs = []string{"sk_buff", "skb_shared_info", "net_device", "sock", "tcp_sock", "xdp_buff", "xdp_rxq_info", "net", "netns_ipv4", "netns_ipv6", "rt6_statistics", "no_such_struct"}

// TestTypesAreTheLibrarys: offsets and numbers are those that the library for BPF finds.
func TestTypesAreTheLibrarys(t *testing.T) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Skipf("no type information to read: %v", err)
	}
	err = withKernelTypes(typesFile, wantedStructs, append([]string{"no_such_function"}, functions...), func(types *kernelTypes) error {
		for _, name := range wantedStructs {
			var s *btf.Struct
			want := map[string]uint32{}
			if err := spec.TypeByName(name, &s); err == nil {
				libraryOffsets(s.Members, 0, want)
			} else if name != "no_such_struct" {
				t.Error(err)
			}
			got := types.offsets(name)
			if len(got) != len(want) {
				t.Errorf("struct %s has %d members, want %d", name, len(got), len(want))
			}
			for member, at := range want {
				if got[member] != at {
					t.Errorf("%s.%s is at bit %d, want %d", name, member, got[member], at)
				}
			}
		}
		for name, number := range types.functions {
			var f *btf.Func
			var want btf.TypeID
			if err := spec.TypeByName(name, &f); err == nil {
				if want, err = spec.TypeID(f); err != nil {
					t.Error(err)
				}
			}
			if number != uint32(want) {
				t.Errorf("function %s has number %d, want %d", name, number, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func libraryOffsets(members []btf.Member, base uint32, into map[string]uint32) {
	for _, m := range members {
		switch inner := m.Type.(type) {
		case *btf.Struct:
			if m.Name == "" {
				libraryOffsets(inner.Members, base+uint32(m.Offset), into)
				continue
			}
		case *btf.Union:
			if m.Name == "" {
				libraryOffsets(inner.Members, base+uint32(m.Offset), into)
				continue
			}
		}
		if m.Name != "" {
			into[m.Name] = base + uint32(m.Offset)
		}
	}
}

// TestBrokenTypes: whatever the file has, it is refused or read, within its bounds.
func TestBrokenTypes(t *testing.T) {
	raw, err := os.ReadFile(typesFile)
	if err != nil {
		t.Skipf("no type information to read: %v", err)
	}
	file := filepath.Join(t.TempDir(), "btf")
	read := func(raw []byte) error {
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return withKernelTypes(file, wantedStructs, functions, func(types *kernelTypes) error {
			for _, name := range wantedStructs {
				types.offsets(name)
			}
			return nil
		})
	}
	kind := bytes.Clone(raw[:min(len(raw), 1<<12)])
	kind[headerBytes+7] = 31 // of the first type
	long := bytes.Clone(raw)
	copy(long[12:], []byte{0xff, 0xff, 0xff, 0x7f}) // of the types
	for name, broken := range map[string][]byte{
		"empty": {}, "short": raw[:headerBytes-1], "cut": raw[:len(raw)/2], "no types": bytes.Repeat([]byte{1}, 64), "kind": kind, "length": long,
	} {
		if err := read(broken); !errors.Is(err, errBTF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	names := bytes.Clone(raw)
	for i := headerBytes; i < len(names)/2; i += 7 {
		names[i] ^= 0x55
	}
	if err := read(names); err != nil && !errors.Is(err, errBTF) {
		t.Error(err)
	}
}

// FuzzTypes: nothing is read outside the file.
func FuzzTypes(f *testing.F) {
	f.Add([]byte{
		0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 36, 0, 0, 0, 36, 0, 0, 0, 5, 0, 0, 0,
		1, 0, 0, 0, 1, 0, 0, 4, 4, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 'a', 0, 'b', 0,
	})
	f.Fuzz(func(t *testing.T, raw []byte) {
		types := &kernelTypes{structs: map[string]uint32{"a": 0}, functions: map[string]uint32{"b": 0}}
		if err := types.index(raw); err != nil && !errors.Is(err, errBTF) {
			t.Error(err)
		}
		types.offsets("a")
	})
}
