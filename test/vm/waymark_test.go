package vm

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/built"
)

// olderKernel is VM_KERNEL, or the oldest kernel that scripts/fetch-kernel knows.
func olderKernel() string { return cmp.Or(os.Getenv("VM_KERNEL"), "6.1") }

// TestWaymarkOnOlderKernel: without TCX the agent attaches by clsact, reports that, and counts as exactly; PDM and
// IOAM do as on a new kernel. What does not depend on the kernel is left to the host's: loading a program takes seconds
// here. One machine, one test after the other.
func TestWaymarkOnOlderKernel(t *testing.T) {
	mode, clsact := "tcx", "false"
	if olderKernel() == "6.1" {
		mode, clsact = "clsact", "true"
	}
	suites := []struct{ name, folder, run string }{
		{"datapath", "internal/datapath", "TestExact$|TestCases$/counted/tunnels_(0|1e)$|TestClsact|(TestKilledProbe|TestInterfaceVanishes)/clsact_" + clsact},
		{"agent", "internal/agent", "TestTransfer/ebpf"},
		{"ioam", "internal/inband/ioam", "TestPrograms$/of_agents|TestTransit$/posix/overflow"},
		// Routes' MTU, growing and shrinking bursts.
		{"pdm", "internal/inband/pdm", `TestMarkMTU|TestStrippedTraffic/offloads_true|` +
			`TestMarkedBursts/packets:false_segment:1000_offloads:(true_checksum:true_options:0|false_checksum:true)|` +
			`TestMarkedTrafficThroughRouters/MTU_1400,_packets_false`},
		// What the kernel takes and gives back; the journal, and what agents agree on, is user space.
		{"headroom", "internal/inband/headroom", "TestReserveAndRestore|TestRoutes|TestMoved|TestKilledAgent"},
		{"gate", "internal/gate", "TestKernelDecidesAsRules"},
		{"hints", "internal/hints", "TestExamine$|TestUnboundTwin"},
		{"ladder", "internal/hints/service", "TestLadder|TestMetadata/never/time:true|TestMetadataGeneric"},
		{"e2e", "test/e2e", "TestGateLadder"}, // pins, and programs of others
	}
	forwards := olderKernel() != "6.1" // forward takes Linux 6.3
	if forwards {
		suites = append(suites, struct{ name, folder, run string }{"forward", "internal/forward", "TestTwin$/VLAN|TestTwin$/^a_|TestConnectionsBetweenVLANs|TestFlowTables|TestTranslatedConnections"})
	}
	m := Machine{
		Kernel: olderKernel(), CPUs: 2, Memory: 1536, Timeout: 25 * time.Minute,
		Modules: append(slices.Clone(DefaultModules), "ifb", "bridge"), // of drivers without XDP
		Files:   map[string]string{"/bin/waymark": built.Waymark(t)},
		Cmds:    []Cmd{{Args: []string{"/bin/waymark", "doctor"}}},
	}
	if forwards {
		m.Modules = append(m.Modules, "vrf", "nf_flow_table_inet", "nft_flow_offload", "nft_chain_nat", "nft_nat", "nft_ct")
		for _, name := range []string{"ip", "bridge", "sysctl", "nft"} {
			Program(t, m.Files, name)
		}
	}
	for _, s := range suites {
		binary := "/bin/" + s.name + ".test"
		m.Files[binary] = BuildTest(t, "../../"+s.folder)
		args := []string{binary, "-test.v", "-test.run", s.run}
		if s.name == "datapath" {
			args = append(args, "-exact.scale=0.02")
		}
		if s.name == "forward" {
			args = append(args, "-test.short")
		}
		if s.name == "gate" {
			args = append(args, "-rapid.checks=10")
		}
		m.Cmds = append(m.Cmds, Cmd{Args: args, Env: []string{
			// Emulated, collecting garbage takes a tenth of the time, and so do threads that look for work; the limit has garbage
			// collected before memory is short.
			"E2E_BINARY=/bin/waymark", "GOGC=off", "GOMEMLIMIT=300MiB", "GOMAXPROCS=1",
		}})
	}
	report := Run(t, m)
	if !strings.HasPrefix(report.Release, olderKernel()+".") || report.CPUs != 2 {
		t.Errorf("release %q with %d CPUs, want %s.* and 2", report.Release, report.CPUs, olderKernel())
	}
	doctor := report.Results[0]
	if doctor.ExitCode != 0 || strings.Contains(doctor.Stdout, "clsact filters, which the next agent removes") != (mode == "clsact") {
		t.Errorf("doctor ended with %d:\n%s%s", doctor.ExitCode, doctor.Stdout, doctor.Stderr)
	}
	ran := doctor.Took
	for i, s := range suites {
		r := report.Results[i+1]
		ran += r.Took
		if r.ExitCode != 0 || !strings.Contains(r.Stdout, "--- PASS") {
			t.Errorf("tests of %s on %s ended with %d:\n%s%s", s.name, report.Release, r.ExitCode, r.Stdout, r.Stderr)
		}
		if s.name == "agent" && !strings.Contains(r.Stdout, "mode="+mode) {
			t.Errorf("the agent did not attach by %s:\n%s", mode, r.Stdout)
		}
		t.Logf("%s on %s: %d tests passed in %v, of %v in all; longest: %s",
			s.name, report.Release, strings.Count(r.Stdout, "--- PASS"), r.Took, report.Took, longest(r.Stdout))
	}
	// With a clock that runs too fast, what is on its way for long counts as lost.
	if ran > report.Took {
		t.Errorf("by the machine's clock, tests took %v of %v", ran, report.Took)
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
