package gate

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// enum gate_mark of bpf/gate/abi.h
const markSampled, markTapped = 1 << 2, 1 << 3

// marks are what rules that do not decide say of a packet, in the working memory of the programs.
type marks struct {
	memory *ebpf.Map
	clear  [][]byte // per CPU
	at     uint32
}

func openMarks(t *testing.T, b *bench) *marks {
	t.Helper()
	m := &marks{}
	var err error
	if m.memory, err = b.core.Map("scratch"); err != nil {
		t.Fatal(err)
	}
	of, err := m.memory.Info()
	if err != nil {
		t.Fatal(err)
	}
	memory, _ := of.BTFID()
	program, err := b.program(t, datapath.Early).Info()
	if err != nil {
		t.Fatal(err)
	}
	code, _ := program.BTFID()
	m.at = offsetOf(t, memory, "scratch", "gate_seen") + offsetOf(t, code, "gate_facts", "marks")
	for range ebpf.MustPossibleCPU() {
		m.clear = append(m.clear, make([]byte, m.memory.ValueSize()))
	}
	return m
}

// offsetOf is where a struct of the programs has a member.
func offsetOf(t *testing.T, id btf.ID, of, name string) uint32 {
	t.Helper()
	handle, err := btf.NewHandleFromID(id)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	types, err := handle.Spec(nil)
	if err != nil {
		t.Fatal(err)
	}
	var s *btf.Struct
	if err := types.TypeByName(of, &s); err != nil {
		t.Fatalf("struct %s: %v", of, err)
	}
	i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("struct %s has no %s", of, name)
	}
	return s.Members[i].Offset.Bytes()
}

// forget has no packet have said anything.
func (m *marks) forget(t require) {
	if err := m.memory.Put(uint32(0), m.clear); err != nil {
		t.Fatalf("%v", err)
	}
}

// check compares the marks of the packet that has just been on processor 0 with what the reference says, and returns how many
// rules tapped it. Of rules that take one packet of several, nobody knows which.
func (m *marks) check(t require, h at, d *rules.Decision) (tapped int) {
	var memory [][]byte
	if err := m.memory.Lookup(uint32(0), &memory); err != nil {
		t.Fatalf("%v", err)
	}
	got := memory[0][m.at]
	for mark, by := range map[uint8][]*rules.Rule{markSampled: d.Samples, markTapped: d.Taps} {
		must := slices.ContainsFunc(by, func(r *rules.Rule) bool { return r.Every <= 1 })
		if has := got&mark != 0; must && !has || has && len(by) == 0 {
			t.Fatalf("%s: marks %#x, but %d rules say %#x", h.name, got, len(by), mark)
		}
	}
	return len(d.Taps)
}
