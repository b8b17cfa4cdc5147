package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/api"
)

// Local brings a browser of this user to the unix socket of the agent: it serves on loopback, to processes of this user
// alone, what the socket answers to the user.
type Local struct {
	log      *slog.Logger
	users    []uint32
	listener net.Listener
	agent    http.RoundTripper
	own      settings
	sessions *sessions

	mu    sync.Mutex
	token string // for one exchange; empty: it was exchanged
}

// Users are whose browsers may connect: this user's and, where sudo started this, the one's who called it.
func Users() []uint32 {
	users := []uint32{uint32(os.Getuid())}
	if caller, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil && users[0] == 0 {
		users = append(users, uint32(caller))
	}
	return users
}

// NewLocal binds a port of 127.0.0.1; 0: any.
func NewLocal(socket string, port uint16, users []uint32, log *slog.Logger) (*Local, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w; choose another port with --port, or leave it out", err)
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return &Local{
		log: log, users: users, listener: listener, sessions: newSessions(time.Now), token: randomText(),
		agent: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", socket)
			},
			DisableCompression: true,
		},
	}, nil
}

// URL is what the browser opens. It works once.
func (l *Local) URL() string {
	return fmt.Sprintf("http://%s%s?token=%s", l.listener.Addr(), sessionPath, l.token)
}

// Addr is where it listens.
func (l *Local) Addr() net.Addr { return l.listener.Addr() }

// Run serves until ctx ends.
func (l *Local) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           http.HandlerFunc(l.answer),
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog:    slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, strangerKey{}, l.isStranger(c))
		},
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the browser: %w", err)
	}
	return nil
}

// strangerKey finds in the context of a request why its connection is refused.
type strangerKey struct{}

// isStranger says why a connection is not one of this user; nil: it is.
func (l *Local) isStranger(c net.Conn) *api.Error {
	uid, err := peerUser(c)
	if err != nil {
		return &api.Error{Status: http.StatusForbidden, What: "whose connection this is cannot be found: " + err.Error(), How: "open the link on this host"}
	}
	for _, own := range l.users {
		if uid == own {
			return nil
		}
	}
	l.log.Warn("refused a connection of another user", "uid", uid)
	return &api.Error{Status: http.StatusForbidden, What: fmt.Sprintf("this console is not for the user %d", uid), How: "run waymark console as that user"}
}

func (l *Local) answer(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	if stranger := r.Context().Value(strangerKey{}).(*api.Error); stranger != nil {
		stranger.Answer(w)
		return
	}
	if refused := l.own.guard(r); refused != nil {
		refused.Answer(w)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		(&api.Error{Status: http.StatusMethodNotAllowed, What: "this console only shows", How: "use the command line for changes"}).Answer(w)
		return
	}
	if token := r.URL.Query().Get("token"); r.URL.Path == sessionPath && token != "" {
		l.exchange(w, r, token)
		return
	}
	if _, ok := l.sessions.token(cookieOf(r)); !ok {
		unauthorized("this browser has no session", "open the link that waymark console printed; it works once, and another run prints another").Answer(w)
		return
	}
	if r.URL.Path == sessionPath {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":"uid %d","role":%q,"by":%q}`+"\n", os.Getuid(), api.Read, bySocket)
		return
	}
	l.forward(w, r)
}

// exchange takes the token for a session, once.
func (l *Local) exchange(w http.ResponseWriter, r *http.Request, token string) {
	l.mu.Lock()
	ok := l.token != "" && same(token, hashOf(l.token))
	if ok {
		l.token = ""
	}
	l.mu.Unlock()
	if !ok {
		l.log.Warn("refused a link that does not work (any more)", "from", r.RemoteAddr)
		unauthorized("this link was used before, or is not of this run", "run waymark console again").Answer(w)
		return
	}
	setCookie(w, r, l.sessions.start(hash{}))
	writePage(w, http.StatusOK, forwardPage)
}

// forward asks the agent, as this user.
func (l *Local) forward(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = "http", "waymark", "waymark", ""
	out.Header.Del("Cookie")
	resp, err := l.agent.RoundTrip(out)
	if err != nil {
		(&api.Error{Status: http.StatusBadGateway, What: "the agent does not answer: " + err.Error(), How: "is it running? start it with: sudo waymark run"}).Answer(w)
		return
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if _, writeErr := w.Write(buffer[:n]); writeErr != nil || flush.Flush() != nil {
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.log.Debug("an answer of the agent ended early", "error", err)
				panic(http.ErrAbortHandler) // so that the browser sees that, too
			}
			return
		}
	}
}
