// Package prometheus serves the agent's status as metrics. Input: the status at
// each scrape. Output: a page in Prometheus' text format. The agent
// serves it on a port of its own and, through Handler, in the API.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/ownsocket"
	"github.com/waymark-net/waymark/internal/obs"
)

// Config says where the page is served.
type Config struct {
	Listen string // host:port
}

// Default serves this host alone.
func Default() Config { return Config{Listen: "127.0.0.1:9474"} }

const (
	readTimeout  = 5 * time.Second  // of a request
	writeTimeout = 30 * time.Second // of an answer
	idleTimeout  = 2 * time.Minute
	pageTimeout  = 10 * time.Second // for the status to be gathered, Prometheus' own default
	closeTimeout = time.Second      // for answers under way when the agent stops
	scrapers     = 4                // at a time; more are asked to come back
)

// Server serves /metrics over HTTP.
type Server struct {
	cfg      Config
	http     http.Server
	listener net.Listener
}

// New makes a server; status may be called at any time, by several goroutines.
func New(cfg Config, status func() obs.Status, stages Page, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", Handler(status, stages, log))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintln(w, `<!doctype html><title>Waymark</title><p>Waymark's metrics are at <a href="/metrics">/metrics</a>.`)
	})
	return &Server{cfg: cfg, http: http.Server{
		Handler:     mux,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Gatherer gathers the metrics, as a page or otherwise.
func Gatherer(status func() obs.Status, stages Page) client.Gatherer {
	registry := client.NewRegistry()
	registry.MustRegister(
		newCollector(status, stages),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// Handler answers with the page of metrics.
func Handler(status func() obs.Status, stages Page, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(Gatherer(status, stages), promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: scrapers,
		Timeout:             pageTimeout,
	})
}

// Listen binds the port.
func (s *Server) Listen() error {
	l, err := (&net.ListenConfig{Control: ownsocket.Control}).Listen(context.Background(), "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for Prometheus: %w%s", err, remedy(err))
	}
	s.listener = ownsocket.Listener(l)
	return nil
}

func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return ": set export.prometheus.listen to another port, or stop what has it (ss -ltnp)"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return ": set export.prometheus.listen to an address of this host (ip addr)"
	case errors.Is(err, unix.EACCES):
		return ": set export.prometheus.listen to a port from 1024 on"
	}
	return ": set export.prometheus.listen to host:port"
}

// Addr is where the server listens, after Listen.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers until ctx is done; Listen comes first.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve metrics on %s: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if s.http.Shutdown(closing) != nil {
		s.http.Close() // a scraper that does not read
	}
	<-ended
	return nil
}

// Close gives the port back when Run was never called.
func (s *Server) Close() {
	if s.listener != nil {
		s.listener.Close()
	}
}
