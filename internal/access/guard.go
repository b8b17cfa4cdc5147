package access

import (
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/waymark-net/waymark/internal/api"
)

// harden sets the headers of every answer. Handlers replace those for which they know better.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// guard refuses what a page of another site makes a browser send.
func (s *settings) guard(r *http.Request) *api.Error {
	switch {
	case !s.isOwnName(hostOf(r), localAddr(r)):
		return &api.Error{Status: http.StatusForbidden, What: fmt.Sprintf("host %q is not the console", r.Host), How: "add its name to console.hosts"}
	case isCrossOrigin(r):
		return &api.Error{Status: http.StatusForbidden, What: "a page of another origin sent this request", How: "open the console itself"}
	}
	return checkChange(r)
}

// checkChange refuses what a form of a page could send.
func checkChange(r *http.Request) *api.Error {
	if r.Method != http.MethodPost || r.URL.Path == sessionPath {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &api.Error{Status: http.StatusUnsupportedMediaType, What: "a change must be JSON", How: "send Content-Type: application/json"}
	}
	return nil
}

// isOwnName reports whether the agent is meant by the name under which it was asked. A name that is someone else's leads a
// browser here while its page, which came from elsewhere under the same name, may read the answer (DNS rebinding).
func (s *settings) isOwnName(host string, local netip.Addr) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().WithZone("") == local || local.IsLoopback() && addr.IsLoopback() || s.hosts[host]
	}
	if s.hosts[host] || host == "localhost" && local.IsLoopback() {
		return true
	}
	return s.certificate != nil && s.certificate.VerifyHostname(host) == nil
}

// isCrossOrigin reports whether a page of another origin sent a request. Such a page may link here, so that a browser shows
// a page instead of it; nothing else.
func isCrossOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return false
		}
		u, err := url.Parse(origin)
		return err != nil || u.Host != r.Host
	}
	return r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// serve lets a request of a known caller through.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, set *settings, c api.Caller) {
	if r.Method == http.MethodPost {
		s.deps.Log.Info("console: asked for a change", "user", c.Name, "role", c.Role, "by", c.By, "path", r.URL.Path, "from", r.RemoteAddr)
	}
	s.requests.add(string(c.Role))
	r = r.WithContext(api.WithCaller(r.Context(), c))
	// No handler needs them.
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	if c.Role == api.ReadAnonymised {
		set.anonymiser.serve(w, r, s.deps.Handler)
		return
	}
	s.deps.Handler.ServeHTTP(w, r)
}

// reasons are why requests are refused, by the status of the answer.
var reasons = map[int]string{http.StatusUnauthorized: "credentials", http.StatusForbidden: "not_allowed"}

func (s *Server) refuse(w http.ResponseWriter, refused *api.Error) {
	reason, ok := reasons[refused.Status]
	if !ok {
		reason = "request"
	}
	s.refusals.add(reason)
	s.deps.Log.Debug("console: refused", "why", refused)
	if refused.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	refused.Answer(w)
}
