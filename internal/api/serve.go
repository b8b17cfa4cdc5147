package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Bounds of a connection that has not asked anything yet, or asks slowly.
const (
	headerTimeout = 5 * time.Second // for a TLS handshake, and for the header of a request
	bodyTimeout   = 30 * time.Second
	idleTimeout   = time.Minute
)

// Run serves until ctx ends, then lets answers under way come to their end.
func (s *Server) Run(ctx context.Context) error {
	if len(s.listeners) == 0 {
		if err := s.Listen(); err != nil {
			return err
		}
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		network := l.Addr().Network()
		go func() { ended <- s.Serve(ctx, network, l, hostGuard(network, s.Handler())) }()
	}
	var errs []error
	for range s.listeners {
		errs = append(errs, <-ended)
		cancel() // the first that fails ends all
	}
	return errors.Join(errs...)
}

// Serve answers on a listener by a handler that calls [Server.Handler], with the bounds of the API, until ctx ends; then
// answers under way come to their end. The connections of each class of listeners are bounded apart.
func (s *Server) Serve(ctx context.Context, class string, l net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.deps.Log.Handler(), slog.LevelDebug),
		// Those who follow end with ctx.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return withPeer(withConn(ctx, c), c) },
		ConnState:   s.connections.follow(class),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the API: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if server.Shutdown(closing) != nil {
		server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// guard refuses what no handler wants to see.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead && !s.isChange(r):
			w.Header().Set("Allow", "GET, HEAD")
			w.Header().Set("Connection", "close")
			writeError(w, &Error{http.StatusMethodNotAllowed, "the API only answers questions", "use GET"})
		default:
			if !s.isChange(r) {
				r.Body = http.MaxBytesReader(w, r.Body, 0)
			}
			s.deadline(w)
			next.ServeHTTP(w, r)
		}
	})
}

// hostGuard refuses a name of someone else's that leads here: a web page that tries to read the API through a visitor's
// browser. The unix socket, which may be forwarded to a port (ssh -L), also takes names that no page can have.
func hostGuard(network string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := HostName(r.Host); !loopbackHost(host) && (network != "unix" || strings.Contains(host, ".") || strings.Contains(host, ":")) {
			writeError(w, &Error{http.StatusForbidden, fmt.Sprintf("host %q is not this host's loopback", r.Host), "use 127.0.0.1, [::1] or localhost"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// HostName is the name or address in a Host header.
func HostName(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func loopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
