package vm

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/built"
)

// olderKernel is VM_KERNEL, or the oldest kernel that scripts/fetch-kernel knows.
func olderKernel() string { return cmp.Or(os.Getenv("VM_KERNEL"), "6.1") }

// TestWaymarkOnOlderKernel: without TCX the agent attaches by clsact, reports that, and counts as exactly. What does not
// depend on the kernel is left to the host's: loading a program takes seconds here.
func TestWaymarkOnOlderKernel(t *testing.T) {
	t.Parallel()
	mode, clsact := "tcx", "false"
	if olderKernel() == "6.1" {
		mode, clsact = "clsact", "true"
	}
	report := Run(t, Machine{
		Kernel: olderKernel(), CPUs: 2, Memory: 1536, Timeout: 14 * time.Minute,
		Files: map[string]string{
			"/bin/waymark":       built.Waymark(t),
			"/bin/datapath.test": BuildTest(t, "../../internal/datapath"),
			"/bin/agent.test":    BuildTest(t, "../../internal/agent"),
			"/bin/ioam.test":     BuildTest(t, "../../internal/inband/ioam"),
		},
		Cmds: []Cmd{
			{Args: []string{"/bin/waymark", "doctor"}},
			{Args: []string{
				"/bin/datapath.test", "-test.v", "-exact.scale=0.02",
				"-test.run", "TestExact$|TestCases$/counted|TestClsact|TestKilledProbe/clsact_" + clsact + "|TestInterfaceVanishes",
			}},
			{Args: []string{"/bin/agent.test", "-test.v", "-test.run", "TestTransfer/ebpf"}},
			{Args: []string{"/bin/ioam.test", "-test.v", "-test.run", "TestPrograms$|TestTransit$/overflow"}},
		},
	})
	if !strings.HasPrefix(report.Release, olderKernel()+".") || report.CPUs != 2 {
		t.Errorf("release %q with %d CPUs, want %s.* and 2", report.Release, report.CPUs, olderKernel())
	}
	doctor, datapath, agent, ioam := report.Results[0], report.Results[1], report.Results[2], report.Results[3]
	if doctor.ExitCode != 0 || strings.Contains(doctor.Stdout, "clsact filters, which the next agent removes") != (mode == "clsact") {
		t.Errorf("doctor ended with %d:\n%s%s", doctor.ExitCode, doctor.Stdout, doctor.Stderr)
	}
	for name, r := range map[string]Result{"datapath": datapath, "agent": agent, "ioam": ioam} {
		if r.ExitCode != 0 || !strings.Contains(r.Stdout, "--- PASS") {
			t.Errorf("tests of %s on %s ended with %d:\n%s%s", name, report.Release, r.ExitCode, r.Stdout, r.Stderr)
		}
		t.Logf("%s on %s: %d tests passed in %v, of %v in all; longest: %s",
			name, report.Release, strings.Count(r.Stdout, "--- PASS"), r.Took, report.Took, longest(r.Stdout))
	}
	if !strings.Contains(agent.Stdout, "mode="+mode) {
		t.Errorf("the agent did not attach by %s:\n%s", mode, agent.Stdout)
	}
}
