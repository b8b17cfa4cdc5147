package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/config"
)

// waitReady polls until the reason against readiness contains want; "" is ready.
func waitReady(t *testing.T, a *running, want string) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = a.readiness(); want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
			return
		}
	}
	t.Fatalf("not ready: %v; want %q", err, want)
}

// hookStates are the states of the hooks on an interface.
func hookStates(a *running, iface string) (states []string) {
	for _, h := range a.Status().Hooks {
		if h.Iface == iface {
			states = append(states, h.State)
		}
	}
	return states
}

// The agent is ready while everything that is configured is counted: not while no
// interface matches, or one that is named is missing, or an attach failed. What
// failed is tried again.
func TestReadiness(t *testing.T) {
	alpha := newLab(t).Host("alpha")
	cfg, _ := agentConfig(t, "ebpf", alpha)
	cfg.Interfaces = []config.Interface{{Match: "none*", Direction: "both"}}
	a := start(t, cfg)
	waitReady(t, a, "no interface matches none*")
	if got := hookStates(a, "none*"); len(got) != 2 || got[0] != "waiting" {
		t.Errorf("states of the pattern: %v", got)
	}
	addVeth(t, alpha, "none0")
	waitReady(t, a, "")

	files := exhaustFiles(t)
	addVeth(t, alpha, "none1")
	addVeth(t, alpha, "none2")
	waitReady(t, a, "hooks failed, the first on")
	if got := append(hookStates(a, "none1"), hookStates(a, "none2")...); !slices.Contains(got, "failed") {
		t.Errorf("states without files: %v", got)
	}
	files()
	waitReady(t, a, "")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}

	cfg.Interfaces = append(cfg.Interfaces, config.Interface{Match: "missing0", Direction: "both"})
	a = start(t, cfg)
	waitReady(t, a, "missing: missing0")
	addVeth(t, alpha, "missing0")
	waitReady(t, a, "")
}

// exhaustFiles opens files until no more can be, but for the few that changing a
// namespace takes.
func exhaustFiles(t *testing.T) (release func()) {
	t.Helper()
	var fds []int
	release = func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		fds = nil
	}
	t.Cleanup(release)
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	const few = 5
	for _, fd := range fds[len(fds)-few:] {
		_ = unix.Close(fd)
	}
	fds = fds[:len(fds)-few]
	return release
}
