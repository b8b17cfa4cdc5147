package access

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
)

// Tokens of the tests.
const (
	readToken      = "waymark_read"
	anonymousToken = "waymark_anonymised"
	adminToken     = "waymark_admin"
	proxyToken     = "waymark_proxy"
)

func hexHash(token string) string {
	h := hashOf(token)
	return hex.EncodeToString(h[:])
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// console is a running server in front of an API with two flows.
type console struct {
	server *Server
	pki    *pki
	url    string
	word   string // what the page that can be changed holds
}

// configuration has one of everything.
func configuration(p *pki) string {
	return fmt.Sprintf(`
console:
  listen: "127.0.0.1:0"
  hosts: [waymark.example]
  role: none
  tls: {cert: %s, key: %s, client_ca: %s}
  users: ["reader:read", "chief:admin", "guest:read-anonymised"]
  tokens: ["r:read:%s", "n:read-anonymised:%s", "a:admin:%s"]
  proxy: {from: [127.0.0.0/8], token: %s}
`, p.path("server.pem"), p.path("server.key"), p.path("ca.pem"), hexHash(readToken), hexHash(anonymousToken), hexHash(adminToken), hexHash(proxyToken))
}

func load(t *testing.T, yaml string) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waymark.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T, yaml string, p *pki) *console {
	t.Helper()
	c := &console{pki: p, word: "old"}
	kept := store.New(store.Default())
	interval := kept.Begin(epoch)
	for i, src := range []string{"128.11.68.132", "2001:db8::1"} {
		dst := netip.MustParseAddr([]string{"129.118.74.4", "2001:db8::2"}[i])
		interval.Add(&flow.Record{
			Iface: "eth0", IfIndex: 2, Src: netip.MustParseAddr(src), Dst: dst, Family: []uint8{4, 6}[i], Proto: 6, SrcPort: 50000, DstPort: 443,
			Counters: flow.Counters{Packets: 10, Bytes: 1000, WireBytes: 1140}, First: epoch, Last: epoch.Add(time.Second),
		})
	}
	interval.End(epoch.Add(10 * time.Second))
	log := slog.New(slog.DiscardHandler)
	back := api.New(api.Config{Profile: true}, api.Deps{
		Origin: flow.Origin{Host: "alpha"}, History: kept, Log: log,
		Status: func() obs.Status { return obs.Status{Host: "alpha"} }, Ready: func() error { return nil },
		Why:           func(context.Context, api.WhyRequest) (any, error) { return "server 128.11.68.132:443 is slow", nil },
		Configuration: func() (api.Configuration, error) { return api.Configuration{YAML: "to: 2001:db8::1"}, nil },
		Metrics:       http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `up{src="128.11.68.132"} 1`) }),
		Streams: []api.Stream{{
			Path: "/api/v1/packets", Private: true,
			Run: func(ctx context.Context, _ func(api.Event)) error { <-ctx.Done(); return nil },
		}},
		Pages: []api.Page{{
			Path: "/api/v1/word", Get: func() (any, error) { return c.word, nil },
			Set: func(change json.RawMessage) (any, error) { c.word = string(change); return c.word, nil },
		}},
	})
	cfg := load(t, yaml)
	var err error
	if c.server, err = New(&cfg, Deps{Handler: back.Handler(), Serve: back.Serve, Log: log}); err != nil {
		t.Fatal(err)
	}
	if err := c.server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	scheme := "http"
	if c.server.settings.Load().tls != nil {
		scheme = "https"
	}
	c.url = scheme + "://" + c.server.Addr().String()
	return c
}

