package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/await"
)

// The runner as a whole, on a module that holds one package of each kind.
func TestRunner(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const clean = "the tests left nothing behind"
	for _, tc := range []struct {
		name string
		args []string
		exit int
		// last is the closing line; says are parts of what comes before it, hides must not be there.
		last        string
		says, hides []string
	}{
		{
			name: "passes", args: []string{"./passes"},
			last: "4 passed, 0 failed, 0 skipped", says: []string{
				clean, "3 passed", "passes.TestSubtests: no such frames: 2 cases: a, b",
				"== plain packages: CPU ", "; to build them: CPU ",
			},
		},
		{
			name: "fails", args: []string{"-strict", "./fails", "./broken", "./panics", "./skips", "./leaves", "./passes"},
			exit: 1, last: "8 passed, 6 failed, 1 skipped",
			says: []string{
				"FAIL fails", "the reason it failed", "failed alongside its subtests",
				"FAIL broken", "undefined: undefinedFunction",
				"FAIL panics", "out of cheese", "panics_test.go:7",
				"ok   skips", "FAIL: skips.TestSkipped was skipped without leave: no such hardware",
				"ok   passes",
				"FAIL: leaves left behind",
				"FAIL leaves",
				"sleep 3600",
				"mount /run/netns/left-namespace of nsfs",
				"link left0",
				"qdisc clsact on lo",
				"sysctl net.ipv4.ip_forward = 1",
				"file /run/left-run",
				"/left-tmp",
				"pin /sys/fs/bpf/left-pins",
			},
			hides: []string{"TestParent/good", cpuMark, leftMark, clean, "sysctl net.ipv4.conf.left0", "some package"},
		},
		{
			name: "no such package", args: []string{"./missing"},
			exit: 1, says: []string{"directory not found"},
		},
		{
			name: "no such file of skips", args: []string{"-skips=missing", "./passes"},
			exit: 1, says: []string{"read the allowed skips: open missing"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := hostState(t)
			cmd := exec.Command(self, append([]string{runVerb, "-race=false", "-alone=false"}, tc.args...)...)
			cmd.Dir = "testdata/module"
			raw, err := cmd.CombinedOutput()
			out := strings.TrimSpace(string(raw))
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tc.exit {
				t.Errorf("exit code %d, want %d", code, tc.exit)
			}
			if tc.last != "" && out[strings.LastIndex(out, "\n")+1:] != tc.last {
				t.Errorf("the last line is not %q", tc.last)
			}
			for _, s := range tc.says {
				if !strings.Contains(out, s) {
					t.Errorf("nothing says %q", s)
				}
			}
			for _, s := range tc.hides {
				if strings.Contains(out, s) {
					t.Errorf("something says %q", s)
				}
			}
			if after := hostState(t); after != before {
				t.Errorf("outside the sandbox there was\n%s\nand now is\n%s", before, after)
			}
			if t.Failed() {
				t.Logf("all that it said:\n%s", out)
			}
		})
	}
}

// A run that is ended takes its tests along, and what they started.
func TestEnded(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command(self, runVerb, "-race=false", "-alone=false", "./hangs")
	cmd.Dir = "testdata/module"
	cmd.Env = append(os.Environ(), "HANGS="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	await.True(t, "the test's process", func() bool {
		text, err := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d that a test started is still there: %v", pid, err)
	}
}

// What a test binary's children used counts as well, and its exit code and streams are passed on.
func TestMeasure(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, measureVerb, "sh", "-c", `echo out; sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; exit 3`)
	out, err := cmd.Output()
	lines := strings.Split(string(out), "\n")
	used, ok := readCPU(lines[1])
	if lines[0] != "out" || !ok || used.user < time.Millisecond || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%v %q %v", err, lines, used)
	}
}

