package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"

	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// reload gives the agent another configuration and waits until it says what came of it.
func (a *agent) reload(t *testing.T, yaml, want string) {
	t.Helper()
	before := strings.Count(a.stderr.String(), want)
	if err := os.WriteFile(a.path("waymark.yaml"), []byte(a.expand(yaml)), 0o644); err != nil {
		t.Fatal(err)
	}
	a.signal(unix.SIGHUP)
	await.Success(t, func() error {
		if strings.Count(a.stderr.String(), want) == before {
			return notYet("%q in %s", want, a.stderr)
		}
		return nil
	})
}

// TestReload: SIGHUP changes exporters, timeouts and interfaces without losing a packet; what cannot change is named,
// and a configuration that is wrong changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	const first = "flow: {max_entries: 4096, scan_interval: 50ms, idle_timeout: 300ms, active_timeout: 2s}\n"
	a := start(t, setup{host: alpha, config: first + "interfaces: [to-*]\nexport: [{jsonl: {path: DIR/one.jsonl}}]\n"})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	flood := spawn(t, alpha, exec.CommandContext(ctx, "bash", "-c",
		fmt.Sprintf("n=0 end=; trap end=1 TERM; while [ -z $end ]; do echo >/dev/udp/%s/9; n=$((n+1)); done; echo $n", beta.Addr6())))

	// Another exporter, other timeouts, and one key that needs a restart.
	second := "flow: {max_entries: 8192, scan_interval: 30ms, idle_timeout: 200ms, active_timeout: 1s}\n" +
		"interfaces: [to-*, lo]\nexport:\n- jsonl: {path: DIR/two.jsonl}\n- prometheus: {listen: '127.0.0.1:9474'}\n"
	if err := os.WriteFile(a.path("next.yaml"), []byte(a.expand(second)), 0o644); err != nil {
		t.Fatal(err)
	}
	r := waymark(t, "config", "check", a.path("next.yaml"))
	wants(t, result{stderr: r.stdout, code: r.code}, 0, "applies on reload", "flow.scan_interval: 50ms → 30ms", "restart for:\n  flow.max_entries: 4096 → 8192\n")
	a.reload(t, second, "configuration reloaded")
	for _, want := range []string{"key=flow.max_entries running=4096 configured=8192", "key=export", "key=interfaces"} {
		if !strings.Contains(a.stderr.String(), want) {
			t.Errorf("the log lacks %q: %s", want, a.stderr)
		}
	}
	await.Success(t, func() error {
		if _, err := hook(a.status(t), "lo"); err != nil {
			return notYet("%v", err)
		}
		return alpha.Do(func() error {
			conn, err := net.Dial("tcp", "127.0.0.1:9474")
			if err != nil {
				return notYet("%v", err)
			}
			return conn.Close()
		})
	})
	wants(t, a.ask(t, "status"), 0)
	await.Success(t, func() error { // flows that expired meanwhile
		if info, err := os.Stat(a.path("two.jsonl")); err != nil || info.Size() == 0 {
			return notYet("no record in two.jsonl: %v", err)
		}
		return nil
	})

	// Back, through a configuration that is wrong and one that cannot be applied.
	a.reload(t, "flow: {scan_intervall: 1s}\n", "did you mean scan_interval")
	a.reload(t, second+"- ipfix: {collector: 'tls://127.0.0.1:4740', ca: DIR/none.pem}\n", "none.pem")
	a.reload(t, first+"interfaces: [to-*]\nexport: [{jsonl: {path: DIR/one.jsonl}}]\n", "configuration reloaded")
	await.Success(t, func() error {
		if _, err := hook(a.status(t), "lo"); err == nil {
			return notYet("lo is still counted")
		}
		return nil
	})

	flood.signal(unix.SIGTERM)
	flood.wait(t)
	sent := strings.TrimSpace(flood.stdout.String())
	a.covered(t)
	a.stop(t)
	var records []record
	for _, file := range []string{"one.jsonl", "two.jsonl"} {
		part := readLines(t, a.path(file))
		if len(part) == 0 {
			t.Errorf("%s is empty", file)
		}
		records = append(records, part...)
	}
	got := sum(records, func(r *record) bool {
		return r.Proto == 17 && r.Dport == 9 && r.Direction == "egress" && strings.HasPrefix(r.Iface, "to-")
	})
	if fmt.Sprint(got.Packets) != sent {
		t.Errorf("%d packets in the records of both exporters, %s were sent", got.Packets, sent)
	}
}

