// Command runner runs the project's tests and accounts for every one of them.
//
// Input: package patterns, as `go test` takes them, and the list of allowed skips. Output: a line for each package with its
// CPU time, failures in full, each skip with its reason, what the tests left behind, and a closing line "N passed, N failed,
// N skipped"; the exit code is 1 when something failed, was left, or, in CI, was skipped without permission.
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
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

type config struct {
	// skips is the file of allowed skips; strict makes any other skip a failure.
	skips  string
	strict bool
	// race is for packages that start goroutines and do not use the kernel.
	race bool
	// alone: nothing else on this machine loads BPF programs.
	alone bool
	// timeout is for the tests of one package.
	timeout  time.Duration
	patterns []string
}

// The main goroutine stays on the process's first thread: that one enters the sandbox, and what it starts is inside.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) > 2 && os.Args[1] == measureVerb {
		os.Exit(measure(os.Args[2:]))
	}
	var cfg config
	flag.StringVar(&cfg.skips, "skips", "", "file of the skips that are fine, with their reasons")
	flag.BoolVar(&cfg.strict, "strict", os.Getenv("CI") == "true", "fail on a skip that -skips does not allow")
	flag.BoolVar(&cfg.race, "race", true, "use the race detector where code starts goroutines and tests do not use the kernel")
	flag.BoolVar(&cfg.alone, "alone", true, "look for BPF programs that no sandbox holds, and that other tests on this machine could have loaded")
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
	machine := machineTraces(cfg.alone)
	before, err := machine()
	if err != nil {
		return false, err
	}

	start := time.Now()
	t := newTally(os.Stdout, all.prefix)
	// Started here, on the thread that is in the sandbox.
	var running []func() error
	for _, lane := range lanes(cfg, all) {
		if len(lane.packages) == 0 {
			continue
		}
		fmt.Printf("== %s: %d packages\n", lane.name, len(lane.packages))
		running = append(running, lane.start(ctx, box, t))
	}
	var failed []error
	for _, wait := range running {
		failed = append(failed, wait())
	}
	if err := errors.Join(failed...); err != nil {
		// A go test that is killed leaves its tests.
		_, endErr := endOrphans(context.WithoutCancel(ctx))
		return false, errors.Join(err, endErr)
	}

	// Of a package that was killed, or what its sandbox did not hold.
	list, err := left(ctx, before, machine)
	if err != nil {
		return false, err
	}
	t.leftBehind(list)
	t.listNotRun()
	t.judgeSkips(allowed, cfg.strict)
	fmt.Printf("== took %v; %v\n", time.Since(start).Round(time.Second), t.used)
	return t.summary(), nil
}

// lane is one `go test`, alongside the others.
type lane struct {
	name     string
	packages []string
	flags    []string
	env      []string
	nice     int // what it leaves to lanes with less
}

// lanes: what works on namespaces and programs comes before all others, so that counts and times are disturbed little,
// and is built as it is shipped, without cgo. Its packages mostly wait, so some run at a time. Plain code may use all CPUs; where it
// starts goroutines, the race detector looks at it. Emulated machines yield no more than that: they take as long as all else.
func lanes(cfg config, all *packages) []lane {
	// make lint vets. Without symbols, linking takes half as long. What decides how packages are compiled is in GOFLAGS.
	common := []string{"-count=1", "-vet=off", "-ldflags=-s", "-timeout=" + cfg.timeout.String()}
	atATime := func(n int) []string { return append([]string{"-p=" + strconv.Itoa(n)}, common...) }
	static := []string{"CGO_ENABLED=0"}
	list := []lane{
		{name: "packages that use the kernel", packages: all.kernel, flags: atATime(runtime.NumCPU() + 1), env: static},
		{name: "plain packages", packages: all.plain, flags: common, env: static, nice: 5},
		{name: "packages with goroutines", packages: all.concurrent, flags: common, env: static, nice: 5},
		{name: "packages that boot machines", packages: all.machines, flags: atATime(1), env: static, nice: 5},
	}
	if race := &list[2]; cfg.race {
		race.flags = append([]string{"-race"}, common...)
		// Races are reported when they occur; by default a process then waits for a second before it ends.
		race.env = []string{"CGO_ENABLED=1", "GORACE=atexit_sleep_ms=0"}
	}
	return list
}

// linkerGOGC has compilers and linkers collect garbage rarely: a link takes a third less CPU time, and some MB more.
const linkerGOGC = "GOGC=800"

// testGOGC does the same for tests: up to a fifth less. The agents of test/e2e do without; limits of memory that other tests
// check have to hold with more garbage, too.
const testGOGC = "GOGC=400"

// start feeds what the tests say to the tally, until wait returns. That tests fail is no error: the tally knows.
func (l lane) start(ctx context.Context, box *sandbox, t *tally) (wait func() error) {
	self, err := os.Executable()
	if err != nil {
		return func() error { return fmt.Errorf("find the runner's own file: %w", err) }
	}
	args := append([]string{"-n", strconv.Itoa(l.nice), "go", "test", "-json", "-exec", self + " " + measureVerb}, l.flags...)
	cmd := exec.CommandContext(ctx, "nice", append(args, l.packages...)...)
	cmd.Env = append(append(box.env(), l.env...), linkerGOGC)
	cmd.Stderr = os.Stderr
	// It waits for its tests, which end with an interrupt from a terminal; otherwise it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return func() error { return fmt.Errorf("start go test: %w", err) }
	}
	ended := make(chan error, 1)
	go func() { ended <- l.follow(ctx, cmd, out, t) }()
	return func() error { return <-ended }
}

// follow reads what go test writes, to its end.
func (l lane) follow(ctx context.Context, cmd *exec.Cmd, out io.Reader, t *tally) error {
	tests, readErr := t.read(out)
	// Wait also when reading failed, and let go test write what it has.
	_, _ = io.Copy(io.Discard, out)
	err := cmd.Wait()
	t.laneEnded(l.name, cpuTimeOf(cmd.ProcessState), tests)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case readErr != nil:
		return readErr
	case errors.As(err, &exit) && t.anyFailed():
		return nil
	case err != nil:
		return fmt.Errorf("go test, %s: %w", l.name, err)
	}
	return nil
}
