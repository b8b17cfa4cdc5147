package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// newLab makes hosts that go with the test. What they send is whole packets, so
// that interfaces and probe count the same things.
func newLab(t *testing.T) (l *lab.Lab, alpha, beta *lab.Host) {
	t.Helper()
	l = labtest.New(t, lab.Config{Topology: "pair"})
	if err := l.SetOffloads(lab.TSO|lab.USO|lab.GSO, false); err != nil {
		t.Fatal(err)
	}
	return l, l.Host("alpha"), l.Host("beta")
}

// setup is how an agent is started.
type setup struct {
	host   *lab.Host
	config string   // YAML; api.socket is set besides, unless it is there
	args   []string // after `waymark run`
	wrap   []string // a program that starts it
	adjust func(*exec.Cmd)
}

// agent is `waymark run`.
type agent struct {
	*process
	dir    string
	socket string
	host   *lab.Host
}

// quick are timeouts with which a test need not wait.
const quick = "flow: {max_entries: 4096, scan_interval: 50ms, idle_timeout: 500ms, active_timeout: 2s}\n"

// start runs an agent until it says that it counts.
func start(t *testing.T, s setup) *agent {
	t.Helper()
	a, ready := launch(t, s)
	select {
	case <-ready:
	case <-a.ended:
		t.Fatalf("the agent ended before it was ready, exit code %d", a.ProcessState.ExitCode())
	case <-time.After(await.Patience):
		a.signal(unix.SIGQUIT) // it tells what each goroutine does
		a.wait(t)
		t.Fatalf("the agent was not ready within %v", await.Patience)
	}
	return a
}

// launch runs an agent; ready is closed when it counts.
func launch(t *testing.T, s setup) (a *agent, ready chan struct{}) { return launchTo(t, s, nil) }

// launchTo is launch with a file or pipe as standard output.
func launchTo(t *testing.T, s setup, stdout *os.File) (a *agent, ready chan struct{}) {
	t.Helper()
	a = &agent{dir: t.TempDir(), host: s.host}
	a.socket = filepath.Join(a.dir, "agent.sock")
	file := filepath.Join(a.dir, "waymark.yaml")
	if err := os.WriteFile(file, []byte(a.expand(s.config)), 0o644); err != nil {
		t.Fatal(err)
	}
	argv := append(append(append([]string{}, s.wrap...), program, "run", "--config", file), s.args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	notify := filepath.Join(a.dir, "notify")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify, "STATE_DIRECTORY="+filepath.Join(a.dir, "state"))
	ready = make(chan struct{})
	listenReady(t, notify, ready)
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if s.adjust != nil {
		s.adjust(cmd)
	}
	a.process = spawn(t, s.host, cmd)
	return a, ready
}

// expand is a configuration in the agent's folder, with its socket.
func (a *agent) expand(yaml string) string {
	yaml = strings.ReplaceAll(yaml, "DIR", a.dir)
	if a.host != nil {
		links := make([]string, len(a.host.Interfaces))
		for i := range a.host.Interfaces {
			links[i] = a.host.Interfaces[i].Name
		}
		yaml = strings.ReplaceAll(yaml, "LINKS", strings.Join(links, ", "))
	}
	if !strings.Contains(yaml, "api:") {
		yaml += "\napi: {socket: " + a.socket + "}\n"
	}
	return yaml
}

// listenReady is what systemd does with a unit of Type=notify.
func listenReady(t *testing.T, path string, ready chan struct{}) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 4096)
		for isReady := false; ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			if !isReady && strings.Contains("\n"+string(b[:n]), "\nREADY=1") {
				isReady = true
				close(ready)
			}
		}
	}()
}

// path is a file of the agent's folder.
func (a *agent) path(name string) string { return filepath.Join(a.dir, name) }

// ask runs a verb against the agent.
func (a *agent) ask(t *testing.T, verb string, args ...string) result {
	t.Helper()
	return waymark(t, append([]string{verb, "--socket", a.socket}, args...)...)
}

// status is what `waymark status -o json` shows, without a process for each question: tests ask until something is so.
func (a *agent) status(t *testing.T) (s obs.Status) {
	t.Helper()
	a.page(t, "/api/v1/status", &s)
	return s
}

// page reads what the API has at a path.
func (a *agent) page(t *testing.T, path string, into any) {
	t.Helper()
	client := http.Client{Timeout: await.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", a.socket)
		},
	}}
	answer, err := client.Get("http://waymark" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(into); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, answer.Status, err)
	}
}

// prints checks that a command prints in JSON what the API has at a path, in the part that part takes: the rest goes on.
func prints[T any](t *testing.T, a *agent, path string, r result, part func(T) any) {
	t.Helper()
	var printed, has T
	if err := json.Unmarshal([]byte(r.stdout), &printed); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	a.page(t, path, &has)
	var texts [2]string
	for i, v := range []T{has, printed} {
		text, err := json.MarshalIndent(part(v), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Errorf("%s has\n%s\nand the command prints\n%s", path, texts[0], texts[1])
	}
}

// stop ends the agent as a service manager does, and holds it to its promise.
func (a *agent) stop(t *testing.T) {
	t.Helper()
	a.signal(unix.SIGTERM)
	if code := a.wait(t); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
}

// logged waits for the first line with a message, and returns when the agent wrote it.
func (a *agent) logged(t *testing.T, message string) (at time.Time) {
	t.Helper()
	await.Success(t, func() error {
		for line := range strings.Lines(a.stderr.String()) {
			if !strings.Contains(line, "msg="+message) && !strings.Contains(line, `msg="`+message) {
				continue
			}
			stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			var err error
			at, err = time.Parse(time.RFC3339Nano, stamp)
			return err
		}
		return notYet("no line %q in the log: %s", message, a.stderr)
	})
	return at
}

// covered waits until a drain that began after the call saw all that every
// interface counted, and nothing but a ping or so came while it did.
func (a *agent) covered(t *testing.T) (s obs.Status) {
	t.Helper()
	earlier := a.status(t).Drain.Count + 1 // with the one under way
	await.Success(t, func() error {
		s = a.status(t)
		if s.Drain.Count <= earlier {
			return notYet("%d drains", s.Drain.Count)
		}
		if len(s.Interfaces) == 0 {
			return notYet("no interface is counted")
		}
		for _, i := range s.Interfaces {
			if i.Coverage != 1 || i.IfaceBytes-i.IfaceBytesMin > 1000 {
				return notYet("coverage of %s %s: %+v", i.Iface, i.Direction, i)
			}
		}
		return nil
	})
	return s
}

// hook is the state of the agent on an interface, in one direction.
func hook(s obs.Status, iface string) (obs.Hook, error) {
	for _, h := range s.Hooks {
		if h.Iface == iface {
			return h, nil
		}
	}
	return obs.Hook{}, fmt.Errorf("no hook on %s in %+v", iface, s.Hooks)
}

// exists reports whether something is at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}
