package api

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"os"

	"golang.org/x/sys/unix"
)

// peerKey finds the user at the other end of a unix socket in a connection's context.
type peerKey struct{}

// withPeer notes who is at the other end.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}

// profile serves /debug/pprof/ to root and to the agent's own user, on the unix
// socket alone: a profile shows memory of the agent, and so records.
func (s *Server) profile(mux *http.ServeMux) {
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/cmdline": pprof.Cmdline,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			uid, ok := r.Context().Value(peerKey{}).(uint32)
			if !ok || uid != 0 && uid != uint32(os.Geteuid()) {
				writeError(w, &Error{http.StatusForbidden, "profiles show the agent's memory", "ask over the unix socket as root or as the agent's user"})
				return
			}
			handler(w, r)
		})
	}
}
