package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/topology"
)

// Process names a process for longer than its id alone does: ids are used again,
// but not with the same start.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot (field 22 of /proc/PID/stat)
}

// FindProcess looks a running process up by its id.
func FindProcess(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	// The command in parentheses may itself have any of these characters.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const state, start = 3, 22 // rest begins with field 3
	if len(fields) <= start-state {
		return Process{}, fmt.Errorf("process %d: stat has %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return Process{}, fmt.Errorf("process %d has ended: %w", pid, os.ErrProcessDone)
	}
	ticks, err := strconv.ParseUint(fields[start-state], 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: start time: %w", pid, err)
	}
	return Process{PID: pid, Start: ticks}, nil
}

// Alive reports whether the very same process still runs.
func (p Process) Alive() bool {
	now, err := FindProcess(p.PID)
	return err == nil && now == p
}

// Stop ends the process: asked first, and made to after the grace period.
func (p Process) Stop(grace time.Duration) error {
	// The descriptor is opened before the check: it cannot come to mean another.
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	for _, step := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGTERM, grace}, {unix.SIGKILL, 10 * time.Second}} {
		if err := unix.PidfdSendSignal(fd, step.signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("signal process %d: %w", p.PID, err)
		}
		if ended, err := waitPidfd(fd, step.wait); ended || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d does not end", p.PID)
}

// waitPidfd waits for the end of a process.
func waitPidfd(fd int, timeout time.Duration) (ended bool, err error) {
	deadline := time.Now().Add(timeout)
	for {
		left := unix.NsecToTimespec(max(0, time.Until(deadline).Nanoseconds()))
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &left, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("wait for process: %w", err)
		}
		return n > 0, nil
	}
}

// processesIn finds the processes that live in one of the namespaces with all of their
// threads, other than this one. One that only looks in, like an agent that
// attached to a link there, is none.
func processesIn(homes map[topology.NetnsID]bool) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !livesIn(pid, homes) {
			continue
		}
		if p, err := FindProcess(pid); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

func livesIn(pid int, homes map[topology.NetnsID]bool) bool {
	// Most processes live elsewhere, and one look at their first thread says so.
	home, err := topology.StatNetns(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil || !homes[home] {
		return false
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/ns/net", pid))
	for _, t := range tasks {
		if at, err := topology.StatNetns(t); err != nil || at != home {
			return false
		}
	}
	return len(tasks) > 0
}
