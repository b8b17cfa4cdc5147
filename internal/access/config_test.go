package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
)

// TestBadConfiguration: each is refused with its place, and what to write instead.
func TestBadConfiguration(t *testing.T) {
	good := hexHash(readToken)
	for yaml, want := range map[string]string{
		`console: {listen: "127.0.0.1:8474"}`:                                                  `:1:19: console.listen: nobody could authenticate, and without that every local user could read all flows; add console.tokens`,
		`console: {listen: "0.0.0.0:8474", tokens: ["a:read:` + good + `"]}`:                   `:1:19: console.listen: "0.0.0.0:8474" can be reached from other hosts, and credentials would cross the network unencrypted; set console.tls.cert`,
		`console: {listen: "[::1]", tokens: ["a:read:` + good + `"]}`:                          `console.listen: "[::1]" is not host:port`,
		`console: {tokens: ["a:read:` + good + `"]}`:                                           `:1:19: console.tokens: console.listen is missing`,
		`console: {listen: "[::1]:1", tokens: ["a:root:` + good + `"]}`:                        `console.tokens[0]: "root" is not known; allowed: read-anonymised, read or admin`,
		`console: {listen: "[::1]:1", tokens: ["a:read:waymark_secret"]}`:                      `:1:39: console.tokens[0].hash: this is the token itself, which others can now read here; make another`,
		`console: {listen: "[::1]:1", tokens: [{name: a, hash: abc}]}`:                         `:1:55: console.tokens[0].hash: not the 64 hexadecimal digits of a hash; write what waymark console token prints`,
		`console: {listen: "[::1]:1", tokens: [{hash: ` + good + `}]}`:                         `console.tokens[0]: an entry without name`,
		`console: {listen: "[::1]:1", tokens: ["a:read:` + good + `","a:admin:` + good + `"]}`: `console.tokens[1]: a second entry for a`,
		`console: {listen: "[::1]:1", proxy: {from: ["::1"]}}`:                                 `:1:45: console.proxy.from[0]: every local user could name any user from there; set console.proxy.token`,
		`console: {listen: "[::1]:1", proxy: {from: [0.0.0.0/0]}}`:                             `console.proxy.from[0]: every host could name any user`,
		`console: {listen: "[::1]:1", proxy: {from: [proxy.example]}}`:                         `console.proxy.from[0]: "proxy.example" is neither an address nor a prefix`,
		`console: {listen: "[::1]:1", proxy: {from: [192.0.2.1], user_header: Authorization}}`: `console.proxy.user_header: "Authorization" is no header that names a user`,
		`console: {listen: "[::1]:1", tls: {client_ca: ca.pem}}`:                               `console.tls.client_ca: cert is missing`,
		`console: {listen: "[::1]:1", tls: {cert: a.pem}, tokens: ["a:read:` + good + `"]}`:    `console.tls.cert: key is missing`,
		`console: {listen: "[::1]:1", role: god, tokens: ["a:read:` + good + `"]}`:             `console.role: "god" is not known`,
	} {
		file := filepath.Join(t.TempDir(), "waymark.yaml")
		if err := os.WriteFile(file, []byte(yaml+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := config.Load(config.Sources{File: file})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n  %v\n  want %s", yaml, err, want)
		}
	}
}

// TestLoopbackNeedsNoCertificate: a tunnel or a proxy on this host does.
func TestLoopbackNeedsNoCertificate(t *testing.T) {
	c := start(t, `console: {listen: "127.0.0.1:0", tokens: ["r:read:`+hexHash(readToken)+`"]}`, nil)
	if code, body := c.ask(t, "GET", "/livez", "", "Authorization", "Bearer "+readToken); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	cookie := c.logIn(t, readToken).Cookies()[0]
	if want := "waymark-" + c.url[strings.LastIndexByte(c.url, ':')+1:]; cookie.Name != want || cookie.Secure || !cookie.HttpOnly {
		t.Errorf("cookie %v, want the name %s", cookie, want)
	}
}

// TestLoopbackIsWarnedOf: a port that asks for nothing is a warning in the status, as long as there is one.
func TestLoopbackIsWarnedOf(t *testing.T) {
	var none *Server
	open := none.Status(&config.API{Listen: "127.0.0.1:8473"}, time.Now())
	if len(open.Warnings) != 1 || !strings.Contains(open.Warnings[0], "every local user can read all flows at 127.0.0.1:8473") || open.Loopback == "" {
		t.Errorf("%+v", open)
	}
	if closed := none.Status(&config.API{}, time.Now()); len(closed.Warnings) > 0 || closed.Loopback != "" {
		t.Errorf("%+v", closed)
	}
}
