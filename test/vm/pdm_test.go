package vm

import (
	"strings"
	"testing"
	"time"
)

// TestMarkingOnOlderKernel: PDM is marked, read and taken out as on a new kernel.
func TestMarkingOnOlderKernel(t *testing.T) {
	report := Run(t, Machine{
		Kernel: olderKernel(), CPUs: 2, Memory: 1536, Timeout: 14 * time.Minute,
		Files: map[string]string{
			"/bin/pdm.test":      BuildTest(t, "../../internal/inband/pdm"),
			"/bin/headroom.test": BuildTest(t, "../../internal/inband/headroom"),
		},
		Cmds: []Cmd{
			{Args: []string{
				"/bin/pdm.test", "-test.v", "-test.run",
				"TestGolden|TestMarkChains|TestMarkMTU|TestPolicyNames|TestPingIsAFlow|TestLifetime|TestBudget|" +
					"TestStrippedTraffic|TestMarkedBursts|TestMarkedTrafficThroughRouters",
			}},
			{Args: []string{"/bin/headroom.test", "-test.v"}},
		},
	})
	for i, name := range []string{"pdm", "headroom"} {
		r := report.Results[i]
		if r.ExitCode != 0 || !strings.Contains(r.Stdout, "--- PASS") {
			t.Errorf("tests of %s on %s ended with %d:\n%s%s", name, report.Release, r.ExitCode, r.Stdout, r.Stderr)
		}
		t.Logf("%s on %s: %d tests passed in %v", name, report.Release, strings.Count(r.Stdout, "--- PASS"), r.Took)
	}
}
