package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// clientOn is an HTTP client on a host.
func clientOn(h *lab.Host) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = h.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}}
}

// request is the status and the body of an answer to a bearer.
func request(t *testing.T, client *http.Client, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodGet {
		req.Body = nil
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

type consoleToken struct{ Name, Role, Token, Hash string }

// newToken is `waymark console token`.
func newToken(t *testing.T, name, role string) (out consoleToken) {
	t.Helper()
	r := waymark(t, "console", "token", name, "--role", role, "-o", "json")
	wants(t, r, 0)
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestConsole: tokens that the command makes let their bearers in, by role; a reload exchanges them without a restart, and
// a bad one changes nothing.
func TestConsole(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	reader, admin, next := newToken(t, "r", "read"), newToken(t, "a", "admin"), newToken(t, "r", "read-anonymised")
	line := func(of consoleToken) string { return fmt.Sprintf("%q", of.Name+":"+of.Role+":"+of.Hash) }
	config := func(tokens ...string) string {
		return quick + "interfaces: [LINKS]\ngate: {interfaces: [to-*]}\nconsole: {listen: '127.0.0.1:8474', tokens: [" + strings.Join(tokens, ", ") + "]}\n"
	}
	a := start(t, setup{host: alpha, config: config(line(reader), line(admin))})
	client, url := clientOn(alpha), "http://127.0.0.1:8474"
	get := func(token string) int {
		code, _ := request(t, client, http.MethodGet, url+"/api/v1/status", token, "")
		return code
	}
	if r, w, n := get(reader.Token), get(admin.Token), get(""); r != 200 || w != 200 || n != 401 {
		t.Errorf("reader %d, admin %d, nobody %d", r, w, n)
	}
	rules := fmt.Sprintf(`{"apply":"drop udp dst %s dst port 9\n"}`, beta.Addr6())
	if code, body := request(t, client, http.MethodPost, url+"/api/v1/rules", reader.Token, rules); code != 403 {
		t.Errorf("rules of a reader: %d %s", code, body)
	}
	if code, body := request(t, client, http.MethodPost, url+"/api/v1/rules", admin.Token, rules); code != 200 {
		t.Errorf("rules of an admin: %d %s", code, body)
	}
	a.rule(t, fmt.Sprintf("drop udp dst %s dst port 9", beta.Addr6()))
	if !strings.Contains(a.stderr.String(), `msg="console: asked for a change" user=a`) {
		t.Errorf("no line about the change: %s", a.stderr)
	}

	a.reload(t, config(line(next)), "configuration reloaded")
	if before, after := get(reader.Token), get(next.Token); before != 401 || after != 200 {
		t.Errorf("after the reload, the old token %d, the next one %d", before, after)
	}
	if _, body := request(t, client, http.MethodGet, url+"/api/v1/rules", next.Token, ""); !strings.Contains(body, "drop udp") || strings.Contains(body, beta.Addr6().String()) {
		t.Errorf("rules for read-anonymised: %s", body)
	}
	a.reload(t, config(`"r:read:abc"`), "not the 64 hexadecimal digits of a hash")
	if code := get(next.Token); code != 200 {
		t.Errorf("after a bad reload: %d", code)
	}
	s := a.status(t)
	if s.Access == nil || s.Access.Console == nil || s.Access.Console.Tokens != 1 || s.Access.Console.Refused["credentials"] == 0 {
		t.Errorf("status %+v", s.Access)
	}
	if r := a.ask(t, "status"); !strings.Contains(r.stdout, "access  socket for root and group root; console http://127.0.0.1:8474 for 1 token; 0 sessions, refused ") {
		t.Errorf("status: %s", r.stdout)
	}
}

// TestConsoleCommand: `waymark console` prints a link that works once, for its user alone.
func TestConsoleCommand(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\n"})
	c := spawn(t, alpha, exec.Command(program, "console", "--socket", a.socket))
	var link string
	await.Success(t, func() error {
		var whole bool
		if link, _, whole = strings.Cut(c.stdout.String(), "\n"); !whole {
			return notYet("no link: %s", c.stdout)
		}
		return nil
	})
	stranger := exec.Command("curl", "-s", link)
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var out bytes.Buffer
	stranger.Stdout = &out
	if err := alpha.Do(stranger.Run); err != nil || !strings.Contains(out.String(), "not for the user 65534") {
		t.Errorf("another user: %v %s", err, &out)
	}
	client := clientOn(alpha)
	if code, body := request(t, client, http.MethodGet, link, "", ""); code != 200 {
		t.Errorf("link: %d %s", code, body)
	}
	if code, body := request(t, client, http.MethodGet, link, "", ""); code != 401 {
		t.Errorf("link, again: %d %s", code, body)
	}
	c.signal(unix.SIGINT)
	c.wait(t)
	if code := c.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C: %s", code, c.stderr)
	}
	wants(t, waymark(t, "console", "--socket", a.path("none.sock")), 1, "no agent answers on")
}
