package access

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
)

// logIn sends the form with a token.
func (c *console) logIn(t *testing.T, token string) *http.Response {
	t.Helper()
	form := strings.NewReader(url.Values{"token": {token}}.Encode())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+sessionPath, form)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.pki.client(t, ""), DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// TestSession: a browser without credentials gets the form, exchanges a token for a cookie that no script and no other site
// can use, and has the role of the token until it logs out, or the token leaves the configuration.
func TestSession(t *testing.T) {
	p := newPKI(t)
	c := start(t, configuration(p), p)
	page := c.response(t, "GET", "/", "", nil, "Accept", "text/html")
	page.Body.Close()
	if page.StatusCode != http.StatusSeeOther || page.Header.Get("Location") != sessionPath {
		t.Fatalf("without credentials: %s to %q", page.Status, page.Header.Get("Location"))
	}
	if code, body := c.ask(t, "GET", sessionPath, "", "Accept", "text/html"); code != 200 || !strings.Contains(body, `<form method="post" action="/session">`) || strings.Contains(body, "<script") {
		t.Fatalf("form: %d %s", code, body)
	}
	if resp := c.logIn(t, "waymark_wrong"); resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 {
		t.Fatalf("wrong token: %s, %v", resp.Status, resp.Cookies())
	}
	resp := c.logIn(t, readToken)
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) != 1 {
		t.Fatalf("login: %s, %v", resp.Status, resp.Cookies())
	}
	cookie := resp.Cookies()[0]
	if cookie.Name != "__Host-waymark" || !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("cookie %v", cookie)
	}
	has := []string{"Cookie", cookie.Name + "=" + cookie.Value}
	if code, body := c.ask(t, "GET", sessionPath, "", has...); code != 200 || body != `{"name":"r","role":"read","by":"session"}`+"\n" {
		t.Errorf("who: %d %s", code, body)
	}
	if code, body := c.ask(t, "POST", "/api/v1/word", "", has...); code != http.StatusForbidden {
		t.Errorf("a reader's change: %d %s", code, body)
	}

	// A token that leaves the configuration takes its sessions with it; others go on.
	other := c.logIn(t, adminToken).Cookies()[0]
	cfg := load(t, strings.Replace(configuration(p), hexHash(readToken), hexHash("waymark_next"), 1))
	apply, err := c.server.Prepare(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := c.ask(t, "GET", "/livez", "", has...); code != 200 {
		t.Errorf("before the reload: %d", code)
	}
	apply()
	for want, headers := range map[int][][]string{
		401: {has, {"Authorization", "Bearer " + readToken}},
		200: {{"Cookie", other.Name + "=" + other.Value}, {"Authorization", "Bearer waymark_next"}},
	} {
		for _, h := range headers {
			if code, body := c.ask(t, "GET", "/livez", "", h...); code != want {
				t.Errorf("after the reload, %s: %d %s, want %d", h[0], code, body, want)
			}
		}
	}
	has = []string{"Cookie", other.Name + "=" + other.Value}
	if code, _ := c.ask(t, "DELETE", sessionPath, "", has...); code != http.StatusNoContent {
		t.Errorf("logout: %d", code)
	}
	if code, _ := c.ask(t, "GET", "/livez", "", has...); code != 401 {
		t.Errorf("after the logout: %d", code)
	}
}

// TestFailedReload: files that are not what they should be leave everything as it is.
func TestFailedReload(t *testing.T) {
	p := newPKI(t)
	c := start(t, configuration(p), p)
	p.write(t, "broken.pem", "NOTHING", []byte("x"))
	for text, with := range map[string][2]string{
		"tls.client_ca: " + p.path("broken.pem") + ": no certificate in it": {p.path("ca.pem"), p.path("broken.pem")},
		"no such file": {p.path("server.key"), p.path("gone.key")},
		"tls: private key does not match public key": {p.path("server.key"), p.path("chief.key")},
	} {
		cfg := load(t, strings.Replace(configuration(p), with[0], with[1], 1))
		if _, err := c.server.Prepare(&cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	if code, _ := c.ask(t, "GET", "/livez", "chief"); code != 200 {
		t.Errorf("after failed reloads: %d", code)
	}
}

// TestNewCertificate: files that are replaced under their names count from the next reload on, without another listener.
func TestNewCertificate(t *testing.T) {
	p := newPKI(t)
	c := start(t, configuration(p), p)
	before := c.server.Status(&config.API{}, time.Now())
	other := newPKI(t)
	other.copyTo(t, p, "soon.pem", "server.pem")
	other.copyTo(t, p, "soon.key", "server.key")
	cfg := load(t, configuration(p))
	apply, err := c.server.Prepare(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	apply()
	if len(before.Warnings) > 0 || len(before.Console.Certificates) != 2 {
		t.Errorf("before: %+v", before)
	}
	after := c.server.Status(&config.API{}, time.Now())
	if len(after.Warnings) != 1 || !strings.Contains(after.Warnings[0], "the certificate soon (console) ends on") {
		t.Errorf("after: %v", after.Warnings)
	}
	c.pki = other
	if code, _ := c.ask(t, "GET", "/livez", "", "Authorization", "Bearer "+readToken); code != 200 {
		t.Errorf("with the new certificate: %d", code)
	}
}

// TestSessionsAreBounded: the one that was used least recently makes room, and each ends some day.
func TestSessionsAreBounded(t *testing.T) {
	now := epoch
	s := newSessions(func() time.Time { return now })
	first, second := s.start(hash{1}), s.start(hash{2})
	for range maxSessions - 2 {
		now = now.Add(time.Second)
		s.start(hash{3})
	}
	if _, ok := s.token(first); !ok {
		t.Fatal("a session ended before there were too many")
	}
	s.start(hash{4})
	if _, ok := s.token(second); ok || s.count() != maxSessions {
		t.Errorf("the session that was used least recently goes on; there are %d", s.count())
	}
	for ; now.Before(epoch.Add(sessionLength)); now = now.Add(sessionIdle / 2) {
		if token, ok := s.token(first); !ok || token != (hash{1}) {
			t.Fatalf("a session in use ended after %v", now.Sub(epoch))
		}
	}
	now = now.Add(time.Second)
	if _, ok := s.token(first); ok {
		t.Error("a session goes on for ever")
	}
	idle := s.start(hash{5})
	now = now.Add(sessionIdle + time.Second)
	if _, ok := s.token(idle); ok {
		t.Error("an idle session goes on")
	}
}
