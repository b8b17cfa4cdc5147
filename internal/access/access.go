// Package access decides who may ask the agent over TCP. Input: connections, requests, and the section console of the
// configuration. Output: requests of known callers, with their role, to the handler behind it; everyone else gets an answer
// that says what is missing. It also serves `waymark console`, which brings one user's browser to the agent's unix socket.
// Callers: the agent runs the Server, the command line the Local.
//
// A request passes, in this order:
//
//	the TLS handshake      which asks for a certificate, and refuses none
//	guard                  names under which the agent is reached, other origins, headers of answers
//	identify               certificate, bearer token, header of a proxy, or session
//	the rights of a role   read-anonymised: see anonymise
package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/config"
)

// Deps are what a Server is given.
type Deps struct {
	Handler http.Handler // what callers are let through to
	// Serve runs an HTTP server on a listener until ctx ends.
	Serve func(ctx context.Context, class string, l net.Listener, h http.Handler) error
	Log   *slog.Logger
}

// Server is the console's listener.
type Server struct {
	listen   string
	deps     Deps
	listener net.Listener
	settings atomic.Pointer[settings]
	sessions *sessions
	requests counts // by role
	refusals counts // by reason
}

// New reads the files that the configuration names; nil: it has no console.
func New(c *config.Config, deps Deps) (*Server, error) {
	cfg := Section.Of(c)
	if cfg.Listen == "" {
		return nil, nil
	}
	set, err := compile(&cfg, nil)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	s := &Server{listen: cfg.Listen, deps: deps, sessions: newSessions(time.Now)}
	s.settings.Store(set)
	return s, nil
}

// Listen binds the port.
func (s *Server) Listen() error {
	if s == nil {
		return nil
	}
	l, err := net.Listen("tcp", s.listen)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("listen for the console: %w; set console.listen to another port, or stop what has it (ss -ltnp)", err)
	case err != nil:
		return fmt.Errorf("listen for the console: %w; set console.listen to an address of this host and a port", err)
	}
	s.listener = l
	return nil
}

// Close gives back what Listen bound, when Run is not going to.
func (s *Server) Close() {
	if s != nil && s.listener != nil {
		s.listener.Close()
	}
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	l := s.listener
	if s.settings.Load().tls != nil {
		l = tls.NewListener(l, &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return s.settings.Load().tls, nil
			},
		})
	}
	return s.deps.Serve(ctx, "console", l, s.Handler())
}

// Prepare reads the next configuration, with the files that it names; apply makes it effective.
func (s *Server) Prepare(c *config.Config) (apply func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	cfg := Section.Of(c)
	set, err := compile(&cfg, s.settings.Load())
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	return func() { s.settings.Store(set) }, nil
}

// Handler answers requests of known callers.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := s.settings.Load()
		harden(w.Header())
		if refused := set.guard(r); refused != nil {
			s.refuse(w, refused)
			return
		}
		if r.URL.Path == sessionPath {
			s.session(w, r, set)
			return
		}
		caller, refused := s.identify(r, set)
		if refused != nil {
			if refused.Status == http.StatusUnauthorized && set.canLogIn(r) {
				http.Redirect(w, r, sessionPath, http.StatusSeeOther)
				return
			}
			s.refuse(w, refused)
			return
		}
		s.serve(w, r, set, caller)
	})
}
