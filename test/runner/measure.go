package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what processes used of the CPUs.
type cpuTime struct{ user, system time.Duration }

func cpuTimeOf(s *os.ProcessState) cpuTime { return cpuTime{s.UserTime(), s.SystemTime()} }

func (c cpuTime) plus(o cpuTime) cpuTime  { return cpuTime{c.user + o.user, c.system + o.system} }
func (c cpuTime) minus(o cpuTime) cpuTime { return cpuTime{c.user - o.user, c.system - o.system} }

func (c cpuTime) String() string {
	return fmt.Sprintf("CPU %.1f s user, %.1f s system", c.user.Seconds(), c.system.Seconds())
}

// measureVerb makes this program the one that `go test -exec` starts tests with.
const measureVerb = "measure"

// cpuMark begins the line in which measure reports.
const cpuMark = "runner: test binary used "

// measure runs a test binary and reports on stdout what it and its children used. It returns the exit code.
func measure(args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// go test kills this process, which must take the tests along. The signal comes when this thread ends.
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGQUIT, unix.SIGINT, unix.SIGTERM)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	used := cpuTimeOf(cmd.ProcessState)
	fmt.Printf("%s%v %v\n", cpuMark, used.user, used.system)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	default:
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
}

// readCPU finds the report of measure in a line.
func readCPU(line string) (used cpuTime, ok bool) {
	_, report, ok := strings.Cut(line, cpuMark)
	user, system, _ := strings.Cut(strings.TrimSpace(report), " ")
	var errs [2]error
	used.user, errs[0] = time.ParseDuration(user)
	used.system, errs[1] = time.ParseDuration(system)
	return used, ok && errors.Join(errs[:]...) == nil
}
