package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	Key, Value  string // of an attribute (testing.T.Attr)
	ImportPath  string // of build-output
	FailedBuild string // the ImportPath that made a package fail
}

// tally counts tests and tells a person what became of them. A test with subtests counts through them.
type tally struct {
	mu                      sync.Mutex // of read: several go tests run at a time
	w                       io.Writer
	prefix                  string
	passed, failed, skipped int
	// left: some package left something behind.
	left    bool
	skips   []skippedTest
	notRun  []skippedTest // cases in tables, which their test could not run
	running map[string]*packageState
	// builds has what the compiler said, by import path.
	builds map[string]*strings.Builder
	// used by all lanes that have ended.
	used cpuTime
}

// notRunKey is the attribute in which a test names the cases of a table that its hook or machine cannot run.
const notRunKey = "not-run"

type skippedTest struct{ name, reason string }

type packageState struct {
	output                  strings.Builder
	tests                   map[string]*testState
	order                   []*testState
	passed, failed, skipped int
	used                    cpuTime
	// left is what the package's tests did not clean up.
	left []string
}

type testState struct {
	name, action string
	output       []string
	// ran: a subtest's name may hold a "/" of its own, and then no test has the name before it.
	ran bool
	// parent has subtests, failedBelow one that failed.
	parent, failedBelow bool
}

func newTally(w io.Writer, prefix string) *tally {
	return &tally{w: w, prefix: prefix, running: map[string]*packageState{}, builds: map[string]*strings.Builder{}}
}

// read takes all events of one `go test -json`, and returns what its test binaries used.
func (t *tally) read(r io.Reader) (tests cpuTime, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	seen := map[string]bool{}
	for lines.Scan() {
		var ev event
		err = json.Unmarshal(lines.Bytes(), &ev)
		t.mu.Lock()
		if err != nil {
			// Not an event: the go command speaks for itself.
			fmt.Fprintln(t.w, lines.Text())
		} else {
			seen[ev.Package] = true
			if used, ok := readCPU(ev.Output); ok {
				tests = tests.plus(used)
				t.packageOf(ev).used = used
			} else if trace, ok := readLeft(ev.Output); ok {
				p := t.packageOf(ev)
				p.left = append(p.left, trace)
			} else {
				t.add(ev)
			}
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := lines.Err(); err != nil {
		return tests, fmt.Errorf("read the events of go test: %w", err)
	}
	// A go test that was killed does not end its packages.
	for pkg := range seen {
		if t.running[pkg] != nil {
			t.endPackage(event{Action: "fail", Package: pkg})
		}
	}
	return tests, nil
}

// laneEnded reports what a lane used, of which its test binaries used a part; the rest compiled and linked them.
func (t *tally) laneEnded(name string, all, tests cpuTime) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = t.used.plus(all)
	fmt.Fprintf(t.w, "== %s: %v; to build them: %v\n", name, tests, all.minus(tests))
}

func (t *tally) anyFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed > 0
}

func (t *tally) add(ev event) {
	if ev.Action == "build-output" {
		if t.builds[ev.ImportPath] == nil {
			t.builds[ev.ImportPath] = &strings.Builder{}
		}
		t.builds[ev.ImportPath].WriteString(ev.Output)
		return
	}
	if ev.Package == "" {
		return
	}
	p := t.packageOf(ev)
	ended := ev.Action == "pass" || ev.Action == "fail" || ev.Action == "skip"
	switch {
	case ev.Test == "" && ended:
		t.endPackage(ev)
	case ev.Test == "" && ev.Action == "output":
		p.output.WriteString(ev.Output)
	case ev.Test != "" && ended:
		p.test(ev.Test).action = ev.Action
	case ev.Test != "" && ev.Action == "output":
		s := p.test(ev.Test)
		s.output = append(s.output, ev.Output)
	case ev.Action == "attr" && ev.Key == notRunKey:
		t.notRun = append(t.notRun, skippedTest{strings.TrimPrefix(ev.Package, t.prefix) + "." + ev.Test, ev.Value})
	case ev.Test != "" && ev.Action == "run":
		p.test(ev.Test).ran = true
	}
}

// packageOf finds the state of an event's package, or makes it.
func (t *tally) packageOf(ev event) *packageState {
	p := t.running[ev.Package]
	if p == nil {
		p = &packageState{tests: map[string]*testState{}}
		t.running[ev.Package] = p
	}
	return p
}

// test finds a test's state, or makes it and tells its parents.
func (p *packageState) test(name string) *testState {
	s := p.tests[name]
	if s == nil {
		s = &testState{name: name}
		p.tests[name] = s
		p.order = append(p.order, s)
		if i := strings.LastIndex(name, "/"); i > 0 {
			p.test(name[:i]).parent = true
		}
	}
	return s
}

