// Command runner runs the project's tests and accounts for every one of them.
//
// In: package patterns, as `go test` takes them, and the list of skips that are fine. Out: a line for each package,
// failures in full, each skip with its reason, what the tests left behind, and a closing line "N passed, N failed,
// N skipped"; the exit code is 1 when something failed, was left, or, in CI, was skipped without leave.
// `make test` calls it, as root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

type config struct {
	// skips is the file of allowed skips; strict makes any other skip a failure.
	skips  string
	strict bool
	// race runs what does not touch the kernel under the race detector.
	race bool
	// timeout is for the tests of one package.
	timeout  time.Duration
	patterns []string
}

// The main goroutine stays on the process's first thread: that one enters the sandbox, and what it starts is inside.
func init() { runtime.LockOSThread() }

func main() {
	var cfg config
	flag.StringVar(&cfg.skips, "skips", "", "file of the skips that are fine, with their reasons")
	flag.BoolVar(&cfg.strict, "strict", os.Getenv("CI") == "true", "fail on a skip that -skips does not allow")
	flag.BoolVar(&cfg.race, "race", true, "use the race detector where tests don't touch the kernel")
	flag.DurationVar(&cfg.timeout, "timeout", 30*time.Minute, "limit for one package")
	flag.Parse()
	cfg.patterns = flag.Args()
	if len(cfg.patterns) == 0 {
		cfg.patterns = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	ok, err := run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config) (ok bool, err error) {
	if os.Geteuid() != 0 {
		return false, errors.New("the tests make network namespaces and load BPF programs; run 'sudo make test'")
	}
	allowed, err := readSkips(cfg.skips)
	if err != nil {
		return false, err
	}
	// Before the sandbox, where there is no network: this fetches what the tests import.
	all, err := listPackages(ctx, cfg.patterns)
	if err != nil {
		return false, err
	}
	box, err := enterSandbox()
	if err != nil {
		return false, err
	}
	defer box.close()
	before, err := box.traces()
	if err != nil {
		return false, err
	}

	start := time.Now()
	t := newTally(os.Stdout, all.prefix)
	for _, phase := range phases(cfg, all) {
		if len(phase.packages) == 0 {
			continue
		}
		fmt.Printf("== %s: %d packages\n", phase.name, len(phase.packages))
		if err := phase.run(ctx, box, t); err != nil {
			return false, err
		}
	}

	left, err := box.left(ctx, before)
	if err != nil {
		return false, err
	}
	t.leftBehind(left)
	t.listNotRun()
	t.judgeSkips(allowed, cfg.strict)
	fmt.Printf("== took %v\n", time.Since(start).Round(time.Second))
	return t.summary(), nil
}

// phase is one `go test`.
type phase struct {
	name     string
	packages []string
	flags    []string
	env      []string
}

// phases: plain code may use all CPUs and is tried for races; what works on namespaces and programs runs one
// package at a time, so that counts and times are not disturbed, and is built as it is shipped, without cgo.
func phases(cfg config, all *packages) []phase {
	common := []string{"-count=1", "-timeout=" + cfg.timeout.String()}
	plain := phase{name: "plain packages", packages: all.plain, flags: common, env: []string{"CGO_ENABLED=0"}}
	if cfg.race {
		plain.flags = append([]string{"-race"}, common...)
		plain.env = []string{"CGO_ENABLED=1"}
	}
	return []phase{plain, {
		name: "packages that use the kernel", packages: all.kernel,
		flags: append([]string{"-p=1"}, common...), env: []string{"CGO_ENABLED=0"},
	}}
}

// run feeds what the tests say to the tally. That tests fail is no error: the tally knows.
func (p phase) run(ctx context.Context, box *sandbox, t *tally) error {
	args := append(append([]string{"test", "-json"}, p.flags...), p.packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(append(os.Environ(), box.env()...), p.env...)
	cmd.Stderr = os.Stderr
	// A chance to end its children, which a kill would orphan.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read from go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	readErr := t.read(out)
	// Wait also when reading failed, and let go test write what it has.
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case readErr != nil:
		return readErr
	case errors.As(err, &exit) && t.failed > 0:
		return nil
	case err != nil:
		return fmt.Errorf("go %s: %w", strings.Join(args[:3], " "), err)
	}
	return nil
}
