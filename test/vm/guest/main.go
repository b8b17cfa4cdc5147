// Command guest is process 1 of a test machine.
//
// In: the initramfs that package vm packed, with a protocol.Job in it. Out: a line of JSON on the event port for
// everything that happens; then it restarts the machine, which ends QEMU. Nobody calls it but the kernel.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/vm/internal/protocol"
)

func main() {
	// Process 1 must not return: the kernel would panic, and the panic hide the reason.
	defer func() {
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}()
	if err := mountAll(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		return
	}
	events, err := openEvents(protocol.EventPort)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		return
	}
	if err := work(events); err != nil {
		events.send(protocol.Event{Fail: err.Error()})
		return
	}
	events.send(protocol.Event{End: true})
}

func work(events *events) error {
	raw, err := os.ReadFile(protocol.JobPath)
	if err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	var job protocol.Job
	if err := json.Unmarshal(raw, &job); err != nil {
		return fmt.Errorf("decode the job %s: %w", protocol.JobPath, err)
	}
	for _, path := range job.Modules {
		if err := loadModule(path); err != nil {
			return err
		}
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	boot, err := describe()
	if err != nil {
		return err
	}
	events.send(protocol.Event{Boot: boot})
	for i, cmd := range job.Cmds {
		exit := run(i, cmd, events)
		events.send(protocol.Event{Exit: &exit})
		// The next one may make the kernel panic.
		if err := unix.IoctlSetInt(int(events.port.Fd()), unix.TCSBRK, 1); err != nil {
			return fmt.Errorf("wait until %s has sent what was written: %w", protocol.EventPort, err)
		}
	}
	return nil
}

// mountAll makes the file systems that a host's init would have made.
func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/run"},
		{"tmpfs", "/tmp"},
		{"bpf", "/sys/fs/bpf"},
		{"cgroup2", "/sys/fs/cgroup"},
		{"debugfs", "/sys/kernel/debug"},
		{"tracefs", "/sys/kernel/tracing"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return fmt.Errorf("make the mount point %s: %w", m.at, err)
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.at, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open module: %w", err)
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", path, err)
	}
	return nil
}

// loopbackUp does what `ip link set lo up` does, without netlink.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket to set lo up: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("name lo: %w", err)
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

func describe() (*protocol.Boot, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return nil, fmt.Errorf("read the CPUs: %w", err)
	}
	return &protocol.Boot{Release: unix.ByteSliceToString(uts.Release[:]), CPUs: cpus.Count()}, nil
}

func run(i int, c protocol.Cmd, events *events) protocol.Exit {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env = append([]string{"PATH=/bin:/sbin", "HOME=/root", "TMPDIR=/tmp"}, c.Env...)
	cmd.Dir = "/" + strings.TrimPrefix(c.Dir, "/")
	cmd.Stdout = stream{events, i, 1}
	cmd.Stderr = stream{events, i, 2}
	// A group of its own, so that a timeout takes the command's children too; and an end to
	// waiting for output that a surviving child holds open. What was written takes a while to
	// pass the event port on a busy machine.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 30 * time.Second

	start := time.Now()
	exit := protocol.Exit{Cmd: i, Code: -1}
	if err := cmd.Start(); err != nil {
		exit.Error = fmt.Sprintf("start %s: %v", c.Args[0], err)
		return exit
	}
	var timedOut bool
	var timer *time.Timer
	if c.Timeout > 0 {
		timer = time.AfterFunc(c.Timeout, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	}
	err := cmd.Wait()
	if timer != nil {
		timedOut = !timer.Stop()
	}
	exit.Took = time.Since(start)
	exit.Code = cmd.ProcessState.ExitCode()
	switch {
	case timedOut:
		exit.Error = fmt.Sprintf("killed after %v", c.Timeout)
	case exit.Code < 0 && err != nil, errors.Is(err, exec.ErrWaitDelay):
		exit.Error = err.Error()
	}
	return exit
}

// events is the guest's side of the event port.
type events struct {
	port *os.File
	mu   sync.Mutex
	enc  *json.Encoder
}

func openEvents(path string) (*events, error) {
	port, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the event port: %w", err)
	}
	// Raw: the line discipline must not turn \n into \r\n.
	t, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the settings of %s: %w", path, err)
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("set %s raw: %w", path, err)
	}
	return &events{port: port, enc: json.NewEncoder(port)}, nil
}

func (e *events) send(ev protocol.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.enc.Encode(ev); err != nil {
		fmt.Fprintln(os.Stderr, "guest: send an event:", err)
	}
}

// stream is one output of one command.
type stream struct {
	events  *events
	cmd, fd int
}

func (s stream) Write(p []byte) (int, error) {
	s.events.send(protocol.Event{Output: &protocol.Output{Cmd: s.cmd, FD: s.fd, Data: p}})
	return len(p), nil
}