func (t *tally) endPackage(ev event) {
	p := t.running[ev.Package]
	delete(t.running, ev.Package)
	name := strings.TrimPrefix(ev.Package, t.prefix)
	for _, s := range p.order {
		if s.ran && s.action == "" {
			// It never ended: a panic, a timeout, an os.Exit.
			s.action = "fail"
		}
		if s.action == "fail" {
			for i := strings.LastIndex(s.name, "/"); i > 0; i = strings.LastIndex(s.name[:i], "/") {
				p.tests[s.name[:i]].failedBelow = true
			}
		}
	}
	for _, s := range p.order {
		t.count(p, name, s)
	}
	if ev.Action == "fail" && p.failed == 0 {
		// No test is to blame: it did not compile, or TestMain failed.
		p.failed++
		fmt.Fprintf(t.w, "--- FAIL: %s\n", name)
		if b := t.builds[ev.FailedBuild]; b != nil {
			fmt.Fprint(t.w, b.String())
		}
		fmt.Fprint(t.w, p.output.String())
	}
	if len(p.left) > 0 {
		p.failed++
		t.left = true
		t.printLeft(name+" left", p.left)
	}
	t.passed += p.passed
	t.failed += p.failed
	t.skipped += p.skipped
	t.packageLine(ev, name, p)
}

func (t *tally) count(p *packageState, pkg string, s *testState) {
	switch {
	case !s.ran:
	case s.action == "fail":
		// Parents' own lines matter too; but one failure counts once.
		if !s.failedBelow {
			p.failed++
		}
		fmt.Fprintf(t.w, "--- %s.%s\n%s", pkg, s.name, strings.Join(s.output, ""))
	case s.parent:
	case s.action == "skip":
		p.skipped++
		t.skips = append(t.skips, skippedTest{pkg + "." + s.name, skipReason(s.output)})
	default:
		p.passed++
	}
}

func (t *tally) packageLine(ev event, name string, p *packageState) {
	word := "ok  "
	if p.failed > 0 {
		word = "FAIL"
	}
	took := time.Duration(ev.Elapsed * float64(time.Second)).Round(10 * time.Millisecond)
	fmt.Fprintf(t.w, "%s %-32s %8v  CPU %5.1f + %4.1f s  %d passed", word, name, took, p.used.user.Seconds(), p.used.system.Seconds(), p.passed)
	if p.failed > 0 {
		fmt.Fprintf(t.w, ", %d failed", p.failed)
	}
	if p.skipped > 0 {
		fmt.Fprintf(t.w, ", %d skipped", p.skipped)
	}
	fmt.Fprintln(t.w)
}

// skipReason is what the test said, without the lines that go test adds.
func skipReason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- SKIP: ") {
			continue
		}
		// "file_test.go:12: " in front
		if at, text, ok := strings.Cut(line, ": "); ok && strings.Contains(at, "_test.go:") {
			line = text
		}
		said = append(said, line)
	}
	return strings.Join(said, " ")
}

// leftBehind counts as one more test: that nothing was, neither by a package nor, in the list, by one that nobody knows.
func (t *tally) leftBehind(list []string) {
	switch {
	case len(list) > 0:
		t.failed++
		t.printLeft("some package left", list)
	case !t.left:
		t.passed++
		fmt.Fprintln(t.w, "== the tests left nothing behind: no namespace, link, program, pin, setting, process or file")
	}
}

func (t *tally) printLeft(who string, list []string) {
	fmt.Fprintf(t.w, "--- FAIL: %s behind\n", who)
	for _, trace := range list {
		fmt.Fprintln(t.w, "   ", trace)
	}
}

// listNotRun names the cases that no test ran at some hook.
func (t *tally) listNotRun() {
	if len(t.notRun) > 0 {
		fmt.Fprintln(t.w, "== cases of tables that could not run")
	}
	for _, n := range t.notRun {
		fmt.Fprintf(t.w, "    %s: %s\n", n.name, n.reason)
	}
}

// judgeSkips lists every skip; where strict, one without leave fails.
func (t *tally) judgeSkips(allowed []skip, strict bool) {
	if len(t.skips) > 0 {
		fmt.Fprintln(t.w, "== skipped")
	}
	for _, s := range t.skips {
		reason := s.reason
		if reason == "" {
			reason = "no reason given"
		}
		why, ok := leave(allowed, s.name)
		switch {
		case ok:
			fmt.Fprintf(t.w, "    %s: %s (allowed: %s)\n", s.name, reason, why)
		case strict:
			t.failed++
			fmt.Fprintf(t.w, "--- FAIL: %s was skipped without leave: %s\n", s.name, reason)
		default:
			fmt.Fprintf(t.w, "    %s: %s (not allowed in CI)\n", s.name, reason)
		}
	}
}

// summary is the last line, and whether all is well. That no test ran is not.
func (t *tally) summary() bool {
	fmt.Fprintf(t.w, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed == 0 && t.passed > 0
}
