package access

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/api"
)

// sessionPath is where a browser exchanges a token for a session.
const sessionPath = "/session"

// Bounds of sessions.
const (
	maxSessions   = 256
	sessionIdle   = 8 * time.Hour
	sessionLength = 7 * 24 * time.Hour
	maxForm       = 4 << 10 // bytes
)

// sessions are those of browsers, by the hash of their cookie.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	open map[hash]*session
}

type session struct {
	token      hash // that it was made with
	made, used time.Time
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, open: map[hash]*session{}}
}

// start makes a session; where there are too many, the one that was used least recently ends.
func (s *sessions) start(token hash) (cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxSessions {
		var oldest hash
		for id, one := range s.open {
			if at, ok := s.open[oldest]; !ok || one.used.Before(at.used) {
				oldest = id
			}
		}
		delete(s.open, oldest)
	}
	cookie, now := randomText(), s.now()
	s.open[hashOf(cookie)] = &session{token: token, made: now, used: now}
	return cookie
}

// token is what the session was made with; ok is false for one that has ended.
func (s *sessions) token(cookie string) (token hash, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, now := hashOf(cookie), s.now()
	one := s.open[id]
	if one == nil {
		return token, false
	}
	if now.Sub(one.used) > sessionIdle || now.Sub(one.made) > sessionLength {
		delete(s.open, id)
		return token, false
	}
	one.used = now
	return one.token, true
}

func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, hashOf(cookie))
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// cookieName has the port, since browsers send the cookies of a host to all its ports.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-waymark"
	}
	port := 0
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		port = a.Port
	}
	return "waymark-" + strconv.Itoa(port)
}

func cookieOf(r *http.Request) string {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return c.Value
}

func setCookie(w http.ResponseWriter, r *http.Request, value string) {
	c := &http.Cookie{Name: cookieName(r), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// bySession finds the token of a session, which must still be in the configuration.
func (s *Server) bySession(r *http.Request, set *settings) (c api.Caller, has bool, refused *api.Error) {
	cookie := cookieOf(r)
	if cookie == "" {
		return c, false, nil
	}
	if token, ok := s.sessions.token(cookie); ok {
		if c, ok = set.tokens[token]; ok {
			c.By = bySession
			return c, true, nil
		}
	}
	s.sessions.end(cookie)
	if len(r.Header.Values(set.header)) == 0 && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0) {
		return c, true, unauthorized("the session has ended", "log in again at "+sessionPath)
	}
	return c, false, nil
}

// session answers at sessionPath: GET shows a form, POST takes a token, DELETE ends the session.
func (s *Server) session(w http.ResponseWriter, r *http.Request, set *settings) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if wantsPage(r) {
			writePage(w, http.StatusOK, loginPage("", set.credentialsBesides()))
			return
		}
		caller, refused := s.identify(r, set)
		if refused != nil {
			s.refuse(w, refused)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(caller) // the reader may be gone
	case http.MethodPost:
		s.logIn(w, r, set)
	case http.MethodDelete:
		s.sessions.end(cookieOf(r))
		setCookie(w, r, "")
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST, DELETE")
		s.refuse(w, &api.Error{Status: http.StatusMethodNotAllowed, What: r.Method + " is not for sessions", How: "use GET, POST or DELETE"})
	}
}

func (s *Server) logIn(w http.ResponseWriter, r *http.Request, set *settings) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	h := hashOf(strings.TrimSpace(r.PostFormValue("token")))
	c, ok := set.tokens[h]
	if !ok {
		s.refusals.add("credentials")
		s.deps.Log.Warn("console: refused a login", "from", r.RemoteAddr)
		writePage(w, http.StatusUnauthorized, loginPage("This token is not known. It must be one whose hash is in console.tokens.", set.credentialsBesides()))
		return
	}
	setCookie(w, r, s.sessions.start(h))
	s.deps.Log.Info("console: login", "user", c.Name, "from", r.RemoteAddr)
	writePage(w, http.StatusOK, forwardPage)
}

// wantsPage reports whether a browser shows what is answered.
func wantsPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// canLogIn reports whether a form helps who has been refused: no credential was wrong, there was none.
func (s *settings) canLogIn(r *http.Request) bool {
	return wantsPage(r) && len(s.tokens) > 0 && r.Header.Get("Authorization") == "" && len(r.Header.Values(s.header)) == 0 &&
		(r.TLS == nil || len(r.TLS.PeerCertificates) == 0)
}

// pageStyle is the style of pages without credentials, which load nothing.
const pageStyle = `:root{color-scheme:light dark;--bg:#f4f6f9;--card:#fff;--text:#16202b;--muted:#566373;--line:#c3ccd6;--accent:#0b62a8;--ink:#fff;--high:#b3261e}
@media(prefers-color-scheme:dark){:root{--bg:#0d1218;--card:#151c24;--text:#e6edf4;--muted:#9aa8b7;--line:#3a4755;--accent:#6cb6f2;--ink:#08131d;--high:#ff8a80}}
*{box-sizing:border-box}body{margin:0;padding:12vh 16px 32px;background:var(--bg);color:var(--text);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:430px;margin:0 auto;padding:28px;background:var(--card);border:1px solid var(--line);border-radius:12px}
h1{margin:0 0 16px;font-size:22px}label{display:block;margin-bottom:4px;font-weight:600}a{color:var(--accent)}
input,button{width:100%;min-height:40px;padding:6px 12px;border:1px solid var(--line);border-radius:8px;background:var(--card);color:inherit;font:inherit}
button{margin-top:12px;background:var(--accent);border-color:var(--accent);color:var(--ink);font-weight:600;cursor:pointer}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}p{margin:16px 0 0;color:var(--muted)}[role=alert]{margin:0 0 16px;color:var(--high);font-weight:600}code{font-size:13px;overflow-wrap:anywhere}`

const pageHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Waymark</title>
<style>` + pageStyle + `</style>
`

// forwardPage goes on to the console from a page of its own: after a redirect from another site, browsers would not send
// the cookie.
const forwardPage = pageHead + `<meta http-equiv="refresh" content="0;url=/">
<main><a href="/">Waymark</a></main>
`

// pagePolicy allows that style and the form, and nothing else.
var pagePolicy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'", styleHash())

func styleHash() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// loginPage asks for a token; problem is what was wrong with the last one, ways are the other credentials that count.
func loginPage(problem, ways string) string {
	if problem != "" {
		problem = `<p role="alert">` + problem + "</p>\n"
	}
	if ways != "" {
		ways = "<p>Or " + html.EscapeString(ways) + ".</p>\n"
	}
	return pageHead + fmt.Sprintf(`<main>
<h1>Waymark</h1>
%s<form method="post" action="%s">
<label for="token">Token</label>
<input type="password" id="token" name="token" autocomplete="current-password" required autofocus>
<button>Log in</button>
</form>
<p>No token? An administrator of this host makes one: <code>waymark console token NAME</code></p>
%s</main>
`, problem, sessionPath, ways)
}

func writePage(w http.ResponseWriter, status int, page string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, page) // the reader may be gone
}
