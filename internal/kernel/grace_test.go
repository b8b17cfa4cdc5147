package kernel

import (
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
)

// stayOn binds the goroutine and its thread to a processor, permanently.
func stayOn(cpu int) error {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(cpu)
	return unix.SchedSetaffinity(0, &one)
}

// A wait returns only after a program has ended that ran when it began.
func TestGraceWaitsForPrograms(t *testing.T) {
	spec, err := program.Bench()
	if err != nil {
		t.Fatal(err)
	}
	var spin struct {
		Program *ebpf.Program  `ebpf:"spin"`
		State   *ebpf.Variable `ebpf:"spin_state"`
	}
	if err := spec.LoadAndAssign(&spin, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	defer spin.Program.Close()

	if runtime.NumCPU() < 2 {
		t.Skip("one processor: nobody could wait while a program runs")
	}
	for _, tc := range []struct {
		name string
		make func() (*Grace, error)
	}{{"the kernel's best way", NewGrace}, {"a map of maps", NewMapGrace}} {
		t.Run(tc.name, func(t *testing.T) {
			if err := stayOn(0); err != nil {
				t.Fatal(err)
			}
			grace, err := tc.make()
			if err != nil {
				t.Fatal(err)
			}
			defer grace.Close()
			var state struct{ Began, Ended uint32 }
			if err := spin.State.Set(state); err != nil {
				t.Fatal(err)
			}
			// Nobody else gets the processor while the program runs.
			ran := make(chan error, 1)
			go func() {
				if err := stayOn(1); err != nil {
					ran <- err
					return
				}
				_, err := spin.Program.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
				ran <- err
			}()
			for deadline := time.Now().Add(time.Minute); state.Began == 0; {
				if time.Now().After(deadline) {
					t.Fatal("the program did not begin within a minute")
				}
				if err := spin.State.Get(&state); err != nil {
					t.Fatal(err)
				}
			}
			if state.Ended != 0 {
				t.Fatal("the program ended before the wait began: it proves nothing")
			}
			if err := grace.Wait(); err != nil {
				t.Fatal(err)
			}
			if err := spin.State.Get(&state); err != nil {
				t.Fatal(err)
			}
			if state.Ended == 0 {
				t.Error("the wait was over while a program ran that had begun before it")
			}
			if err := <-ran; err != nil {
				t.Fatal(err)
			}
		})
	}
}
