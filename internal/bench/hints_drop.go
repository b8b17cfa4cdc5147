package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
)

// hintsLanes are the programs, and then the cost of sending alone; and the programs that measure themselves.
type hintsLanes struct{ plain, timed []*hintsLane }

func (l *hintsLanes) close() {
	for _, one := range slices.Concat(l.plain, l.timed) {
		one.close()
	}
}

func newHintsLanes(ctx context.Context) (l *hintsLanes, err error) {
	l = &hintsLanes{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	add := func(to *[]*hintsLane, program string, timed bool) error {
		one, err := newHintsLane(program, timed)
		if err == nil {
			*to = append(*to, one)
		}
		return err
	}
	for i, p := range hintPrograms {
		if err := add(&l.plain, p.program, false); err != nil {
			return l, err
		}
		if i == hintAsked {
			continue
		}
		if err := add(&l.timed, p.program, true); err != nil {
			return l, err
		}
	}
	if err := add(&l.plain, hintPrograms[0].program, false); err != nil {
		return l, err
	}
	none := l.plain[len(hintPrograms)] // frames end at the driver of the sender
	_, err = startDown(ctx, none.r.to, none.name, "")
	return l, err
}

// drop measures the programs on interfaces of their own: first all packets of one processor, then across two.
func (r *HintsReport) drop(ctx context.Context, cfg Config) error {
	lanes, err := newHintsLanes(ctx)
	if err != nil {
		return err
	}
	defer lanes.close()
	plain := func(l *hintsLane) (float64, error) {
		v, err := l.shoot(r.Packets)
		return v.ns, err
	}
	timed := func(l *hintsLane) (float64, error) { return l.within(l.lane, r.Packets) }
	cold := func(l *hintsLane) (float64, error) { return l.within(l.cold, r.Packets/4) }
	ns, err := r.turns(ctx, cfg, lanes.plain, plain)
	if err != nil {
		return err
	}
	call := pairwise(ns[hintAsked], ns[0], func(a, b float64) float64 { return (a - b) / hintAsks })
	r.Call = &call
	received := make([][]float64, len(hintPrograms))
	for i := range received {
		for round, one := range ns[i] {
			received[i] = append(received[i], one-ns[len(hintPrograms)][round])
		}
	}
	r.Dropped = append(r.Dropped, hintsDropped(packetsHot, received)...)
	for _, way := range []struct {
		name  string
		shoot func(*hintsLane) (float64, error)
	}{{packetsHot, timed}, {packetsCold, cold}} {
		if ns, err = r.turns(ctx, cfg, lanes.timed, way.shoot); err != nil {
			return err
		}
		r.Read = append(r.Read, hintsDropped(way.name, ns)...)
	}
	if runtime.NumCPU() < 2 {
		return nil
	}
	return r.across(ctx, cfg, lanes, timed)
}

// turns measures all lanes in each round.
func (r *HintsReport) turns(ctx context.Context, cfg Config, lanes []*hintsLane, shoot func(*hintsLane) (float64, error)) ([][]float64, error) {
	ns := make([][]float64, len(lanes))
	for round := range r.Rounds + 1 {
		cfg.Progress(fmt.Sprintf("hints: round %d of %d", round, r.Rounds))
		for i, l := range lanes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			one, err := shoot(l)
			for begun := time.Now(); errors.Is(err, errNothingReceived) && time.Since(begun) < hintsPatience; {
				one, err = shoot(l)
			}
			if err != nil {
				return nil, err
			}
			if round > 0 {
				ns[i] = append(ns[i], one)
			}
		}
	}
	return ns, nil
}

// hintsDropped compares the programs in one way in which packets arrive.
func hintsDropped(packets string, ns [][]float64) (out []HintsDropped) {
	for i := range ns {
		out = append(out, HintsDropped{
			Packets: packets, Program: hintPrograms[i].name, NS: spreadOf(ns[i]),
			Over: pairwise(ns[i], ns[0], minus), Rate: pairwise(ns[hintParsed], ns[i], over),
		})
	}
	return out
}

// within is the time that a packet spends in the program, by its own clock.
func (l *hintsLane) within(from *lane, packets int) (float64, error) {
	var before, after program.Spent
	spent := l.coll.Variables["spent"]
	if err := spent.Get(&before); err != nil {
		return 0, err
	}
	if _, err := from.shoot(packets); err != nil {
		return 0, err
	}
	if err := spent.Get(&after); err != nil {
		return 0, err
	}
	if after.Packets == before.Packets {
		return 0, errNothingReceived
	}
	return float64(after.Ns-before.Ns) / float64(after.Packets-before.Packets), nil
}

var errNothingReceived = errors.New("no packet arrived")

// hintsPatience is how long the processor that receives may be busy with other work.
const hintsPatience = 10 * time.Second

// across has a kernel thread on another processor receive what the generator sends.
func (r *HintsReport) across(ctx context.Context, cfg Config, lanes *hintsLanes, timed func(*hintsLane) (float64, error)) error {
	threads := map[*hintsLane]int{}
	plain := lanes.plain[:len(hintPrograms)-1]
	for _, l := range slices.Concat(plain, lanes.timed) {
		pid, err := l.thread()
		if err != nil {
			return fmt.Errorf("receiving on another processor: %w", err)
		}
		threads[l] = pid
	}
	ns, err := r.turns(ctx, cfg, plain, func(l *hintsLane) (float64, error) {
		before, err := threadRunTime(threads[l])
		if err != nil {
			return 0, err
		}
		v, err := l.shoot(r.Packets)
		if err != nil {
			return 0, err
		}
		after, err := threadRunTime(threads[l])
		if err == nil && v.received == 0 {
			err = errNothingReceived
		}
		return float64(after-before) / float64(max(v.received, 1)), err
	})
	if err != nil {
		return err
	}
	r.Dropped = append(r.Dropped, hintsDropped(packetsAcross, ns)...)
	if ns, err = r.turns(ctx, cfg, lanes.timed, timed); err != nil {
		return err
	}
	r.Read = append(r.Read, hintsDropped(packetsAcross, ns)...)
	return nil
}

// thread has a kernel thread receive, on the processor that does not send.
func (l *hintsLane) thread() (pid int, err error) {
	if err := l.r.to.writeSysfs(filepath.Join("class/net", l.name, "threaded"), "1"); err != nil {
		return 0, err
	}
	pid, err = newestThread("napi/" + l.name + "-")
	if err != nil {
		return 0, err
	}
	var one unix.CPUSet
	one.Set(probeProcessor)
	return pid, unix.SchedSetaffinity(pid, &one)
}

// writeSysfs writes a file of the namespace's own view of /sys.
func (s *space) writeSysfs(file, text string) error {
	return locked(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("making a mount namespace: %w", err)
		}
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("keeping mounts apart: %w", err)
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return fmt.Errorf("mounting sysfs: %w", err)
		}
		return os.WriteFile(filepath.Join("/sys", file), []byte(text), 0)
	})
}

// newestThread is the thread of the kernel whose name begins so and that began last.
func newestThread(prefix string) (newest int, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(text), prefix) {
			continue // it ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			newest = max(newest, pid)
		}
	}
	if newest == 0 && err == nil {
		err = fmt.Errorf("the kernel has no thread %s…", prefix)
	}
	return newest, err
}

// threadRunTime is the time in ns that a thread has run.
func threadRunTime(pid int) (ns uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of a thread of the kernel: %w", err)
	}
	_, err = fmt.Sscan(string(text), &ns)
	return ns, err
}
