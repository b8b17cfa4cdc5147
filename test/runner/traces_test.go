package main

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// A program that only a pin or an interface keeps is found in the sandbox and on the machine; without it, nothing is.
func TestProgramsAreTraces(t *testing.T) {
	// Never unlocked: the thread, which is in a sandbox, ends with the test.
	runtime.LockOSThread()
	box, err := enterSandbox()
	if err != nil {
		t.Fatal(err)
	}
	defer box.close()
	list := func() (traces, error) {
		found, err := collect(pins, links, bpfObjects)
		// Packages that run at the same time have programs of their own.
		maps.DeleteFunc(found, func(trace string, _ bool) bool { return !strings.Contains(trace, "left") })
		return found, err
	}
	pin := filepath.Join(bpffs, "left")
	const lo = 1
	for _, tc := range []struct {
		name          string
		keep, release func(*ebpf.Program) error
		want          string
	}{
		{
			name: "pin", want: "pin " + pin + " of BPF program ",
			keep:    func(prog *ebpf.Program) error { return prog.Pin(pin) },
			release: func(*ebpf.Program) error { return os.Remove(pin) },
		},
		{
			name: "interface", want: " at TCXIngress of lo",
			keep: func(prog *ebpf.Program) error {
				return link.RawAttachProgram(link.RawAttachProgramOptions{Target: lo, Program: prog, Attach: ebpf.AttachTCXIngress})
			},
			release: func(prog *ebpf.Program) error {
				return link.RawDetachProgram(link.RawDetachProgramOptions{Target: lo, Program: prog, Attach: ebpf.AttachTCXIngress})
			},
		},
	} {
		before, err := list()
		if err != nil {
			t.Fatal(err)
		}
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "left_behind", Type: ebpf.SchedCLS, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		})
		if err != nil {
			t.Fatal(err)
		}
		info, err := prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		if err := tc.keep(prog); err != nil {
			t.Fatal(err)
		}
		if err := prog.Close(); err != nil {
			t.Fatal(err)
		}
		now, err := list()
		if err != nil {
			t.Fatal(err)
		}
		found := now.since(before)
		var here, there int
		for _, trace := range found {
			if strings.Contains(trace, tc.want) {
				here++
			}
			if strings.HasPrefix(trace, "BPF program") && strings.HasSuffix(trace, "(left_behind, SchedCLS)") {
				there++
			}
		}
		if here != 1 || there != 1 {
			t.Errorf("%s: traces are %q, want one with %q and one of the program", tc.name, found, tc.want)
		}

		prog, err = ebpf.NewProgramFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := tc.release(prog); err != nil {
			t.Fatal(err)
		}
		if err := prog.Close(); err != nil {
			t.Fatal(err)
		}
		if found, err := left(t.Context(), before, list); err != nil || len(found) > 0 {
			t.Errorf("%s: after the last user was gone there is %q, error %v", tc.name, found, err)
		}
	}
}
