package analyze

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/analyze/join"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/test/await"
)

// client speaks to an analyzer with the certificate of a host; "": without one.
func (s *scene) client(t *testing.T, cert, key string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(s.authority.Certificate)
	cfg := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: cfg}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// push sends bytes as an agent would; change edits the request.
func (s *scene) push(t *testing.T, c *http.Client, body []byte, change ...func(*http.Request)) (status int, text string, header http.Header) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "https://"+s.listen+frame.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(frame.VersionHeader, frame.Version)
	for _, f := range change {
		f(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// TestRefusals sends what no agent of the analyzer may send. Whatever is refused is counted, and nothing of it is kept.
func TestRefusals(t *testing.T) {
	s := newScene(t)
	a, _ := s.start(t, func(c *settings.Config) { c.Hosts = 3 })
	good := s.certificate(t, "athos")
	other, err := OpenAuthority(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreign := certificateOf(t, other, "athos") // the name of a host, of another CA
	revoked := s.certificate(t, "porthos")
	bad := s.certificate(t, "../athos")
	body := bodyOf(1, 5, time.Now().Add(-time.Minute))
	athos := s.client(t, good.Cert, good.Key)

	if status, text, _ := s.push(t, athos, body); status != http.StatusOK || !strings.Contains(text, `"kept":1`) {
		t.Fatalf("a good interval: %d %s", status, text)
	}
	porthos := s.client(t, revoked.Cert, revoked.Key)
	if status, text, _ := s.push(t, porthos, body); status != http.StatusOK {
		t.Fatalf("before it is revoked: %d %s", status, text)
	}
	pair, err := tls.LoadX509KeyPair(revoked.Cert, revoked.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.cfg.Revoked, fmt.Appendf(nil, "# porthos\n%x\n", pair.Leaf.SerialNumber), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(body)
	damaged[len(damaged)/2] ^= 1
	newer := bytes.Clone(body)
	newer[frame.Head] = 99 // the version of the codec
	frame.Finish(newer, 1, 2, 5)
	changed := bytes.Clone(bodyOf(1, 6, time.Now())) // another interval with the identity of the first
	cases := []struct {
		what    string
		client  *http.Client
		body    []byte
		change  func(*http.Request)
		status  int
		says    string
		counted string
	}{
		{"without a certificate", s.client(t, "", ""), body, nil, 401, "no client certificate", refusedNone},
		{"of another CA", s.client(t, foreign.Cert, foreign.Key), body, nil, 401, "not of this analyzer", refusedForeign},
		{"revoked", porthos, body, nil, 403, "is revoked", refusedRevoked},
		{"a name that is a path", s.client(t, bad.Cert, bad.Key), body, nil, 403, "no name of a host", refusedName},
		{"of another version", athos, body, func(r *http.Request) { r.Header.Set(frame.VersionHeader, "99") }, 400, "upgrade the older one", refusedVersion},
		{"damaged", athos, damaged, nil, 400, "not what was written", frame.ReasonDamaged},
		{"of a newer schema", athos, newer, nil, 422, "upgrade the analyzer before its agents", refusedBytes},
		{"another interval of the same identity", athos, changed, nil, 409, "is another one", frame.ReasonOther},
	}
	for _, c := range cases {
		change := []func(*http.Request){}
		if c.change != nil {
			change = append(change, c.change)
		}
		status, text, _ := s.push(t, c.client, c.body, change...)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.what, status, text, c.status, c.says)
		}
		section := a.section()
		if section.Refused[c.counted] == 0 && section.Hosts[0].Refused[c.counted] == 0 {
			t.Errorf("%s: not counted as %s: %+v", c.what, c.counted, section)
		}
	}
	if status, text, _ := s.push(t, athos, body); status != http.StatusOK {
		t.Errorf("the same interval again: %d %s", status, text)
	}
	section := a.section()
	if h := section.Hosts[0]; h.Name != "athos" || h.Records != 5 || h.Intervals != 1 || h.Repeated != 1 || h.Restored != 1 {
		t.Errorf("athos: %+v", h)
	}
	if n := len(section.Hosts); n != 2 {
		t.Errorf("%d hosts, want athos and porthos: nothing of the others may be kept", n)
	}
	page := httptest.NewRecorder()
	a.server.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`waymark_analyze_records_total{host="athos"} 5`, `waymark_analyze_repeated_intervals_total{host="athos"} 1`,
		`waymark_analyze_refused_requests_total{host="",reason="foreign_certificate"} 1`, `waymark_analyze_refused_requests_total{host="athos",reason="other_interval"} 1`,
	} {
		if !strings.Contains(page.Body.String(), line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
	// A list that cannot be read lets nobody in, and says so.
	if err := os.WriteFile(a.cfg.Revoked, []byte("no number\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, text, _ := s.push(t, athos, body); status != http.StatusServiceUnavailable || !strings.Contains(text, ":1: ") {
		t.Errorf("with an unreadable list: %d %s", status, text)
	}
}

// TestFlood has one host send without pause: it has to wait, for as long as the answer says; another is served as before.
func TestFlood(t *testing.T) {
	s := newScene(t)
	a, _ := s.start(t, func(c *settings.Config) { c.Rate = 64 << 10 })
	f := s.certificate(t, "flood")
	body := bodyOf(1, 5000, time.Now())
	client := s.client(t, f.Cert, f.Key)
	ctx, cancel := context.WithCancel(context.Background())
	var flooding sync.WaitGroup
	defer flooding.Wait()
	defer cancel()
	for range 4 {
		flooding.Go(func() {
			for ctx.Err() == nil {
				status, _, header := s.push(t, client, body)
				if status == http.StatusTooManyRequests && header.Get("Retry-After") == "" {
					t.Error("refused without Retry-After")
				}
			}
		})
	}
	await.True(t, "the flood to be refused", func() bool {
		for _, h := range a.section().Hosts {
			if h.Name == "flood" && h.Refused[refusedRate] > 20 {
				return true
			}
		}
		return false
	})
	p := s.pusher(t, s.certificate(t, "quiet"), filepath.Join(t.TempDir(), "queue"))
	for range 10 {
		p.interval(50)
	}
	p.delivered(t)
	for _, h := range a.section().Hosts {
		if h.Name == "quiet" && len(h.Refused) > 0 {
			t.Errorf("the other host was refused: %v", h.Refused)
		}
	}
}

// TestOddAgents are those that something is wrong with: it is named with its remedy, and nothing is lost.
func TestOddAgents(t *testing.T) {
	s := newScene(t)
	a, _ := s.start(t)
	problems := func(name string) string {
		for _, h := range a.section().Hosts {
			if h.Name == name {
				return strings.Join(h.Problems, "\n")
			}
		}
		return ""
	}
	// A clock that is wrong by hours.
	f := s.certificate(t, "late")
	late := s.client(t, f.Cert, f.Key)
	s.push(t, late, bodyOf(1, 1, time.Now()), func(r *http.Request) {
		r.Header.Set(frame.NowHeader, fmt.Sprint(time.Now().Add(-3*time.Hour).UnixNano()))
	})
	if text := problems("late"); !strings.Contains(text, "-3h0m0s off") {
		t.Errorf("a wrong clock: %q", text)
	}
	// Intervals that the agent lost.
	s.push(t, late, bodyOf(5, 1, time.Now()))
	if text := problems("late"); !strings.Contains(text, "3 intervals were lost at the agent") {
		t.Errorf("a gap: %q", text)
	}
	// Two agents with one certificate.
	f = s.certificate(t, "twin")
	twin := s.client(t, f.Cert, f.Key)
	now := time.Now()
	for n := range uint64(4) {
		body := bodyOf(1+n/2, 1, now.Add(time.Duration(n)*time.Second))
		frame.Finish(body, 100+n%2, 1+n/2, 1)
		if status, text, _ := s.push(t, twin, body); status != http.StatusOK {
			t.Fatalf("twins: %d %s", status, text)
		}
	}
	if text := problems("twin"); !strings.Contains(text, "two agents send as twin") {
		t.Errorf("twins: %q", text)
	}
}

// TestJoin has a host join with a token, and send with what it got.
func TestJoin(t *testing.T) {
	s := newScene(t)
	a, _ := s.start(t)
	url := "https://" + s.listen
	token, err := a.tokens.New("aramis", a.authority.Fingerprint(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := a.tokens.New("aramis", [32]byte{1}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	old, err := a.tokens.New("aramis", a.authority.Fingerprint(), time.Now().Add(-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := join.Host(context.Background(), url, token, dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.Key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v %v", info, err)
	}
	for what, refused := range map[string]struct{ token, says string }{
		"used":      {token, "unknown, used or too old"},
		"too old":   {old, "unknown, used or too old"},
		"of others": {wrong, "is not the analyzer that made the token"},
		"garbage":   {"wmjoin-abc", "this is no token"},
	} {
		if _, err := join.Host(context.Background(), url, refused.token, t.TempDir()); err == nil || !strings.Contains(err.Error(), refused.says) {
			t.Errorf("a token that is %s: %v", what, err)
		}
	}
	files, err := os.ReadDir(a.tokens.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.Contains(token, file.Name()) || strings.Contains(wrong, file.Name()) {
			t.Error("a token is kept as it is")
		}
	}
	p := s.pusher(t, f, filepath.Join(t.TempDir(), "queue"))
	p.interval(7)
	p.delivered(t)
	p.check(t, answer(t, filepath.Join(s.dir, "s")))
}

// TestFullDisk has the disk of the analyzer be full for a while: agents keep what they have, status and readiness say what to do.
func TestFullDisk(t *testing.T) {
	s := newScene(t)
	if err := unix.Mount("tmpfs", s.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mount a small tmpfs: %v: run as root", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.dir, unix.MNT_DETACH) })
	var err error
	if s.authority, err = OpenAuthority(s.dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	a, _ := s.start(t)
	await.True(t, "the analyzer to be ready", func() bool { return a.readiness() == nil })
	filler := filepath.Join(s.dir, "filler")
	p := s.pusher(t, s.certificate(t, "athos"), filepath.Join(t.TempDir(), "queue"))
	p.interval(5)
	p.delivered(t)
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	for range 20 {
		p.interval(200)
	}
	await.True(t, "the agent to say what the analyzer says", func() bool {
		return strings.Contains(p.exporter.Status().LastError, "make space below analyze.path")
	})
	if err := a.readiness(); err == nil || !strings.Contains(err.Error(), "athos") {
		t.Errorf("ready with a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.delivered(t)
	p.check(t, answer(t, filepath.Join(s.dir, "s")))
	if err := a.readiness(); err != nil {
		t.Errorf("after there was space again: %v", err)
	}
}

// TestSilent: a host is a problem once it has sent nothing for a while, not when the analyzer has just started.
func TestSilent(t *testing.T) {
	s := newScene(t)
	f := s.certificate(t, "athos")
	_, stop := s.start(t)
	if status, text, _ := s.push(t, s.client(t, f.Cert, f.Key), bodyOf(1, 1, time.Now())); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	stop()
	a, _ := s.start(t)
	h := a.all()[0]
	if list := h.status(a.started.Add(silent/2), a.started, a.devices).Problems; len(list) > 0 {
		t.Errorf("at the start: %q", list)
	}
	if list := h.status(a.started.Add(2*silent), a.started, a.devices).Problems; len(list) != 1 || !strings.Contains(list[0], "it has sent nothing since the analyzer started") {
		t.Errorf("later: %q", list)
	}
}
