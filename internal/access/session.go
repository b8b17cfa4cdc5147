package access

import (
	"encoding/json"
	"fmt"
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
			writePage(w, http.StatusOK, loginPage(""))
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
		writePage(w, http.StatusUnauthorized, loginPage("This token is not known. It must be one whose hash is in console.tokens."))
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

const pageHead = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Waymark</title>
`

// forwardPage goes on to the console from a page of its own: after a redirect from another site, browsers would not send
// the cookie.
const forwardPage = pageHead + `<meta http-equiv="refresh" content="0;url=/">
<p><a href="/">Waymark</a></p>
`

func loginPage(problem string) string {
	if problem != "" {
		problem = `<p role="alert">` + problem + "</p>\n"
	}
	return pageHead + fmt.Sprintf(`<h1>Waymark</h1>
%s<form method="post" action="%s">
<label>Token <input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>Log in</button>
</form>
`, problem, sessionPath)
}

func writePage(w http.ResponseWriter, status int, page string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, page) // the reader may be gone
}
