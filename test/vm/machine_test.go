package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Every command runs, whatever became of the one before, and the report tells them apart; after a kernel's panic, it has
// what came before. That a machine ends by itself is in [TestWaymarkOnOlderKernel].
func TestReportTellsHowCommandsEnd(t *testing.T) {
	tree := t.TempDir()
	large := strings.Repeat("0123456789abcde\n", 1<<14) // 256 KiB
	if err := os.MkdirAll(filepath.Join(tree, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "sub", "large"), []byte(large), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	report, err := Machine{
		Kernel:  "6.1",
		CPUs:    1,
		Modules: []string{},
		Files:   map[string]string{"/bin/act": Build(t, "./testdata/act"), "/data": tree},
		Cmds: []Cmd{
			{Args: []string{"/bin/act", "exit"}, Env: []string{"COLOR=blue"}, Dir: "/data"},
			{Args: []string{"/bin/act", "hang"}, Timeout: time.Second},
			{Args: []string{"/bin/missing"}},
			{Args: []string{"/bin/act", "cat", "/data/sub/large"}},
			{Args: []string{"/bin/act", "crash"}},
		},
	}.run(ctx, t.TempDir(), Build(t, guestPackage))
	if err == nil || !strings.Contains(err.Error(), "stopped after 4 of 5 commands") || !strings.Contains(report.log(), "sysrq triggered crash") {
		t.Fatalf("%v\n%s", err, report.log())
	}
	want := []Result{
		{ExitCode: 3, Stdout: "in /data with COLOR=blue\n", Stderr: "exits with 3\n"},
		{ExitCode: -1, Stdout: "hangs\n", Error: "killed after 1s"},
		{ExitCode: -1, Error: "start /bin/missing: fork/exec /bin/missing: no such file or directory"},
		{ExitCode: 0, Stdout: large},
	}
	if diff := cmp.Diff(want, report.Results[:4], cmpopts.IgnoreFields(Result{}, "Took")); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestMachineThatDoesNotComeThrough(t *testing.T) {
	act := map[string]string{"/bin/act": Build(t, "./testdata/act")}
	guest := Build(t, guestPackage)
	for _, tc := range []struct {
		name    string
		machine Machine
		timeout time.Duration
		want    string // part of the error
	}{
		{
			name:    "out of time",
			machine: Machine{Kernel: "6.1", CPUs: 1, Modules: []string{}, Files: act, Cmds: []Cmd{{Args: []string{"/bin/act", "hang"}}}},
			timeout: time.Second,
			want:    "not through in time",
		},
		{
			name:    "no such kernel",
			machine: Machine{Kernel: "2.4"},
			want:    "run 'scripts/fetch-kernel 2.4'",
		},
		{
			name:    "no such module",
			machine: Machine{Kernel: "6.1", Modules: []string{"floppy_tape"}},
			want:    `module "floppy_tape", which this kernel does not have`,
		},
		{
			name:    "no such file",
			machine: Machine{Kernel: "6.1", Files: map[string]string{"/bin/x": "testdata/missing"}},
			want:    "pack /bin/x",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := t.Context()
			if tc.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.timeout)
				defer cancel()
			}
			_, err := tc.machine.run(ctx, t.TempDir(), guest)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

// A module comes after what it needs, once.
func TestModulesAreOrdered(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	k, err := findKernel(root, "6.1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.modules.order([]string{"vxlan", "geneve", "veth"})
	if err != nil {
		t.Fatal(err)
	}
	sorted := slices.Sorted(slices.Values(got))
	if want := []string{"geneve", "ip6_udp_tunnel", "udp_tunnel", "veth", "vxlan"}; !slices.Equal(sorted, want) {
		t.Errorf("modules are %q, want %q in some order", sorted, want)
	}
	for _, first := range []string{"udp_tunnel", "ip6_udp_tunnel"} {
		for _, then := range []string{"vxlan", "geneve"} {
			if slices.Index(got, first) > slices.Index(got, then) {
				t.Errorf("%s comes before %s, which it needs: %q", then, first, got)
			}
		}
	}
	if _, err := findModules(filepath.Join(root, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("modules of a missing folder: %v, want one that does not exist", err)
	}
}
