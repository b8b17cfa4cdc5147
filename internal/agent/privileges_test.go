package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab"
)

// The test starts itself again with fewer capabilities; this variable tells the
// child which probe to run.
const childVariable = "WAYMARK_TEST_PRIVILEGES_OF"

// TestMain is the child where it is asked to be, else the tests.
func TestMain(m *testing.M) {
	if probe := os.Getenv(childVariable); probe != "" {
		os.Exit(privilegesChild(probe))
	}
	os.Exit(m.Run())
}

// privilegesChild runs an agent in the namespace it was started in, and prints
// the capabilities it holds when it is ready; exit code 3: something is missing.
func privilegesChild(probe string) int {
	cfg := childConfig(probe)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := New(cfg, Deps{
		Log: discard, Clock: time.Now, DropPrivileges: true,
		Ready: func(error) {
			fmt.Println(statusLine("CapEff"), statusLine("CapPrm"), statusLine("CapBnd"))
			cancel()
		},
	})
	if err == nil {
		err = a.Run(ctx)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, kernel.ErrMissing):
		fmt.Println(err)
		return 3
	}
	fmt.Println(err)
	return 1
}

func statusLine(name string) string {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "no " + name
}

// runChild starts the child on a host with just these capabilities.
func runChild(t *testing.T, h *lab.Host, probe, capabilities string) (output string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.Command("setpriv", "--bounding-set", "-all"+capabilities, self)
	cmd.Env = append(os.Environ(), childVariable+"="+probe)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), cmd.ProcessState.ExitCode()
}

// TestPrivileges pins what the agent needs to start, and what it keeps.
func TestPrivileges(t *testing.T) {
	const (
		netRaw   = "0000000000002000"
		bpfAdmin = "0000008000001000" // CAP_BPF and CAP_NET_ADMIN
	)
	l := newLab(t)
	alpha := l.Host("alpha")
	for _, c := range []struct {
		probe, capabilities string
		code                int
		keeps               string
	}{
		{"ebpf", ",+bpf,+net_admin,+perfmon,+setpcap", 0, bpfAdmin},
		{"ebpf", ",+bpf,+net_admin,+perfmon", 0, bpfAdmin},
		{"ebpf", ",+bpf,+net_admin", 3, ""},
		{"ebpf", ",+net_admin,+perfmon", 3, ""},
		{"ebpf", ",+bpf,+perfmon", 3, ""},
		{"ebpf", "", 3, ""},
		{"afpacket", ",+net_raw", 0, netRaw},
		{"afpacket", ",+bpf,+net_admin,+perfmon", 3, ""},
	} {
		t.Run(c.probe+c.capabilities, func(t *testing.T) {
			out, code := runChild(t, alpha, c.probe, c.capabilities)
			if code != c.code {
				t.Fatalf("exit code %d, want %d: %s", code, c.code, out)
			}
			if code != 0 {
				if !strings.Contains(out, "CAP_") {
					t.Errorf("the error does not name the remedy: %s", out)
				}
				return
			}
			fields := strings.Fields(out)
			if len(fields) != 3 || fields[0] != c.keeps || fields[1] != c.keeps {
				t.Errorf("effective, permitted, bounding: %s; want effective and permitted %s", out, c.keeps)
			}
			if strings.Contains(c.capabilities, "setpcap") && fields[2] != c.keeps {
				t.Errorf("bounding set %s, want %s", fields[2], c.keeps)
			}
		})
	}
}
