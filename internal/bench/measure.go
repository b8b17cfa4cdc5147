package bench

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Spread is what repeated measurements of one thing gave.
type Spread struct {
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"`   // first quartile
	Q3     float64 `json:"q3"`   // third quartile
	Low    float64 `json:"low"`  // the smallest
	High   float64 `json:"high"` // the largest
}

// spreadOf sorts a copy of values, of which there is at least one.
func spreadOf(values []float64) Spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return Spread{
		Median: (v[(n-1)/2] + v[n/2]) / 2, Low: v[0], High: v[n-1],
		Q1: v[(n-1)/4], Q3: v[n-1-(n-1)/4],
	}
}

// only is the spread of something that was measured once.
func only(v float64) Spread { return spreadOf([]float64{v}) }

// pairwise is f over what two things gave in the same rounds.
func pairwise(a, b []float64, f func(a, b float64) float64) Spread { return spreadOf(pairs(a, b, f)) }

func pairs(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}

// Range is from a value to another.
type Range struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// confidence is where the median of all that could be measured is, with at least 95 %: as many of n values
// are below it as a coin shows heads (sign test). It takes no distribution for granted. Of fewer than six
// values nothing is known but that.
func confidence(values []float64) Range {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	cut, tail, p := 0, 0.0, math.Pow(0.5, float64(n)) // p: of as many heads as cut
	for ; cut < n/2; cut++ {
		if tail += p; tail > 0.025 {
			break
		}
		p *= float64(n-cut) / float64(cut+1)
	}
	cut = max(cut-1, 0)
	return Range{From: v[cut], To: v[n-1-cut]}
}

func minus(a, b float64) float64 { return a - b }
func over(a, b float64) float64  { return a / b }

// onProcessor runs f on a thread that stays on one processor and ends with f.
func onProcessor(cpu int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			done <- fmt.Errorf("moving to processor %d: %w", cpu, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// processTime is the processor time that all threads of this process have used.
func processTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("reading the processor time of the process: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// threadTime is the processor time that the calling thread has used.
func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("reading the thread's processor time: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// sendLive has a program send n frames, at least, which are real ones. It returns the processor time of the thread: the
// kernel does all of it there, up to what becomes of the frames.
func sendLive(p *ebpf.Program, frame []byte, n int) (time.Duration, error) {
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	if _, err := p.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(n), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: 64}); err != nil {
		return 0, fmt.Errorf("sending %d frames: %w", n, err)
	}
	after, err := threadTime()
	return after - before, err
}

// testRun sends a frame n times through a program and returns the processor
// time of one time, in ns. The kernel's own figure is a whole number; the
// thread's time is finer, and a few µs of system call don't show in 100,000.
func testRun(p *ebpf.Program, frame []byte, n int) (float64, error) { return testRunOn(0, p, frame, n) }

// testRunOn is testRun of packets of this host, at an interface of this namespace; 0 is
// the loopback.
func testRunOn(index int, p *ebpf.Program, frame []byte, n int) (float64, error) {
	return timedRun(p, tcRun(0, index, frame, n), tcUnspec)
}

// testRunForwarded is testRunOn of packets that arrived at the same interface.
func testRunForwarded(index int, p *ebpf.Program, frame []byte, n int) (float64, error) {
	return timedRun(p, tcRun(index, index, frame, n), tcUnspec)
}

// tcRun sends a frame n times through a program at tc. in is where it arrived, 0: nowhere;
// index is where it is now.
func tcRun(in, index int, frame []byte, n int) *ebpf.RunOptions {
	// struct __sk_buff in words; a test run takes the interfaces from it.
	var skb [48]uint32
	skb[9], skb[10] = uint32(in), uint32(index)
	return &ebpf.RunOptions{Data: frame, Context: skb, Repeat: uint32(n)}
}

// testRunXDP is testRunOn of a program at XDP.
func testRunXDP(index int, p *ebpf.Program, frame []byte, n int) (float64, error) {
	// struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
	xdp := [6]uint32{0, uint32(len(frame)), 0, uint32(index)}
	return timedRun(p, &ebpf.RunOptions{Data: frame, Context: xdp, Repeat: uint32(n)}, xdpPass)
}

// timedRun measures a run that was interrupted again.
func timedRun(p *ebpf.Program, opts *ebpf.RunOptions, want int32) (float64, error) {
	for range maxRestarts {
		ns, err := runOnce(p, opts, want)
		if !errors.Is(err, errRestarted) {
			return ns, err
		}
	}
	return 0, fmt.Errorf("%d test runs of %s: each was %w: is this process being profiled?", maxRestarts, p, errRestarted)
}

// maxRestarts is how many runs in a row may be interrupted.
const maxRestarts = 20

// errRestarted is a test run that sent more packets than it was to send: Go's scheduler
// and profiler interrupt threads by signals, which end a run, and ebpf.Program.Run
// then begins again with the first packet.
var errRestarted = errors.New("interrupted by a signal and restarted")

func runOnce(p *ebpf.Program, opts *ebpf.RunOptions, want int32) (float64, error) {
	restarted := false
	once := *opts
	//lint:ignore SA1019 nothing else reports that a run began again
	once.Reset = func() { restarted = true }
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	verdict, err := p.Run(&once)
	if err != nil {
		return 0, fmt.Errorf("test run of %s: %w", p, err)
	}
	after, err := threadTime()
	if err != nil {
		return 0, err
	}
	if int32(verdict) != want {
		return 0, fmt.Errorf("test run of %s: verdict %d: the packet was not handled", p, int32(verdict))
	}
	if restarted {
		return 0, errRestarted
	}
	return float64(after-before) / float64(opts.Repeat), nil
}

const (
	tcUnspec = -1 // TC_ACT_UNSPEC
	xdpPass  = 2
)
