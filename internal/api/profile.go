package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"

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

// isOwner reports whether root or the agent's own user asks, on the unix socket.
func isOwner(r *http.Request) bool {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	return ok && (uid == 0 || uid == uint32(os.Geteuid()))
}

// profile serves /debug/pprof/ to root and to the agent's own user, on the unix
// socket alone: a profile shows memory of the agent, and so records. The paths are those of
// net/http/pprof, which itself would make the binary 0.2 MB larger.
func (s *Server) profile(mux *http.ServeMux) {
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/{$}":    profileNames,
		"/debug/pprof/{name}": profileNamed,
		"/debug/pprof/profile": func(w http.ResponseWriter, r *http.Request) {
			profileFor(w, r, pprof.StartCPUProfile, pprof.StopCPUProfile)
		},
		"/debug/pprof/trace": func(w http.ResponseWriter, r *http.Request) { profileFor(w, r, trace.Start, trace.Stop) },
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if !isOwner(r) {
				writeError(w, &Error{http.StatusForbidden, "profiles show the agent's memory", "ask over the unix socket as root or as the agent's user"})
				return
			}
			handler(w, r)
		})
	}
}

// profileNames lists what there is, a name per line.
func profileNames(w http.ResponseWriter, _ *http.Request) {
	names := []string{"profile", "trace"}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	_, _ = io.WriteString(w, strings.Join(names, "\n")+"\n")
}

// profileNamed is one of the runtime's profiles; with ?debug=1 it is text.
func profileNamed(w http.ResponseWriter, r *http.Request) {
	p := pprof.Lookup(r.PathValue("name"))
	if p == nil {
		writeError(w, &Error{http.StatusNotFound, "no profile is called " + strconv.Quote(r.PathValue("name")), "GET /debug/pprof/ lists them"})
		return
	}
	debug, _ := strconv.Atoi(r.FormValue("debug"))
	if p.Name() == "heap" && r.FormValue("gc") != "" {
		runtime.GC()
	}
	_ = p.WriteTo(w, debug)
}

// profileFor records for ?seconds=, by default 30 s.
func profileFor(w http.ResponseWriter, r *http.Request, start func(io.Writer) error, stop func()) {
	seconds := 30 * time.Second
	if text := r.FormValue("seconds"); text != "" {
		s, err := strconv.ParseFloat(text, 64)
		if err != nil || s <= 0 || s > 3600 {
			writeError(w, &Error{http.StatusBadRequest, "seconds=" + text + " is not a number from 0 to 3600", ""})
			return
		}
		seconds = time.Duration(s * float64(time.Second))
	}
	if err := start(w); err != nil {
		writeError(w, &Error{http.StatusConflict, err.Error(), "one profile is recorded at a time"})
		return
	}
	defer stop()
	select {
	case <-time.After(seconds):
	case <-r.Context().Done():
	}
}
