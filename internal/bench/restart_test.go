package bench

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/flow"
)

// A signal ends a test run, which then begins again: a table that was filled in that way has packets twice, and is
// filled again.
func TestInterruptedFilling(t *testing.T) {
	const flows = 200_003 // not a multiple of the number of processors
	f, err := newFiller(flows)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer f.close()
	for deadline := time.Now().Add(time.Minute); f.restarts == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no signal interrupted a test run")
		}
		done := make(chan error, 1)
		go func() { done <- f.fill(flows) }()
		for sent(t, f) == 0 && len(done) == 0 {
		}
		interrupt(t)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := sent(t, f); n != flows {
			t.Errorf("%d packets were sent for %d flows", n, flows)
		}
		packets := uint64(0)
		if err := f.d.Drain(func(d *flow.Delta) { packets += d.Packets }); err != nil {
			t.Fatal(err)
		}
		if packets != flows {
			t.Errorf("%d packets in a table with %d flows, after %d restarts", packets, flows, f.restarts)
		}
	}
}

// sent is how many packets this filling has sent.
func sent(t *testing.T, f *filler) (n uint64) {
	var senders program.Senders
	if err := f.coll.Variables["senders"].Get(&senders); err != nil {
		t.Fatal(err)
	}
	for _, s := range senders.Cpu {
		n += s.Packets
	}
	return n
}

// interrupt sends all threads of the process the signal that Go's scheduler does.
func interrupt(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if id, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.Tgkill(os.Getpid(), id, unix.SIGURG) // it may have ended
		}
	}
}
