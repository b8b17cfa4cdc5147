package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// systemd is a service manager on a host of a lab. Its processes, control groups and files are its own; the files
// begin as those of this machine, with what `make install` installs over them.
type systemd struct {
	*process
	pid       int // of systemd, as this process sees it
	installed string
}

// installTo is `make install DESTDIR=dir` for the programs under test.
func installTo(dir string) *exec.Cmd {
	install := exec.Command("../../scripts/install", dir)
	install.Env = append(os.Environ(), "PROGRAMS="+filepath.Dir(program))
	return install
}

// bootSystemd starts a systemd that starts nothing by itself.
func bootSystemd(t *testing.T, h *lab.Host) *systemd {
	t.Helper()
	if !exists("/lib/systemd/systemd") {
		t.Skip("systemd is not installed")
	}
	dir := openDir(t)
	s := &systemd{installed: filepath.Join(dir, "installed")}
	if err := os.Mkdir(filepath.Join(dir, "scratch"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := installTo(s.installed).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	groups := serviceGroups(t)
	boot, err := filepath.Abs("testdata/boot")
	if err != nil {
		t.Fatal(err)
	}
	s.process = spawn(t, h, exec.Command("/bin/bash", "-c", `for g in $0; do echo $$ >"$g/cgroup.procs"; done; exec "$@"`,
		strings.Join(groups, " "), "unshare", "--fork", "--kill-child", "--pid", "--mount", "--cgroup",
		boot, filepath.Join(dir, "scratch"), s.installed, "/run/netns"))
	await.Success(t, func() error {
		children, err := childrenOf(s.Process.Pid)
		if err != nil || len(children) == 0 {
			return notYet("no child of unshare: %v", err)
		}
		s.pid = children[0]
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", s.pid)); err != nil || string(comm) != "systemd\n" {
			return notYet("it is %q yet: %v %s", comm, err, s.stderr)
		}
		if r := s.do(t, "systemctl", "is-active", "default.target"); r.code != 0 {
			return notYet("default.target: %s%s", r.stdout, r.stderr)
		}
		return nil
	})
	return s
}

func childrenOf(pid int) (pids []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return nil, err
	}
	for _, f := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		pids = append(pids, n)
	}
	return pids, nil
}

// serviceGroups makes a control group in every hierarchy, for all that systemd makes below it.
func serviceGroups(t *testing.T) (groups []string) {
	t.Helper()
	name := strings.TrimSuffix(labtest.Prefix(), "-")
	for line := range strings.Lines(readText(t, "/proc/self/mounts")) {
		f := strings.Fields(line)
		group := filepath.Join(f[1], name)
		// A group of cpuset takes no process before it has CPUs; systemd does without.
		if f[2] != "cgroup" && f[2] != "cgroup2" || strings.Contains(f[3], "cpuset") || slices.Contains(groups, group) {
			continue
		}
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Skipf("no control group can be made here: %v", err)
		}
		groups = append(groups, group)
	}
	t.Cleanup(func() {
		for _, group := range groups {
			// A process that ended leaves its group a little later.
			await.Success(t, func() error { return removeGroup(group) })
		}
	})
	return groups
}

// removeGroup removes a control group and those below it; their files go with them.
func removeGroup(group string) error {
	below, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range below {
		if e.IsDir() {
			err = errors.Join(err, removeGroup(filepath.Join(group, e.Name())))
		}
	}
	return errors.Join(err, os.Remove(group))
}

// do runs a command among what systemd runs.
func (s *systemd) do(t *testing.T, argv ...string) result {
	t.Helper()
	enter := []string{"nsenter", "-t", strconv.Itoa(s.pid), "--mount", "--pid", "--net", "--"}
	return execute(t, nil, append(enter, argv...)...)
}

// must is the standard output of a command that has to succeed.
func (s *systemd) must(t *testing.T, argv ...string) string {
	t.Helper()
	r := s.do(t, argv...)
	if r.code != 0 {
		t.Fatalf("%v: exit code %d: %s%s\n%s%s", argv, r.code, r.stdout, r.stderr, s.stdout, s.stderr)
	}
	return r.stdout
}

// configure writes the service's configuration.
func (s *systemd) configure(t *testing.T, yaml string) {
	t.Helper()
	s.must(t, "sh", "-c", `printf %s "$0" >/etc/waymark/waymark.yaml`, yaml)
}

// dropIn installs one of the documented drop-ins, and removes others.
func (s *systemd) dropIn(t *testing.T, name string) {
	t.Helper()
	s.must(t, "sh", "-c", `d=/etc/systemd/system/waymark.service.d; rm -rf $d && mkdir $d && cp /usr/share/doc/waymark/systemd/$0.conf $d`, name)
	s.must(t, "systemctl", "daemon-reload")
}

// mainPID is the agent, as this process sees it.
func (s *systemd) mainPID(t *testing.T) int {
	t.Helper()
	inner := strings.TrimSpace(s.must(t, "systemctl", "show", "-P", "MainPID", "waymark"))
	children, err := childrenOf(s.pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && strings.Contains(string(status), fmt.Sprintf("NSpid:\t%d\t%s\n", pid, inner)) {
			return pid
		}
	}
	t.Fatalf("no process %s of the service among %v", inner, children)
	return 0
}
