package datapath_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/golden"
)

// compareCosts compares with the golden file, where that was made by the same kernel and compiler.
func compareCosts(t *testing.T, got string) {
	t.Helper()
	environment := costEnvironment(t)
	header := fmt.Sprintf(`# What the verifier does to load each program, and the instructions that a packet of a known flow takes at a hook over
# those of an empty program, calls of helpers included as one each. TestCost compares; make golden writes it again.
# %s
`, environment)
	if recorded, err := os.ReadFile(goldenCosts); err == nil && !*golden.Update {
		lines := strings.Split(string(recorded), "\n")
		if len(lines) > 2 && lines[2] != "# "+environment {
			t.Skipf("%s is of %s, this is %s: instructions are not compared", goldenCosts, strings.TrimPrefix(lines[2], "# "), environment)
		}
	}
	golden.Check(t, goldenCosts, header+got)
}

// costEnvironment is what translated instructions depend on in addition to the source.
func costEnvironment(t *testing.T) string {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	release := strings.SplitN(unix.ByteSliceToString(uts.Release[:]), ".", 3)
	clang := "unknown"
	if out, err := exec.Command("clang-19", "--version").Output(); err == nil {
		clang = regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(out))
	}
	return fmt.Sprintf("Linux %s %s, %d CPUs, clang %s",
		strings.Join(release[:2], "."), unix.ByteSliceToString(uts.Machine[:]), runtime.NumCPU(), clang)
}
