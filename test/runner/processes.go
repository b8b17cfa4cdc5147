package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every process below whose own parent ends. What outlives the tests
// is so found, and ended.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// endOrphans says which processes outlived the tests, and kills them.
func endOrphans(ctx context.Context) ([]string, error) {
	var left []string
	reported := map[int]bool{}
	// A killed process leaves its own children to us, so look again until there are none. What is
	// just about to end gets a moment for it.
	err := poll(ctx, 10*time.Second, func(elapsed time.Duration) (done bool, err error) {
		children, err := childProcesses()
		if err != nil {
			return false, err
		}
		for _, pid := range children {
			var status unix.WaitStatus
			if reaped, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err == nil && reaped == pid {
				continue
			}
			if elapsed < time.Second {
				continue
			}
			if !reported[pid] {
				reported[pid] = true
				left = append(left, fmt.Sprintf("process %d: %s", pid, commandLine(pid)))
			}
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return len(children) == 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("end the processes that the tests left: %w", err)
	}
	return left, nil
}

// childProcesses of any thread of this process.
func childProcesses() ([]int, error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, fmt.Errorf("list the threads: %w", err)
	}
	var pids []int
	for _, task := range tasks {
		raw, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			continue // that thread ended
		}
		for _, field := range strings.Fields(string(raw)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("read the children of thread %s: %w", task.Name(), err)
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func commandLine(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(raw) == 0 {
		return "?"
	}
	return string(bytes.ReplaceAll(bytes.TrimRight(raw, "\x00"), []byte{0}, []byte{' '}))
}

// poll calls done until it is true or fails, at most for the limit; running out of time is no error.
func poll(ctx context.Context, limit time.Duration, done func(elapsed time.Duration) (bool, error)) error {
	start := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(time.Since(start))
		if ok || err != nil {
			return err
		}
		if time.Since(start) > limit {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
