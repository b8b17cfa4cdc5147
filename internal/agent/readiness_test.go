package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// waitReady polls until the reason against readiness contains want; "" is ready.
func waitReady(t *testing.T, a *running, want string) {
	t.Helper()
	await.Success(t, func() error {
		err := a.readiness()
		if want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want) {
			return nil
		}
		return fmt.Errorf("not ready: %v; want %q", err, want)
	})
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

	// More hooks than the few files that stay free: some must fail. The test itself
	// takes no file after that.
	names := []string{"none1", "none2", "none3", "none4"}
	rename := spareLinks(t, alpha, len(names))
	files := exhaustFiles(t)
	for i, name := range names {
		rename(i, name)
	}
	waitReady(t, a, "hooks failed, the first on")
	var states []string
	for _, name := range names {
		states = append(states, hookStates(a, name)...)
	}
	if !slices.Contains(states, "failed") {
		t.Errorf("states without files: %v", states)
	}
	files()
	waitReady(t, a, "")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}

	cfg.Interfaces = append(cfg.Interfaces, config.Interface{Match: "missing0", Direction: "both"})
	a = start(t, cfg)
	waitReady(t, a, "missing: missing0")
	if got := a.reports.all(); len(got) != 1 || got[0] == "" {
		t.Errorf("readiness reported as %q while an interface is missing", got)
	}
	addVeth(t, alpha, "missing0")
	waitReady(t, a, "")
	await.True(t, "a second report of readiness", func() bool { return len(a.reports.all()) >= 2 })
	if got := a.reports.all(); len(got) != 2 || got[1] != "" {
		t.Errorf("readiness reported as %q after the interface appeared", got)
	}
}

// spareLinks adds links to a host under names that no pattern matches, and returns
// what renames them: over a socket that is open already.
func spareLinks(t *testing.T, host *lab.Host, n int) (rename func(i int, name string)) {
	t.Helper()
	var (
		h     *netlink.Handle
		links []netlink.Link
	)
	err := host.Do(func() (err error) {
		if h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		for i := range n {
			spare := fmt.Sprintf("spare%d", i)
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: spare}, PeerName: "p" + spare}
			if err := h.LinkAdd(pair); err != nil {
				return err
			}
			link, err := h.LinkByName(spare)
			if err != nil {
				return err
			}
			links = append(links, link)
		}
		return nil
	})
	if h != nil {
		t.Cleanup(h.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(i int, name string) {
		t.Helper()
		if err := h.LinkSetName(links[i], name); err != nil {
			t.Fatal(err)
		}
	}
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
