package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/console"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
)

// Bounds of what callers may take of the agent. Those of classes with a bound add
// up to less than the connections: the rest is for status and health.
const (
	maxConnections = 128 // on each listener
	maxFollowers   = 32
	maxWaiting     = 32       // queries, those at work included
	maxHeader      = 32 << 10 // bytes
	queryWait      = 5 * time.Second
	writeTimeout   = 30 * time.Second // for one answer
	pieceTimeout   = 5 * time.Second  // for a piece of it
	closeTimeout   = 2 * time.Second  // for answers under way when the agent stops
)

// Server serves the API.
type Server struct {
	cfg  Config
	deps Deps

	listeners   []net.Listener
	connections *connections
	queries     chan struct{}
	waiting     chan struct{}
	followers   chan struct{}
	feeds       *feeds
	streams     []*eventFeed
	piece       time.Duration // pieceTimeout; tests have less
}

// New makes a server that listens nowhere yet.
func New(cfg Config, deps Deps) *Server {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	def := Default()
	if cfg.Queries == 0 {
		cfg.Queries = def.Queries
	}
	if cfg.AnswerBytes == 0 {
		cfg.AnswerBytes = def.AnswerBytes
	}
	s := &Server{
		cfg: cfg, deps: deps,
		connections: newConnections(maxConnections),
		queries:     make(chan struct{}, cfg.Queries),
		waiting:     make(chan struct{}, maxWaiting),
		followers:   make(chan struct{}, maxFollowers),
		piece:       pieceTimeout,
	}
	for _, one := range deps.Streams {
		s.streams = append(s.streams, &eventFeed{Stream: one})
	}
	s.feeds = newFeeds(deps.History, deps.Origin, s.queries, cfg.AnswerBytes)
	return s
}

// Stats is the account of those who ask.
func (s *Server) Stats() obs.API {
	var a obs.API
	a.Connections, a.Evicted = s.connections.count()
	a.Followers, a.Dropped = s.feeds.count()
	for _, one := range s.streams {
		readers, dropped := one.count()
		a.Followers += readers
		a.Dropped += dropped
	}
	return a
}

// Listen binds the socket and the port, so that a second agent learns of the
// first before it attaches anything. Run does it when it was not done before.
func (s *Server) Listen() error {
	if s.cfg.Socket != "" {
		l, err := listenUnix(s.cfg.Socket, s.cfg.Group)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	if s.cfg.Listen != "" {
		l, err := listenLoopback(s.cfg.Listen)
		if err != nil {
			s.Close()
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

// Close gives back what Listen bound, when Run is not going to.
func (s *Server) Close() {
	for _, l := range s.listeners {
		l.Close()
	}
	s.listeners = nil
}

// Addrs are what the server listens on, after Listen.
func (s *Server) Addrs() []net.Addr {
	var addrs []net.Addr
	for _, l := range s.listeners {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

// Handler answers every request of the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", s.live)
	mux.HandleFunc("/readyz", s.ready)
	mux.HandleFunc("/api/v1/status", s.status)
	mux.HandleFunc("/api/v1/flows", s.answering(s.answerFlows))
	mux.HandleFunc("/api/v1/explain", s.answering(s.explain))
	if s.deps.Why != nil {
		mux.HandleFunc(whyPath, s.answering(s.answerWhy))
	}
	mux.HandleFunc(pointsPath, s.answering(s.answerPoints))
	if s.deps.Topology != nil {
		mux.HandleFunc(topologyPath, s.answering(s.topology))
	}
	for _, one := range s.streams {
		mux.HandleFunc(one.Path, s.serveStream(one))
	}
	for _, one := range s.deps.Pages {
		mux.HandleFunc(one.Path, s.servePage(one))
	}
	if s.deps.Configuration != nil {
		mux.HandleFunc("/api/v1/config", s.configuration)
	}
	if s.cfg.Profile {
		s.profile(mux)
	}
	if s.deps.Metrics != nil {
		mux.Handle("/metrics", s.deps.Metrics)
	}
	mux.HandleFunc(livePath, s.answering(s.answerLive))
	mux.HandleFunc(completePath, s.answering(s.complete))
	mux.HandleFunc(referencePath, s.reference)
	mux.HandleFunc("/", s.page)
	return s.guard(mux)
}

// deadline gives the reader of an answer its time from now on.
func (s *Server) deadline(w http.ResponseWriter) {
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.piece)); err != nil {
		s.deps.Log.Debug("API: no write deadline", "error", err)
	}
}

// page answers with the console, which has a page for each of its paths.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	switch {
	case !console.Serves(r.URL.Path):
		notFound(w, r)
	case s.deps.Console == nil:
		console.Missing(w, r)
	default:
		s.deps.Console.ServeHTTP(w, r)
	}
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, &Error{
		http.StatusNotFound, fmt.Sprintf("nothing at %s", r.URL.Path),
		"there are /livez, /readyz, /metrics, /api/v1/status, /api/v1/flows and /api/v1/why",
	})
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) { s.write(w, []byte("ok\n")) }

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.deps.Ready(); err != nil {
		writeError(w, &Error{http.StatusServiceUnavailable, err.Error(), "waymark status shows more"})
		return
	}
	s.write(w, []byte("ok\n"))
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) { s.writeJSON(w, s.deps.Status()) }

// answering writes what a handler refuses before the first byte of an answer.
func (s *Server) answering(handler func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); err != nil {
			var refused *Error
			if !errors.As(err, &refused) {
				refused = refuse(err.Error(), "")
			}
			writeError(w, refused)
		}
	}
}

