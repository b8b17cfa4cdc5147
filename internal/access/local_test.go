package access

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// otherUser has the test binary act as another local user: it gets the URL in the variable.
const otherUser = "WAYMARK_TEST_OTHER_USER"

func TestMain(m *testing.M) {
	if url := os.Getenv(otherUser); url != "" {
		code, body := get(http.DefaultClient, url)
		fmt.Println(code, body)
		return
	}
	os.Exit(m.Run())
}

func get(client *http.Client, url string, headers ...string) (int, string) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// local is waymark console in front of an agent that answers with what it was asked.
func local(t *testing.T) (l *Local, log *bytes.Buffer) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	agent := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s host=%s cookies=%d", r.Method, r.URL, r.Host, len(r.Cookies()))
	})}}
	agent.Start()
	t.Cleanup(agent.Close)
	log = &bytes.Buffer{}
	if l, err = NewLocal(socket, 0, Users(), slog.New(slog.NewTextHandler(log, nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l, log
}

// TestLocal: the link works once, for a browser that keeps the cookie; what it asks reaches the agent.
func TestLocal(t *testing.T) {
	l, _ := local(t)
	base := "http://" + l.Addr().String()
	jar := &oneCookie{}
	browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	if code, body := get(browser, base+"/api/v1/status"); code != 401 || !strings.Contains(body, "has no session") {
		t.Errorf("without a session: %d %s", code, body)
	}
	if code, body := get(browser, base+sessionPath+"?token=wrong"); code != 401 || !strings.Contains(body, "run waymark console again") {
		t.Errorf("wrong link: %d %s", code, body)
	}
	link := l.URL()
	if code, body := get(browser, link); code != 200 || !strings.Contains(body, `url=/`) {
		t.Fatalf("link: %d %s", code, body)
	}
	if c := jar.cookie; c == nil || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
		t.Fatalf("cookie %v", c)
	}
	if code, body := get(browser, base+"/api/v1/flows?by=src"); code != 200 || body != "GET /api/v1/flows?by=src host=waymark cookies=0" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(browser, base+sessionPath); code != 200 || !strings.Contains(body, `"role":"read"`) {
		t.Errorf("who: %d %s", code, body)
	}
	for _, w := range []struct {
		what    string
		client  *http.Client
		path    string
		headers []string
		want    int
	}{
		{"link, again", http.DefaultClient, strings.TrimPrefix(link, base), nil, 401},
		{"rebound name", browser, "/", []string{"Host", "evil.example"}, 403},
		{"page elsewhere", browser, "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"page elsewhere, old browser", browser, "/", []string{"Origin", "http://evil.example"}, 403},
		{"localhost", browser, "/", []string{"Host", "localhost:1"}, 200},
		{"another browser", http.DefaultClient, "/", nil, 401},
	} {
		if code, body := get(w.client, base+w.path, w.headers...); code != w.want {
			t.Errorf("%s: %d %s, want %d", w.what, code, body, w.want)
		}
	}
	resp, err := browser.Post(base+"/api/v1/word", "application/json", strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a change: %s", resp.Status)
	}
}

// TestAnotherUser gets nothing, even with the link; and the link is not used up by that.
func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	l, log := local(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{otherUser + "=" + l.URL()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "403 ") || !strings.Contains(string(out), "not for the user 65534") {
		t.Fatalf("%v: %s", err, out)
	}
	if code, body := get(http.DefaultClient, l.URL()); code != 200 {
		t.Errorf("the link after that: %d %s", code, body)
	}
	if !strings.Contains(log.String(), "uid=65534") {
		t.Errorf("log %s", log)
	}
}

// oneCookie is a browser's store of cookies.
type oneCookie struct{ cookie *http.Cookie }

// SetCookies implements http.CookieJar.
func (o *oneCookie) SetCookies(_ *url.URL, all []*http.Cookie) {
	for _, c := range all {
		o.cookie = c
	}
}

// Cookies implements http.CookieJar.
func (o *oneCookie) Cookies(*url.URL) []*http.Cookie {
	if o.cookie == nil {
		return nil
	}
	return []*http.Cookie{o.cookie}
}