// TestProfile: profiles are for root and the agent's own user, over the socket.
func TestProfile(t *testing.T) {
	t.Parallel()
	h := labtest.NewHost(t)
	get := func(a *agent, path string) (code int, body string) {
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
		}}}
		defer client.CloseIdleConnections()
		resp, err := client.Get("http://agent/debug/pprof/" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(all)
	}
	open := filepath.Join(openDir(t), "agent.sock")
	with := start(t, setup{host: h, config: quick + "interfaces: [lo]\napi: {socket: " + open + "}\n", args: []string{"--pprof"}})
	with.socket = open
	for path, begins := range map[string]string{
		"": "allocs\nblock\n", "heap?debug=1": "heap profile: ", "goroutine?debug=1": "goroutine profile: ", "heap": "\x1f\x8b",
		"profile?seconds=0.1": "\x1f\x8b", "trace?seconds=0.1": "go 1.",
	} {
		if code, body := get(with, path); code != http.StatusOK || !strings.HasPrefix(body, begins) {
			t.Errorf("root: %q: %d, %.40q, want %q", path, code, body, begins)
		}
	}
	for path, want := range map[string]int{"nothing": http.StatusNotFound, "trace?seconds=x": http.StatusBadRequest} {
		if code, _ := get(with, path); code != want {
			t.Errorf("root: %q: %d, want %d", path, code, want)
		}
	}
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	r := execute(t, nil, append(nobody(), "/usr/bin/python3", "-c", `import socket,sys
s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b"GET /debug/pprof/heap HTTP/1.0\r\n\r\n"); print(s.recv(100).decode().split()[1])`, with.socket)...)
	if strings.TrimSpace(r.stdout) != "403" {
		t.Errorf("nobody: %s%s", r.stdout, r.stderr)
	}
	without := start(t, setup{host: h, config: quick + "interfaces: [lo]\n"})
	if code, _ := get(without, "heap?debug=1"); code != http.StatusNotFound {
		t.Errorf("without --pprof: %d", code)
	}
}

// TestReloadPolicies: the MTU headroom follows the policies of a reload.
func TestReloadPolicies(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	mtu := ipv6MTU(t, alpha)
	config := func(iface string) string {
		return quick + "interfaces: [to-*]\npdm: {policies: [{to: '::/0', proto: tcp, interface: '" + iface + "'}]}\n"
	}
	a := start(t, setup{host: alpha, config: config("eth*")})
	wait := func(lower bool) {
		t.Helper()
		await.Success(t, func() error {
			if now := ipv6MTU(t, alpha); (now != mtu) != lower {
				return notYet("MTU %s, %s before", now, mtu)
			}
			return nil
		})
	}
	wait(false)
	a.reload(t, config("to-*"), "configuration reloaded")
	wait(true)
	status := a.status(t)
	if s := pdmservice.StatusOf(&status); s == nil || len(s.Policies) != 1 || !strings.Contains(s.Policies[0].Text, "to-*") {
		t.Errorf("policies in force: %+v", s)
	}
	a.reload(t, config("eth*"), "configuration reloaded")
	wait(false)
	a.reload(t, quick+"interfaces: [to-*]\n", "key=pdm.policies")
	a.stop(t)
}

// TestReloadAddsTun: an agent of named Ethernet interfaces has no programs for a tun device, says so at a reload, and goes on; one that
// keeps its privileges, or whose interfaces are not all named, takes it.
func TestReloadAddsTun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, interfaces string
		args             []string
		state            string
	}{
		{"named", "near", nil, "failed"},
		{"a glob", "nea*", nil, "attached"},
		{"absent", "near, absent0", nil, "attached"},
		{"privileges", "near", []string{"--keep-privileges"}, "attached"},
	} {
		h := oneLink(t)
		must(t, h, "ip", "tuntap", "add", "tun0", "mode", "tun")
		must(t, h, "ip", "link", "set", "tun0", "up")
		a := start(t, setup{host: h, config: quick + "interfaces: [" + c.interfaces + "]\n", args: c.args})
		a.reload(t, quick+"interfaces: ["+c.interfaces+", tun0]\n", "configuration reloaded")
		await.Success(t, func() error {
			states := map[string]int{}
			s := a.status(t)
			for _, hook := range s.Hooks {
				states[hook.Iface+" "+hook.State]++
			}
			if states["near attached"] != 2 || states["tun0 "+c.state] == 0 {
				return notYet("%s: %v", c.name, states)
			}
			return nil
		})
		if remedy := "restart it, or start it with --keep-privileges"; c.state == "failed" {
			a.says(t, remedy)
		} else if strings.Contains(a.stderr.String(), remedy) {
			t.Errorf("%s: the log asks for a restart:\n%s", c.name, a.stderr)
		}
		a.stop(t)
	}
}
