package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a probe may take to start, and to end.
const patience = 60 * time.Second

// process is a probe that runs as a process, in the namespace of the lanes.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error // of its end
	stderr string
	ready  time.Duration // processor time it had used when it was ready
}

// startProcess runs a command on the probes' processor, its stderr in a file,
// and waits until it is ready.
func startProcess(s *space, stderr string, ready func() (bool, error), name string, args ...string) (*process, error) {
	out, err := os.Create(stderr)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(name, args...), ended: make(chan struct{}), stderr: stderr}
	p.cmd.Stderr = out
	if err := s.do(probeProcessor, p.cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.poll(context.Background(), 50*time.Millisecond, ready); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not ready: %w", name, err), p.stop(syscall.SIGKILL))
	}
	p.ready, err = p.used()
	return p, err
}

// poll asks now and then until the answer is yes, the process ends or patience
// does.
func (p *process) poll(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := ask()
		if ok || err != nil {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended: %w: %s", p.err, p.said())
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// said is the end of what the process wrote on stderr.
func (p *process) said() string {
	text, err := os.ReadFile(p.stderr)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-500):]))
}

// used is the processor time of all its threads, in user space and in calls of
// the kernel.
func (p *process) used() (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that ended
		}
		if err != nil {
			return 0, fmt.Errorf("reading the processor time used: %w", err)
		}
		ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// end stops the process by a signal and tells what it took since it was ready,
// the work of ending included.
func (p *process) end(sig syscall.Signal) (took time.Duration, memory uint64, err error) {
	memory, errMemory := p.resident()
	if err := p.stop(sig); err != nil {
		return 0, 0, err
	}
	state := p.cmd.ProcessState
	return max(0, state.UserTime()+state.SystemTime()-p.ready), memory, errMemory
}

// resident is the most memory that the process had so far, in bytes. What
// wait4 tells of a child begins with the size of its parent.
func (p *process) resident() (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("reading the size of the process: %w", err)
	}
	return match(residentPeak, string(text)) << 10, nil
}

var residentPeak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// stop returns when the process has ended, by force if it must be.
func (p *process) stop(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.cmd.Path, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		err := p.cmd.Process.Kill()
		<-p.ended
		return errors.Join(fmt.Errorf("%s did not end within %v", p.cmd.Path, patience), err)
	}
}

// temporaryFolder is for sockets and logs.
func temporaryFolder() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "waymark-bench-")
	return dir, func() { os.RemoveAll(dir) }, err
}