// runVerb makes the test binary the runner.
const runVerb = "run"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == measureVerb {
		os.Exit(measure(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == runVerb {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A package is in the lane of what its tests import, directly or not.
func TestPackagesOfLanes(t *testing.T) {
	const module = "github.com/waymark-net/waymark/"
	got, err := listPackages(t.Context(), []string{
		module + "internal/flow", module + "internal/pipeline", module + "internal/lab/wire", module + "test/vm",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &packages{
		prefix: module, plain: []string{module + "internal/flow"}, concurrent: []string{module + "internal/pipeline"},
		kernel: []string{module + "internal/lab/wire"}, machines: []string{module + "test/vm"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Long ones start first, and each of them is there.
	sorted := []string{module + "a", module + "internal/bench", module + "b", module + "test/e2e"}
	longestFirst(module, sorted)
	if want := []string{module + "test/e2e", module + "internal/bench", module + "a", module + "b"}; !slices.Equal(sorted, want) {
		t.Errorf("order %q, want %q", sorted, want)
	}
	for _, folder := range longest {
		if _, err := os.Stat("../../" + folder); err != nil {
			t.Errorf("a long package: %v", err)
		}
	}
	for _, l := range lanes(config{race: true}, got) {
		first, race := l.packages[0] == want.kernel[0], l.packages[0] == want.concurrent[0]
		if len(l.packages) != 1 || (l.nice == 0) != first || slices.Contains(l.flags, "-race") != race {
			t.Errorf("%+v", l)
		}
	}
}

// hostState is what the package "leaves" touches, as it is outside the runner's sandbox.
func hostState(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `
		cat /proc/sys/net/ipv4/ip_forward
		ip -br link show type veth | grep left
		ls -d /run/left-run /run/netns/left-* /sys/fs/bpf/left-* "${TMPDIR:-/tmp}"/left-* 2>&1
		tc qdisc show dev lo`).CombinedOutput()
	if err != nil {
		t.Fatalf("look at the host: %v\n%s", err, out)
	}
	return string(out)
}

// A skip is always listed, and fails only where nobody allowed it and that matters.
func TestJudgeSkips(t *testing.T) {
	allowed := []skip{{"skips.TestSk*", "hardware that few have"}}
	for _, tc := range []struct {
		allowed []skip
		strict  bool
		says    string
		failed  int
	}{
		{strict: false, says: "    skips.TestSkipped: no such hardware (not allowed in CI)\n"},
		{strict: true, says: "--- FAIL: skips.TestSkipped was skipped without leave: no such hardware\n", failed: 1},
		{strict: true, allowed: allowed, says: "    skips.TestSkipped: no such hardware (allowed: hardware that few have)\n"},
	} {
		var out strings.Builder
		tally := newTally(&out, "")
		tally.skips = []skippedTest{{"skips.TestSkipped", "no such hardware"}}
		tally.judgeSkips(tc.allowed, tc.strict)
		if want := "== skipped\n" + tc.says; out.String() != want || tally.failed != tc.failed {
			t.Errorf("it said %q, want %q; %d failed, want %d", out.String(), want, tally.failed, tc.failed)
		}
	}
}

func TestReadSkips(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		want       int
		err        string
	}{
		{name: "empty", file: "\n# a comment\n  \n"},
		{name: "two", file: "a.TestX why\nb.Test*/sub  because\n", want: 2},
		{name: "no reason", file: "\na.TestX\n", err: `:2: "a.TestX" is allowed without a reason`},
		{name: "bad pattern", file: "a.Test[ why\n", err: `:1: pattern "a.Test[": syntax error in pattern`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "skips")
			if err := os.WriteFile(file, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readSkips(file)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error is %v, want %q", err, tc.err)
			}
			if len(got) != tc.want {
				t.Errorf("%d entries, want %d: %v", len(got), tc.want, got)
			}
		})
	}
}

// The list that `make test` uses holds to its own form, and each pattern names a test that there is.
func TestProjectsSkips(t *testing.T) {
	list, err := readSkips("../skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		folder, name, ok := strings.Cut(s.pattern, ".")
		if !ok {
			t.Errorf("%q is not of the form folder.TestName", s.pattern)
			continue
		}
		function, _, _ := strings.Cut(name, "/")
		declared := regexp.MustCompile(`(?m)^func ` + strings.ReplaceAll(regexp.QuoteMeta(function), `\*`, `\w*`) + `\(`)
		files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || declared.Match(raw)
		}
		if !found {
			t.Errorf("%q is allowed to be skipped, but there is no such test", s.pattern)
		}
	}
}