// The headers name Answer.Incomplete and Answer.Partial for those who look at no body.
const (
	incompleteHeader = "Waymark-Incomplete"
	partialHeader    = "Waymark-Partial"
)

// planOf reads the parameters of a URL.
func planOf(r *http.Request) (req Request, p query.Plan, err error) {
	if req, err = parseRequest(r.URL.Query()); err == nil {
		p, err = req.Query(time.Now())
	}
	return req, p, err
}

// explain answers what a plan would take.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) error {
	req, p, err := planOf(r)
	if err != nil {
		return err
	}
	if req.Follow {
		return refuse("follow has no end, and so no cost", "leave it out")
	}
	e, err := s.deps.History.Explain(p)
	if err != nil {
		return err
	}
	s.writeJSON(w, e)
	return nil
}

func (s *Server) answerFlows(w http.ResponseWriter, r *http.Request) error {
	req, q, err := planOf(r)
	if err != nil {
		return err
	}
	if req.Follow {
		return s.follow(w, r, req, q)
	}
	if req.Every != 0 {
		return refuse("every goes with follow", "add follow=true or leave it out")
	}
	done, err := s.admit(w, r)
	if err != nil {
		return err
	}
	defer done()
	answer, err := s.deps.History.Query(r.Context(), q)
	if err != nil {
		return err
	}
	if q.Limit == 0 {
		answer.Whole = nil // there may be as many as rows, and rows add up to them
	}
	if answer.Short != "" {
		w.Header().Set(incompleteHeader, string(answer.Short))
	}
	if answer.Partial != "" {
		w.Header().Set(partialHeader, "true")
	}
	w.Header().Set("Content-Type", "application/json")
	if err := writeAnswer(w, answer, s.deps.Origin, s.piece); err != nil {
		s.deps.Log.Debug("API: reader left", "error", err)
	}
	return nil
}

// joinFollowers takes one of the places for readers that stay, keeps their connection open, and has the agent scan as
// often as they ask for.
func (s *Server) joinFollowers(ctx context.Context, req Request) (leave func(), err error) {
	if err := acquire(ctx, s.followers, 0); err != nil {
		return nil, err
	}
	rare := func() {}
	if req.Every != 0 && s.deps.RequestScans != nil {
		rare = s.deps.RequestScans(req.Every)
	}
	idle := s.connections.keep(ctx)
	return func() {
		idle()
		rare()
		<-s.followers
	}, nil
}

// follow answers once for each interval, as JSON lines.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, req Request, q query.Plan) error {
	if err := q.Check(); err != nil {
		return err
	}
	if _, err := s.deps.History.Explain(q); err != nil { // it knows which hosts there are
		return err
	}
	leaveFollowers, err := s.joinFollowers(r.Context(), req)
	if err != nil {
		return err
	}
	defer leaveFollowers()
	flusher := http.NewResponseController(w)
	fl, leave := s.feeds.join(feedKey(req), q, func() {
		if err := flusher.SetWriteDeadline(time.Unix(1, 0)); err != nil {
			s.deps.Log.Debug("API: a slow follower cannot be cut off", "error", err)
		}
	})
	defer leave()
	// The headers report to the reader that the following has begun.
	w.Header().Set("Content-Type", "application/jsonl")
	err = flusher.Flush()
	for err == nil {
		select {
		case <-r.Context().Done():
			err = r.Context().Err()
		case <-fl.wake:
			err = s.writeNext(w, flusher, fl)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.feeds.timedOut(fl)
	}
	s.deps.Log.Debug("API: follower left", "reason", err)
	return nil
}

// errSlow ends a follower that was dropped.
var errSlow = errors.New("too slow")

// feedKey is the same for requests that one feed answers.
func feedKey(r Request) string {
	return Request{Filter: r.Filter, By: r.By, Sort: r.Sort, Reverse: r.Reverse, Everywhere: r.Everywhere, Hosts: r.Hosts, Limit: r.Limit}.Values().Encode()
}

// writeNext writes the answer that a follower has not got yet.
func (s *Server) writeNext(w http.ResponseWriter, flusher *http.ResponseController, fl *follower) error {
	parts, _, err := s.nextAnswer(fl)
	if err != nil || parts == nil {
		return err
	}
	p := newPieces(w, s.piece, 0)
	for _, part := range parts {
		if err := p.write(part); err != nil {
			return err
		}
	}
	if err := flusher.Flush(); err != nil {
		return err
	}
	// What was read is no longer held while the next is waited for.
	s.feeds.done(fl)
	return nil
}

// nextAnswer is the JSON of the answer that a follower has not got yet, and the end of its interval;
// no parts: there is none.
func (s *Server) nextAnswer(fl *follower) (parts [][]byte, to time.Time, err error) {
	a, missed, ok := s.feeds.take(fl)
	switch {
	case !ok:
		return nil, to, errSlow
	case a == nil:
		return nil, to, nil
	}
	answer := a.answer
	answer.Missed = missed
	b, err := head(answer, s.deps.Origin)
	if err != nil {
		return nil, to, err
	}
	return slices.Concat([][]byte{b}, a.rows, [][]byte{tail}), answer.To, nil
}

func (s *Server) writeJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		writeError(w, &Error{http.StatusInternalServerError, err.Error(), "this is a defect of Waymark; please report it"})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	s.write(w, b.Bytes())
}

func (s *Server) write(w http.ResponseWriter, b []byte) {
	if _, err := w.Write(b); err != nil {
		s.deps.Log.Debug("API: reader left", "error", err)
	}
}
