package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// Bits of capabilities (capabilities(7)).
const (
	capNetAdmin = 1 << unix.CAP_NET_ADMIN
	capNetRaw   = 1 << unix.CAP_NET_RAW
	capSysAdmin = 1 << unix.CAP_SYS_ADMIN
	capPerfmon  = 1 << unix.CAP_PERFMON
	capBPF      = 1 << unix.CAP_BPF
)

// nobody starts a program as the user nobody, with capabilities or without.
func nobody(capabilities ...string) []string {
	argv := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	if len(capabilities) == 0 {
		return argv
	}
	list := "+" + strings.Join(capabilities, ",+")
	return append(argv, "--inh-caps="+list, "--ambient-caps="+list)
}

// without starts a program as root that lacks capabilities.
func without(capabilities ...string) []string {
	list := "-" + strings.Join(capabilities, ",-")
	return []string{"setpriv", "--bounding-set=" + list, "--inh-caps=" + list}
}

// openDir is a folder in which everyone may make files.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wme")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestNoPrivilege: exit code 3, what is missing, and how to get it.
func TestNoPrivilege(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	for _, c := range []struct {
		wrap  []string
		line  string
		texts []string
	}{
		{nobody(), "run -i lo", []string{"CAP_NET_RAW", "run as root"}},
		{nobody(), "run -i lo --probe ebpf", []string{"CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "run as root"}},
		{nobody(), "run -i lo --probe afpacket", []string{"CAP_NET_RAW", "run as root"}},
		{without("bpf", "sys_admin"), "run -i lo --probe ebpf", []string{"CAP_BPF"}},
		{without("perfmon", "sys_admin"), "run -i lo --probe ebpf", []string{"CAP_PERFMON"}},
		{without("net_admin"), "run -i lo --probe ebpf", []string{"CAP_NET_ADMIN"}},
		{without("net_raw"), "run -i lo --probe afpacket", []string{"CAP_NET_RAW"}},
		{nobody(), "lab up pair", []string{"CAP_SYS_ADMIN", "run as root"}},
		{nobody(), "lab demo", []string{"CAP_SYS_ADMIN", "run as root"}},
	} {
		t.Run(strings.Join(c.wrap[1:], " ")+" "+c.line, func(t *testing.T) {
			argv := append(append(c.wrap, program), strings.Fields(c.line)...)
			if strings.HasPrefix(c.line, "run") {
				argv = append(argv, "--socket", filepath.Join(dir, "agent.sock"))
			}
			wants(t, execute(t, nil, argv...), 3, c.texts...)
		})
	}
	if exists(filepath.Join(dir, "agent.sock")) {
		t.Error("a socket is left")
	}
	// What a user without privileges cannot ask is not missing.
	t.Run("doctor", func(t *testing.T) {
		r := execute(t, nil, append(nobody(), program, "doctor")...)
		wants(t, r, 3)
		if strings.Contains(r.stdout, "missing") || !strings.Contains(r.stdout, "unknown: needs root") || !strings.HasSuffix(r.stdout, "\nVERDICT  unknown: needs root. Run: sudo waymark doctor\n") {
			t.Errorf("it reports:\n%s", r.stdout)
		}
	})
	t.Run("socket", func(t *testing.T) {
		r := execute(t, nil, append(nobody("bpf", "net_admin", "perfmon"), program, "run", "-i", "lo", "--socket", "/proc/1/agent.sock")...)
		if r.code != 3 && r.code != 1 || !strings.Contains(r.stderr, "--socket") {
			t.Errorf("exit code %d: %s", r.code, r.stderr)
		}
	})
}

// TestFewestPrivileges: nobody, with the capabilities that the documents name
// and no others, runs the agent; what it keeps is what it needs.
func TestFewestPrivileges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		give []string
		set  string
		keep uint64
	}{
		"ebpf":                 {[]string{"bpf", "net_admin", "perfmon"}, "probe: ebpf\n", capBPF | capNetAdmin},
		"afpacket":             {[]string{"net_raw"}, "probe: afpacket\n", capNetRaw},
		"auto falls back":      {[]string{"net_raw"}, "probe: auto\n", capNetRaw},
		"auto does not":        {[]string{"bpf", "net_admin", "perfmon", "net_raw"}, "probe: auto\n", capBPF | capNetAdmin},
		"ebpf in a namespace":  {nil, "probe: ebpf\nnetns: [OTHER]\n", capBPF | capNetAdmin | capPerfmon | capSysAdmin},
		"afpacket in another":  {nil, "probe: afpacket\nnetns: [OTHER]\n", capNetRaw | capSysAdmin},
		"root keeps no more":   {nil, "probe: ebpf\n", capBPF | capNetAdmin},
		"not in a control set": {nil, "probe: afpacket\n", capNetRaw},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, alpha, beta := newLab(t)
			dir := openDir(t)
			s := setup{host: alpha, config: quick + strings.ReplaceAll(c.set, "OTHER", beta.Netns) +
				"interfaces: [to-*]\nexport: [{jsonl: {path: " + dir + "/flows.jsonl}}]\napi: {socket: " + dir + "/agent.sock}\n"}
			if c.give != nil {
				s.wrap = nobody(c.give...)
				// The configuration and systemd's socket are in folders for root alone.
				s.adjust = openToAll(t)
			}
			a := start(t, s)
			a.socket = filepath.Join(dir, "agent.sock")
			effective, bounding := capabilitiesOf(t, a.Process.Pid)
			if effective != c.keep {
				t.Errorf("capabilities %#x, want %#x", effective, c.keep)
			}
			if c.give == nil && bounding&^c.keep != 0 {
				t.Errorf("a program it starts could get %#x", bounding&^c.keep)
			}
			if name == "auto falls back" && !strings.Contains(a.stderr.String(), "captured instead") {
				t.Errorf("it does not say that it falls back: %s", a.stderr)
			}
			if name == "auto falls back" || strings.Contains(c.set, "afpacket") {
				if probe := a.status(t).Probe; probe != "afpacket" {
					t.Errorf("the probe is %s", probe)
				}
			}
			port, segments := transfer(t, alpha, beta)
			a.covered(t)
			a.stop(t)
			var mine []record
			for _, r := range readLines(t, filepath.Join(dir, "flows.jsonl")) {
				if r.Netns == "" {
					mine = append(mine, r)
				}
			}
			has(t, mine, port, segments)
		})
	}
}

