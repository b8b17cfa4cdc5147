package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// process is a program that runs alongside the test.
type process struct {
	*exec.Cmd
	stdout, stderr *await.Text
	ended          chan struct{} // closed when it is over
}

// spawn starts a program on a host (nil: here); it does not outlive the test.
func spawn(t *testing.T, h *lab.Host, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, stdout: &await.Text{}, stderr: &await.Text{}, ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.stderr
	}
	start := cmd.Start
	if h != nil {
		start = func() error { return h.Start(cmd) }
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		// How it ended is in ProcessState.
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() && p.stderr.String() != "" {
			t.Logf("%s said:\n%s", cmd.Args[0], p.stderr)
		}
	})
	return p
}

// signal sends a signal to a process that may be over.
func (p *process) signal(s unix.Signal) { _ = p.Process.Signal(s) }

// kill ends the process without a chance to clean up.
func (p *process) kill() {
	p.signal(unix.SIGKILL)
	<-p.ended
}

// wait returns the exit code; -1: a signal ended it.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-time.After(await.Patience):
		t.Fatalf("%v runs on after %v; it said: %s", p.Args, await.Patience, p.stderr)
		return 0
	}
}

// command is a program that reports in UTC and in English.
func command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), "TZ=UTC", "LC_ALL=C.UTF-8")
	return cmd
}

const interrupt = unix.SIGINT

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// result is what a command line brought.
type result struct {
	stdout, stderr string
	code           int
}

// execute runs a program to its end, on a host or (nil) here.
func execute(t *testing.T, h *lab.Host, argv ...string) result {
	t.Helper()
	return finish(t, h, exec.Command(argv[0], argv[1:]...))
}

func finish(t *testing.T, h *lab.Host, cmd *exec.Cmd) result {
	t.Helper()
	p := spawn(t, h, cmd)
	code := p.wait(t)
	return result{p.stdout.String(), p.stderr.String(), code}
}

// waymark runs the program under test with arguments.
func waymark(t *testing.T, args ...string) result {
	t.Helper()
	return execute(t, nil, append([]string{program}, args...)...)
}

// must is the standard output of a command that has to succeed.
func must(t *testing.T, h *lab.Host, argv ...string) string {
	t.Helper()
	r := execute(t, h, argv...)
	if r.code != 0 {
		t.Fatalf("%v: exit code %d: %s%s", argv, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

var errNotYet = errors.New("not yet")

func notYet(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errNotYet}, args...)...)
}
