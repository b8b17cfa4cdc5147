package vm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMarkingOnOlderKernel: PDM is marked, read and removed as on a new kernel.
func TestMarkingOnOlderKernel(t *testing.T) {
	t.Parallel() // a machine mostly keeps one processor busy
	report := Run(t, Machine{
		Kernel: olderKernel(), CPUs: 2, Memory: 1536, Timeout: 14 * time.Minute,
		Files: map[string]string{
			"/bin/pdm.test":      BuildTest(t, "../../internal/inband/pdm"),
			"/bin/headroom.test": BuildTest(t, "../../internal/inband/headroom"),
		},
		Cmds: []Cmd{
			{Args: []string{
				"/bin/pdm.test", "-test.v", "-test.run",
				// The programs, routes' MTU, growing and shrinking bursts: what the kernel has a part in.
				`TestGoldenExchange|TestMarkMTU|TestBudget|TestStrippedTraffic/offloads_true|` +
					`TestMarkedBursts/packets:false_segment:1000_offloads:(true_checksum:true_options:0|false_checksum:true)|` +
					`TestMarkedTrafficThroughRouters/MTU_1400,_packets_false`,
			}},
			{Args: []string{"/bin/headroom.test", "-test.v"}},
		},
	})
	for i, name := range []string{"pdm", "headroom"} {
		r := report.Results[i]
		if r.ExitCode != 0 || !strings.Contains(r.Stdout, "--- PASS") {
			t.Errorf("tests of %s on %s ended with %d:\n%s%s", name, report.Release, r.ExitCode, r.Stdout, r.Stderr)
		}
		t.Logf("%s on %s: %d tests passed in %v, of %v in all; longest: %s",
			name, report.Release, strings.Count(r.Stdout, "--- PASS"), r.Took, report.Took, longest(r.Stdout))
	}
}

// longest are the tests that took most of the time, by the output of -test.v.
func longest(stdout string) string {
	type took struct {
		name    string
		seconds float64
	}
	var all []took
	for line := range strings.Lines(stdout) {
		var one took
		if _, err := fmt.Sscanf(line, "--- PASS: %s (%fs)", &one.name, &one.seconds); err == nil {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
	var out []string
	for _, one := range all[:min(5, len(all))] {
		out = append(out, fmt.Sprintf("%s %.0f s", one.name, one.seconds))
	}
	return strings.Join(out, ", ")
}
