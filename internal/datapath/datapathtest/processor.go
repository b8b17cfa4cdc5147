package datapathtest

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// OnOneProcessor keeps the calling goroutine on a processor until back is called: each CPU has batches and queues of its
// own.
func OnOneProcessor(t rapid.TB) (back func()) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	one.Set(0)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
		t.Fatalf("moving to processor 0: %v", err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil { // else the thread ends with its goroutine
			runtime.UnlockOSThread()
		}
	}
}