// ask sends a request with headers, as pairs, from a client with a certificate; empty: none.
func (c *console) ask(t *testing.T, method, path, certificate string, headers ...string) (int, string) {
	t.Helper()
	resp := c.response(t, method, path, certificate, strings.NewReader(`"new"`), headers...)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (c *console) response(t *testing.T, method, path, certificate string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	if method != http.MethodPost {
		body = nil
	}
	req, err := http.NewRequestWithContext(t.Context(), method, c.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: c.pki.client(t, certificate), DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// credential is what a request comes with.
type credential struct {
	name, certificate string
	headers           []string
	role              api.Role // none: authenticated, without a role; empty: refused
	says              string   // part of the refusal
}

var credentialCases = []credential{
	{name: "none", says: "no credentials\",\"how\":\"send Authorization"},
	{name: "read token", headers: []string{"Authorization", "Bearer " + readToken}, role: api.Read},
	{name: "anonymised token", headers: []string{"Authorization", "bearer " + anonymousToken}, role: api.ReadAnonymised},
	{name: "admin token", headers: []string{"Authorization", "Bearer " + adminToken}, role: api.Admin},
	{name: "wrong token", headers: []string{"Authorization", "Bearer waymark_wrong"}, says: "this token is not known"},
	{name: "hash as token", headers: []string{"Authorization", "Bearer " + hexHash(adminToken)}, says: "this token is not known"},
	{name: "basic", headers: []string{"Authorization", "Basic YTph"}, says: "this token is not known"},
	{name: "reader's certificate", certificate: "reader", role: api.Read},
	{name: "guest's certificate", certificate: "guest", role: api.ReadAnonymised},
	{name: "chief's certificate", certificate: "chief", role: api.Admin},
	{name: "certificate of nobody known", certificate: "stranger", role: none, says: "stranger has no role here"},
	{name: "certificate of another authority", certificate: "other", says: "CN=other of CN=Other CA: another authority issued it\",\"how\":\"use one of CN=Test CA"},
	{name: "expired certificate", certificate: "expired", says: "it is valid from"},
	{name: "certificate of a server", certificate: "server", says: "it is not for clients"},
	{name: "proxy", headers: []string{"Authorization", "Bearer " + proxyToken, "Remote-User", "chief"}, role: api.Admin},
	{name: "proxy, unknown user", headers: []string{"Authorization", "Bearer " + proxyToken, "Remote-User", "x"}, role: none, says: "x has no role"},
	{name: "forged header", headers: []string{"Remote-User", "chief"}, says: "the proxy does not send its token"},
	{name: "forged header with a token of a reader", headers: []string{"Authorization", "Bearer " + readToken, "Remote-User", "chief"}, says: "the proxy does not send its token"},
	{name: "two users", headers: []string{"Authorization", "Bearer " + proxyToken, "Remote-User", "chief", "Remote-User", "x"}, says: "does not name one user"},
	{name: "no user", headers: []string{"Authorization", "Bearer " + proxyToken, "Remote-User", " "}, says: "does not name one user"},
	{name: "made-up session", headers: []string{"Cookie", "__Host-waymark=x"}, says: "the session has ended"},
}

// pathCase is a path with what each role gets; a role without a row is refused with 403.
type pathCase struct {
	method, path string
	roles        map[api.Role]string // what the answer has in it
}

// everyone has the same answer, apart from addresses.
func everyone(plain, anonymised string) map[api.Role]string {
	return map[api.Role]string{api.Read: plain, api.Admin: plain, api.ReadAnonymised: anonymised}
}

var pathCases = []pathCase{
	{"GET", "/livez", everyone("ok", "ok")},
	{"HEAD", "/readyz", everyone("", "")},
	{"GET", "/metrics", everyone(`"128.11.68.132"`, `"135.242.180.132"`)},
	{"GET", "/api/v1/status", everyone(`"alpha"`, `"alpha"`)},
	{"GET", "/api/v1/flows", everyone(`"src":"2001:db8::1"`, `"src":"4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e"`)},
	{"GET", "/api/v1/flows?by=src/16&filter=ip", everyone(`"128.11.0.0/16"`, `"135.242.0.0/16"`)},
	{"GET", "/api/v1/explain", everyone("intervals", "intervals")},
	{"GET", "/api/v1/why", everyone("server 128.11.68.132:443 is slow", "server 135.242.180.132:443 is slow")},
	{"GET", "/api/v1/config", everyone("to: 2001:db8::1", "to: 4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e")},
	{"GET", "/api/v1/complete?filter=src+192.0.2.x", everyone("192.0.2.x", "192.0.2.x")},
	{"GET", "/api/v1/word", everyone("", "")},
	{"GET", "/session", everyone(`"role":"`, `"role":"read-anonymised"`)},
	{"POST", "/api/v1/word", map[api.Role]string{api.Admin: "new"}},
	{"GET", "/api/v1/packets", nil}, // root and the agent's user, over the unix socket
	{"GET", "/debug/pprof/", nil},   // likewise
}

// TestWhoMayWhat: path × credential × role.
func TestWhoMayWhat(t *testing.T) {
	p := newPKI(t)
	key := p.path("pan.key")
	if err := os.WriteFile(key, publishedKey, 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, configuration(p)+"  anonymise_key: "+key+"\n", p)
	for _, who := range credentialCases {
		for _, at := range pathCases {
			want, part := http.StatusOK, at.roles[who.role]
			switch _, may := at.roles[who.role]; {
			case who.role == "":
				want, part = http.StatusUnauthorized, who.says
			case who.role == none:
				want, part = http.StatusForbidden, who.says
			case !may:
				want, part = http.StatusForbidden, "what"
			}
			if at.method == http.MethodHead {
				part = ""
			}
			code, body := c.ask(t, at.method, at.path, who.certificate, who.headers...)
			if code != want || !strings.Contains(body, part) {
				t.Errorf("%s: %s %s: %d %s, want %d %q", who.name, at.method, at.path, code, body, want, part)
			}
			if who.role == api.ReadAnonymised && (strings.Contains(body, "128.11") || strings.Contains(body, "2001:db8")) {
				t.Errorf("%s: %s shows an address: %s", who.name, at.path, body)
			}
		}
	}
	if c.word != `"new"` {
		t.Errorf("the change by an admin did not arrive: %s", c.word)
	}
	status := c.server.Status(&config.API{}, time.Now()).Console
	if status.Requests[string(api.Admin)] == 0 || status.Refused["credentials"] == 0 || status.Refused["not_allowed"] == 0 {
		t.Errorf("status %+v", status)
	}
}

// TestForgedFromElsewhere: who is not at a proxy's address is refused even with the proxy's token.
func TestForgedFromElsewhere(t *testing.T) {
	p := newPKI(t)
	c := start(t, strings.Replace(configuration(p), "127.0.0.0/8", "192.0.2.1", 1), p)
	code, body := c.ask(t, "GET", "/api/v1/status", "", "Authorization", "Bearer "+proxyToken, "Remote-User", "chief")
	if code != http.StatusUnauthorized || !strings.Contains(body, "is no proxy whose header Remote-User is believed") {
		t.Errorf("%d %s", code, body)
	}
}

// TestAnonymisedQuestions: filters mean the addresses that a caller has seen, and nothing tells about others.
func TestAnonymisedQuestions(t *testing.T) {
	p := newPKI(t)
	key := p.path("pan.key")
	if err := os.WriteFile(key, []byte(hex.EncodeToString(publishedKey)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, configuration(p)+"  anonymise_key: "+key+"\n", p)
	for query, want := range map[string]int{
		"filter=src+135.242.180.132":                        1,
		"filter=net+135.242":                                1,
		"filter=net+135.242/16+and+not+dst+134.136.186.123": 0,
		"filter=src+128.11.68.132":                          0,
		"filter=net+128.11":                                 0,
		"filter=net+128/8+or+net+2001:db8::/32":             0,
		"filter=host+4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e": 1,
		"filter=host+in+(135.242.180.132,2001:db8::1)":      1,
		"filter=not+net+128.11":                             2,
		"filter=port+443":                                   2,
		"filter=port+or":                                    -http.StatusBadRequest,
		"sort=src":                                          -http.StatusForbidden,
		"sort=dst/24":                                       -http.StatusForbidden,
		"sort=bytes&by=src":                                 2,
	} {
		code, body := c.ask(t, "GET", "/api/v1/flows?"+query, "", "Authorization", "Bearer "+anonymousToken)
		if want < 0 {
			if code != -want {
				t.Errorf("%s: %d %s", query, code, body)
			}
			continue
		}
		var a struct{ Rows []json.RawMessage }
		if err := json.Unmarshal([]byte(body), &a); err != nil || code != http.StatusOK || len(a.Rows) != want {
			t.Errorf("%s: %d, %d rows, want %d: %v %s", query, code, len(a.Rows), want, err, body)
		}
	}
}

// TestNames: a name of someone else's that leads here is refused, whatever the credentials (DNS rebinding).
func TestNames(t *testing.T) {
	p := newPKI(t)
	c := start(t, configuration(p), p)
	own := c.server.Addr().String()
	for host, want := range map[string]int{
		own: 200, "localhost": 200, "waymark.example": 200, "WAYMARK.example:8474": 200, "server.example": 200, "127.0.0.1": 200,
		"evil.example": 403, "192.0.2.1": 403, "evil.example:80": 403, "waymark.example.evil.example": 403,
	} {
		if code, body := c.ask(t, "GET", "/livez", "", "Authorization", "Bearer "+readToken, "Host", host); code != want {
			t.Errorf("host %s: %d %s, want %d", host, code, body, want)
		}
	}
}

// TestOrigins: a page of another origin may link here, and nothing else.
func TestOrigins(t *testing.T) {
	p := newPKI(t)
	c := start(t, configuration(p), p)
	for _, w := range []struct {
		method  string
		headers []string
		want    int
	}{
		{"GET", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"GET", []string{"Origin", "https://evil.example"}, 403},
		{"GET", []string{"Origin", "null"}, 403},
		{"GET", []string{"Origin", c.url}, 200},
		{"POST", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"POST", []string{"Origin", "https://evil.example"}, 403},
		{"POST", []string{"Origin", c.url}, 200},
		{"DELETE", []string{"Origin", c.url}, 405},
	} {
		headers := append([]string{"Authorization", "Bearer " + adminToken}, w.headers...)
		if code, body := c.ask(t, w.method, "/api/v1/word", "", headers...); code != w.want {
			t.Errorf("%s %v: %d %s, want %d", w.method, w.headers, code, body, w.want)
		}
	}
	code, _ := c.ask(t, "POST", "/api/v1/word", "", "Authorization", "Bearer "+adminToken, "Content-Type", "text/plain")
	if code != http.StatusOK { // the first header counts, which is JSON
		t.Errorf("two types: %d", code)
	}
}

// TestHeaders: every answer, refusals too, has the headers that a browser needs to keep others out.
func TestHeaders(t *testing.T) {
	p := newPKI(t)
	c := start(t, configuration(p), p)
	for _, path := range []string{"/livez", "/session", "/nothing"} {
		resp := c.response(t, "GET", path, "", nil)
		resp.Body.Close()
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s may be read by %s", path, got)
		}
	}
}

// TestStreamsAreReplaced: what is written piece by piece arrives as it comes, replaced, and other content is refused.
func TestStreamsAreReplaced(t *testing.T) {
	a := &anonymiser{pan: published(t)}
	next := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.URL.Query().Get("type"))
			flush := http.NewResponseController(w)
			_ = flush.Flush()
			for _, part := range []string{"data: 128.11", ".68.132\n\n", "data: 129.118.74.4\n\n"} {
				fmt.Fprint(w, part)
				_ = flush.Flush()
				if strings.HasSuffix(part, "\n") {
					<-next
				}
			}
		}))
	}))
	defer server.Close()
	resp, err := http.Get(server.URL + "?type=text/event-stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"data: 135.242.180.132\n", "data: 134.136.186.123\n"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q, %v; want %q", line, err, want)
		}
		_, _ = lines.ReadString('\n')
		next <- true
	}
	close(next)
	resp, err = http.Get(server.URL + "?type=application/vnd.apache.parquet")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusForbidden || strings.Contains(string(body), "128.11") {
		t.Errorf("%s %s", resp.Status, body)
	}
}
