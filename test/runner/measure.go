package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
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

// What measure reports, each in a line of its own behind what the tests wrote.
const (
	cpuMark  = "runner: test binary used "
	leftMark = "runner: test binary left behind "
)

// measure runs a test binary in a sandbox of its own and reports on stdout what it and its children used, and what it
// left there. It returns the exit code.
func measure(args []string) int {
	code, err := measureIn(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		return 1
	}
	return code
}

func measureIn(args []string) (code int, err error) {
	box, err := enterSandbox()
	if err != nil {
		return 0, err
	}
	defer box.close()
	before, err := box.traces()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(slices.DeleteFunc(box.env(), func(v string) bool { return v == linkerGOGC }), testGOGC)
	// go test kills this process, which must take the tests along. The signal comes when this thread ends, and that
	// is the process's first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGQUIT, unix.SIGINT, unix.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	ended := cmd.Wait()
	used := cpuTimeOf(cmd.ProcessState)
	fmt.Printf("%s%v %v\n", cpuMark, used.user, used.system)
	list, err := left(context.Background(), before, box.traces)
	if err != nil {
		return 0, err
	}
	for _, trace := range list {
		fmt.Printf("%s%q\n", leftMark, trace)
	}
	if exit := (*exec.ExitError)(nil); errors.As(ended, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, ended
}

// readLeft finds what a test binary left in a line of measure.
func readLeft(line string) (trace string, ok bool) {
	_, quoted, ok := strings.Cut(line, leftMark)
	trace, err := strconv.Unquote(strings.TrimSpace(quoted))
	return trace, ok && err == nil
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
