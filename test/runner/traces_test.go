package main

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// A program that only its pin keeps is found, as is the pin; without it, nothing is.
func TestPinnedProgramIsATrace(t *testing.T) {
	// Never unlocked: the thread, which is in a sandbox, ends with the test.
	runtime.LockOSThread()
	box, err := enterSandbox()
	if err != nil {
		t.Fatal(err)
	}
	defer box.close()
	before, err := box.traces()
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
	pin := filepath.Join(bpffs, "left")
	if err := prog.Pin(pin); err != nil {
		t.Fatal(err)
	}
	if err := prog.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := box.left(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pin " + pin, "(left_behind, SchedCLS)"} {
		if !slices.ContainsFunc(left, func(trace string) bool { return strings.Contains(trace, want) }) {
			t.Errorf("no trace says %q: %q", want, left)
		}
	}

	pinned, err := ebpf.LoadPinnedProgram(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := pinned.Unpin(); err != nil {
		t.Fatal(err)
	}
	if err := pinned.Close(); err != nil {
		t.Fatal(err)
	}
	err = poll(t.Context(), 10*time.Second, func(time.Duration) (bool, error) {
		now, err := box.traces()
		left = left[:0]
		for trace := range now {
			if strings.Contains(trace, "left") {
				left = append(left, trace)
			}
		}
		return len(left) == 0, err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("after the last user was gone there is %q, error %v", left, err)
	}
}
