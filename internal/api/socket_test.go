package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSocketMode(t *testing.T) {
	a := start(t, "")
	info, err := os.Stat(a.socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != os.ModeSocket|0o660 {
		t.Errorf("mode %v, want a socket with 0660", got)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(a.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

func TestStaleSocketIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Socket: path}, Deps{})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestLiveSocketIsRefused(t *testing.T) {
	a := start(t, "")
	err := New(Config{Socket: a.socket}, Deps{}).Listen()
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the running agent with pid %d", os.Getpid())) {
		t.Errorf("second agent: %v", err)
	}
	if code, _ := a.get(t, "/livez"); code != 200 {
		t.Errorf("the first one answers %d after that", code)
	}
}

func TestFileInPlaceOfTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := New(Config{Socket: path}, Deps{}).Listen()
	if err == nil || !strings.Contains(err.Error(), "is there and no socket") {
		t.Errorf("Listen = %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("the file is now %q, %v", data, err)
	}
}

func TestLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		err := New(Config{Listen: address}, Deps{}).Listen()
		if err == nil || !strings.Contains(err.Error(), "can be reached from outside") {
			t.Errorf("%s: %v", address, err)
		}
	}
	a := start(t, "127.0.0.1:0")
	addr := a.server.Addrs()[1].String()
	for host, want := range map[string]int{addr: 200, "localhost": 200, "[::1]:80": 200, "waymark": 403, "evil.example:80": 403, "10.0.0.1": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
}

// The unix socket may be forwarded to a port: a name that a page can have is refused there, too.
func TestNamesOnTheSocket(t *testing.T) {
	a := start(t, "")
	for host, want := range map[string]int{"waymark": 200, "localhost:8474": 200, "127.0.0.1": 200, "[::1]:1": 200, "x": 200, "evil.example": 403, "192.0.2.1": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := a.client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
}

func TestSocketGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	err := New(Config{Socket: path, Group: "no-such-group"}, Deps{}).Listen()
	if err == nil || !strings.Contains(err.Error(), "groupadd --system no-such-group") {
		t.Errorf("unknown group: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("another group needs root")
	}
	s := New(Config{Socket: path, Group: "12345"}, Deps{})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Gid != 12345 || info.Mode().Perm() != 0o660 {
		t.Errorf("group %d, mode %v", stat.Gid, info.Mode())
	}
}

func TestNoAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	_, err := NewClient(path).Status(t.Context())
	if !errors.Is(err, ErrNoAgent) || !strings.Contains(err.Error(), path) {
		t.Errorf("no socket: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := NewClient(path).Status(t.Context()); !errors.Is(err, ErrNoAgent) {
		t.Errorf("stale socket: %v", err)
	}
}

// The command line ends with another code when a privilege is missing.
func TestNoPermission(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	err := NewClient("/run/waymark/agent.sock").explain(refused)
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "socket's group") {
		t.Errorf("%v", err)
	}
}
