package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
)

// helperEnv makes the test binary be a builder that the crash test kills.
const helperEnv = "WAYMARK_TEST_LAB_UP"

func TestMain(m *testing.M) {
	if spec := os.Getenv(helperEnv); spec != "" {
		topology, prefix, _ := strings.Cut(spec, " ")
		began := time.Now()
		if _, err := lab.Up(lab.Config{Topology: topology, Prefix: prefix}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(time.Since(began))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
}

// up makes a lab of its own for the test.
func up(t *testing.T, cfg lab.Config) *lab.Lab {
	t.Helper()
	needRoot(t)
	cfg.Prefix = prefix(t)
	l, err := lab.Up(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// prefix is unique to test and process; what is left behind under it fails the test.
func prefix(t *testing.T) string {
	t.Helper()
	p := fmt.Sprintf("lt%d-%x-", os.Getpid(), len(t.Name())*257+int(t.Name()[len(t.Name())-1]))
	before := traces(t, p)
	t.Cleanup(func() {
		if err := lab.Down(p); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, traces(t, p)); diff != "" {
			t.Errorf("the lab left traces (-before +after):\n%s", diff)
		}
	})
	return p
}

// traces is all that a lab might leave on this machine.
func traces(t *testing.T, prefix string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range []string{topology.NetnsDir, "/run/waymark/lab"} {
		files, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			found["file "+f] = "exists"
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, prefix) {
			found["mount "+line] = "exists"
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Name, "to-") {
			found["link "+l.Name] = "exists"
		}
	}
	for _, pattern := range []string{"ipv4/*", "ipv4/conf/all/*", "ipv4/conf/default/*", "ipv6/*", "ipv6/conf/all/*", "ipv6/conf/default/*"} {
		sysctls, err := filepath.Glob("/proc/sys/net/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range sysctls {
			if v, err := os.ReadFile(f); err == nil {
				found["sysctl "+f] = string(v)
			}
		}
	}
	return found
}

func TestHostsReachEachOther(t *testing.T) {
	for _, topology := range []string{"pair", "chain"} {
		t.Run(topology, func(t *testing.T) {
			l := up(t, lab.Config{Topology: topology, MTU: 1400})
			for _, from := range l.Hosts() {
				for _, to := range l.Hosts() {
					for _, i := range to.Interfaces {
						exchange(t, from, to, i.Addr4.Addr())
						exchange(t, from, to, i.Addr6.Addr())
					}
				}
				for _, i := range from.Interfaces {
					if got := mtuOf(t, from, i.Name); got != 1400 {
						t.Errorf("%s on %s has MTU %d, want 1400", i.Name, from.Name, got)
					}
				}
			}
		})
	}
}

// exchange sends one datagram, at once after Up: it must not be lost.
func exchange(t *testing.T, from, to *lab.Host, addr netip.Addr) {
	t.Helper()
	var server, client net.Conn
	err := to.Do(func() error {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: addr.AsSlice()})
		server = c
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s: %v", to.Name, err)
	}
	defer server.Close()
	err = from.Do(func() (err error) {
		client, err = net.Dial("udp", server.LocalAddr().String())
		return err
	})
	if err != nil {
		t.Fatalf("from %s to %s: %v", from.Name, addr, err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatalf("from %s to %s: %v", from.Name, addr, err)
	}
	buf := make([]byte, 10)
	if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := server.Read(buf)
	if err != nil || string(buf[:n]) != "hello" {
		t.Fatalf("from %s to %s on %s: got %q, %v", from.Name, addr, to.Name, buf[:n], err)
	}
}

func mtuOf(t *testing.T, h *lab.Host, iface string) int {
	t.Helper()
	var mtu int
	if err := h.Do(func() error {
		i, err := net.InterfaceByName(iface)
		if err == nil {
			mtu = i.MTU
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return mtu
}

func TestPathChainTakesTheMiddle(t *testing.T) {
	l := up(t, lab.Config{Topology: "chain"})
	hops := map[string]string{}
	for _, dst := range []string{"10.0.4.2", "2001:db8:4::2"} {
		for _, h := range l.Hosts()[:4] {
			out, err := h.Run(t.Context(), "ip", "route", "get", dst)
			if err != nil {
				t.Fatal(err)
			}
			_, dev, _ := strings.Cut(out, "dev ")
			hops[h.Name] = strings.Fields(dev)[0]
		}
		want := map[string]string{"alpha": "to-athos", "athos": "to-porthos", "porthos": "to-aramis", "aramis": "to-beta"}
		if diff := cmp.Diff(want, hops); diff != "" {
			t.Errorf("way to %s (-want +got):\n%s", dst, diff)
		}
	}
}

func TestUpTwice(t *testing.T) {
	l := up(t, lab.Config{})
	_, err := lab.Up(l.Config())
	if !errors.Is(err, lab.ErrExists) || !strings.Contains(err.Error(), "waymark lab down --prefix "+l.Config().Prefix) {
		t.Fatalf("second Up: %v, want ErrExists with the remedy", err)
	}
	again, err := lab.Open(l.Config().Prefix)
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, again.Host("alpha"), again.Host("beta"), again.Host("beta").Addr6())
}

func TestLabsCoexist(t *testing.T) {
	a := up(t, lab.Config{Topology: "pair"})
	// A prefix that begins with the other's.
	b, err := lab.Up(lab.Config{Topology: "chain", Prefix: a.Config().Prefix + "b-"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := a.Down(); err != nil {
		t.Fatal(err)
	}
	exchange(t, b.Host("alpha"), b.Host("beta"), b.Host("beta").Addr4())
	if _, err := lab.Open(a.Config().Prefix); !errors.Is(err, lab.ErrNotUp) {
		t.Errorf("open a lab that is down: %v, want ErrNotUp", err)
	}
}

func TestList(t *testing.T) {
	l := up(t, lab.Config{Topology: "chain"})
	infos, err := lab.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if i.Prefix == l.Config().Prefix {
			if i.State != "up" || i.Topology != "chain" || len(i.Hosts) != 5 {
				t.Errorf("listed as %+v", i)
			}
			return
		}
	}
	t.Errorf("not listed among %+v", infos)
}

func TestDownStopsWhatRunsOnHosts(t *testing.T) {
	l := up(t, lab.Config{})
	gentle, stubborn := exec.Command("sleep", "600"), exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
	ready, err := stubborn.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{gentle, stubborn} {
		if err := l.Host("alpha").Start(cmd); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ready.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- gentle.Wait() }()
	go func() { ended <- stubborn.Wait() }()
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a process of a host outlived Down")
		}
	}
}

// An agent elsewhere that holds a namespace open must not keep the links alive.
func TestDownTakesLinksOfANamespaceHeldOpen(t *testing.T) {
	l := up(t, lab.Config{})
	held, err := topology.OpenNetns(l.Host("alpha").Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	if err := held.Do(func() error {
		links, err := net.Interfaces()
		for _, i := range links {
			if i.Name != "lo" {
				t.Errorf("link %s is still there", i.Name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestRefusesBadConfig(t *testing.T) {
	for _, cfg := range []lab.Config{
		{Topology: "ring"},
		{MTU: 1279},
		{MTU: 65536},
		{Prefix: "../x"},
		{Prefix: "-"},
		{Prefix: strings.Repeat("x", 33)},
	} {
		if l, err := lab.Up(cfg); !errors.Is(err, lab.ErrConfig) {
			t.Errorf("Up(%+v) = %v, %v, want ErrConfig", cfg, l, err)
		}
	}
}

func TestRunTellsWhatFailed(t *testing.T) {
	l := up(t, lab.Config{})
	_, err := l.Host("alpha").Run(t.Context(), "sh", "-c", "echo broken >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "broken") {
		t.Errorf("Run = %v, want exit status 3 and what it said", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Host("alpha").Run(ctx, "sleep", "600"); !errors.Is(err, context.Canceled) {
		t.Errorf("Run with a context that is done: %v", err)
	}
}

func TestMissingPrivilege(t *testing.T) {
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The test binary lies where only root can look.
	dir, err := os.MkdirTemp("", "waymark-lab")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(dir, "helper")
	if err := errors.Join(os.WriteFile(helper, data, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), helper)
	cmd.Dir = "/"
	cmd.Env = []string{helperEnv + "=pair " + prefix(t)}
	cmd.SysProcAttr = nobody()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "missing privilege") || !strings.Contains(string(out), "CAP_SYS_ADMIN") {
		t.Errorf("up as nobody: %v: %s", err, out)
	}
}