// openToAll lets nobody reach what the test made for the agent.
func openToAll(t *testing.T) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		file := ""
		for i, arg := range cmd.Args {
			if arg == "--config" {
				file = cmd.Args[i+1]
			}
		}
		// Up to, and without, the folder of all temporary files.
		for dir := filepath.Dir(file); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(filepath.Dir(file), "notify"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// capabilitiesOf are those of every thread, which must agree.
func capabilitiesOf(t *testing.T, pid int) (effective, bounding uint64) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	seen := map[[2]uint64]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // the thread ended
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":\t")
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			switch {
			case name == "CapEff" && err == nil:
				effective = set
			case name == "CapBnd" && err == nil:
				bounding = set
			}
		}
		seen[[2]uint64{effective, bounding}] = true
	}
	if len(seen) != 1 {
		t.Errorf("threads differ: %v", seen)
	}
	return effective, bounding
}

// TestMissingNamespaceRights: a namespace that may not be entered is reported, not
// waited for.
func TestMissingNamespaceRights(t *testing.T) {
	t.Parallel()
	h, other := labtest.NewHost(t), labtest.NewHost(t)
	a, _ := launch(t, setup{
		host: h, wrap: without("sys_admin"),
		config: "on_missing: fail\n" + quick + "interfaces: [lo]\nnetns: [" + other.Netns + "]\n",
	})
	code := a.wait(t)
	wants(t, result{stderr: a.stderr.String(), code: code}, 3, "CAP_SYS_ADMIN", "netns")
}

// limitOf80 is what a group of 80 MiB leaves to an agent: one that has just ended may still take some of it.
var limitOf80 = regexp.MustCompile(`limit is (7[5-9]|80) MiB`)

// TestMemoryLimit: what a control group cannot hold is refused with the
// remedy; the default fits by itself.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	group := memoryGroup(t, 80<<20)
	in := func(args ...string) *agent {
		h := labtest.NewHost(t)
		must(t, h, "ip", "link", "set", "lo", "up")
		a, _ := launch(t, setup{host: h, wrap: inGroup(group), config: "interfaces: [lo]\n", args: args})
		return a
	}
	for name, set := range map[string]string{"table": "flow.max_entries=4000000", "ring": "flow.ring_size=64MiB"} {
		t.Run(name, func(t *testing.T) {
			a := in("--set", set)
			code := a.wait(t)
			wants(t, result{stderr: a.stderr.String(), code: code}, 3, "flow."+map[string]string{"table": "max_entries", "ring": "ring_size"}[name], "raise the limit")
			if !limitOf80.MatchString(a.stderr.String()) {
				t.Error("the limit is not what the group leaves")
			}
		})
	}
	a := in()
	await.Success(t, func() error {
		select {
		case <-a.ended:
			t.Fatalf("the agent ended, exit code %d", a.ProcessState.ExitCode())
		default:
		}
		if !strings.Contains(a.stderr.String(), "msg=ready") {
			return notYet("not ready")
		}
		return nil
	})
	if s := a.status(t); s.Table.MaxEntries < 50_000 || s.Table.MaxEntries > 200_000 {
		t.Errorf("a table of %d flows in 80 MiB", s.Table.MaxEntries)
	}
	a.stop(t)
}

// memoryGroup makes a control group with a limit in bytes, of whichever version.
func memoryGroup(t *testing.T, limit int) string {
	t.Helper()
	lines, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	dir, file := "", ""
	for line := range strings.Lines(string(lines)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case part[1] == "memory":
			dir, file = filepath.Join("/sys/fs/cgroup/memory", part[2]), "memory.limit_in_bytes"
		case part[0] == "0" && dir == "":
			dir, file = filepath.Join("/sys/fs/cgroup", part[2]), "memory.max"
		}
	}
	group := filepath.Join(dir, strings.TrimSuffix(labtest.Prefix(), "-"))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no control group can be made here: %v", err)
	}
	t.Cleanup(func() {
		// A process that ended leaves its group a little later.
		await.Success(t, func() error { return os.Remove(group) })
	})
	if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(limit)), 0o644); err != nil {
		t.Skipf("the memory of a control group can't be limited here: %v", err)
	}
	return group
}

// inGroup starts a program in a control group.
func inGroup(group string) []string {
	return []string{"/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group}
}
