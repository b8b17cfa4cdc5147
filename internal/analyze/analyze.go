package analyze

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/access"
	"github.com/waymark-net/waymark/internal/analyze/device"
	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/console"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
)

// Deps are what an analyzer is given in addition to its configuration.
type Deps struct {
	Log   *slog.Logger
	Clock flow.Clock
	Ready func() // called when agents can send
}

// Analyzer keeps the records of many hosts.
type Analyzer struct {
	whole     config.Config
	cfg       settings.Config
	log       *slog.Logger
	clock     flow.Clock
	ready     func()
	name      string
	started   time.Time
	authority *Authority
	revoked   *revocations
	tokens    *Tokens
	bodies    chan struct{}
	work      chan struct{}
	live      live
	network   network
	server    *api.Server
	console   *access.Server
	listener  net.Listener
	devices   *device.Receiver

	mu       sync.Mutex
	hosts    []*host // by name; replaced, never changed
	refusals map[string]uint64
	warned   map[string]time.Time
	serving  bool
}

// New prepares an analyzer of a configuration that Adapt has checked.
func New(cfg config.Config, deps Deps) (*Analyzer, error) {
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this host: %w", err)
	}
	a := &Analyzer{
		whole: cfg, cfg: settings.Section.Of(&cfg), log: deps.Log, clock: deps.Clock, ready: deps.Ready, name: name,
		bodies: make(chan struct{}, maxBodies), work: make(chan struct{}, runtime.GOMAXPROCS(0)),
		live: live{every: liveEvery, followers: map[*follower]bool{}}, refusals: map[string]uint64{}, warned: map[string]time.Time{},
	}
	a.devices = device.New(&a.cfg, device.Deps{Log: a.log, Warn: a.warnOnce, Clock: a.clock, Open: a.openDevice})
	return a, nil
}

// Listen opens what is kept, and binds what others reach the analyzer at.
func (a *Analyzer) Listen() (err error) {
	a.started = a.clock()
	if a.authority, err = OpenAuthority(a.cfg.Path, a.started); err != nil {
		return err
	}
	a.revoked = &revocations{path: a.cfg.Revoked, authority: a.authority.Certificate}
	a.tokens = OpenTokens(a.cfg.Path)
	if err := a.openHosts(); err != nil {
		return errors.Join(err, a.close())
	}
	a.server = a.api()
	if a.console, err = access.New(&a.whole, access.Deps{Handler: a.server.Handler(), Serve: a.server.Serve, Log: a.log}); err != nil {
		return errors.Join(err, a.close())
	}
	for _, bind := range []func() error{a.server.Listen, a.console.Listen, a.bind, a.devices.Listen} {
		if err := bind(); err != nil {
			a.server.Close()
			a.console.Close()
			err = errors.Join(err, a.devices.Close())
			return errors.Join(err, a.close())
		}
	}
	return nil
}

func (a *Analyzer) bind() error {
	l, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for agents: %w; set analyze.listen to an address of this host and a free port", err)
	}
	a.listener = tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.authority.serve(a.cfg.Names, a.clock()) },
	})
	return nil
}

// Addr is where agents send.
func (a *Analyzer) Addr() net.Addr { return a.listener.Addr() }

// Times of a request of an agent.
const (
	readTimeout  = 30 * time.Second
	writeTimeout = 60 * time.Second
	endTimeout   = 5 * time.Second
)

// Run serves until ctx ends.
func (a *Analyzer) Run(ctx context.Context) error {
	if a.listener == nil {
		if err := a.Listen(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	start := func(run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	start(a.server.Run)
	start(a.console.Run)
	start(a.serve)
	start(a.tendAll)
	start(a.devices.Run)
	a.setServing(true)
	a.log.Info("ready", "listen", a.listener.Addr(), "socket", a.whole.API.Socket, "hosts", len(a.all()), "ca", fmt.Sprintf("%x", a.authority.Fingerprint()))
	if a.ready != nil {
		a.ready()
	}
	<-ctx.Done()
	a.setServing(false)
	running.Wait()
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, a.close())
}

func (a *Analyzer) setServing(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serving = is
}

// serve answers agents.
func (a *Analyzer) serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc(frame.Path, a.push)
	mux.HandleFunc(frame.TopologyPath, a.describe)
	mux.HandleFunc(frame.JoinPath, a.join)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		(&api.Error{Status: http.StatusNotFound, What: "nothing at " + r.URL.Path, How: "agents of another version? upgrade the older one; flows are at the socket, or at console.listen"}).Answer(w)
	})
	s := &http.Server{
		Handler: mux, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	ended := context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = s.Shutdown(last)
		_ = s.Close()
	})
	defer ended()
	if err := s.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answer agents: %w", err)
	}
	return nil
}

// tendAll seals, ages and removes files of hosts that do not send, too.
func (a *Analyzer) tendAll(ctx context.Context) error {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, h := range a.all() {
			h.keeping.Lock()
			h.tend(a.clock())
			h.keeping.Unlock()
		}
	}
}

func (a *Analyzer) close() error {
	var errs []error
	for _, h := range a.all() {
		h.keeping.Lock()
		errs = append(errs, h.disk.Close())
		h.keeping.Unlock()
	}
	return errors.Join(errs...)
}

// api is the API over all hosts.
func (a *Analyzer) api() *api.Server {
	deps := api.Deps{
		Origin: flow.Origin{Host: a.name, Sampling: 1}, History: history{a}, Status: a.Status, Ready: a.readiness, Why: a.why, Points: a.points, Topology: a.topology, Log: a.log,
		Metrics: prometheus.Handler(a.Status, prometheus.Page{Metrics: Metrics()}, a.log),
		Configuration: func() (api.Configuration, error) {
			var b strings.Builder
			err := config.Dump(&b, a.whole, nil)
			return api.Configuration{YAML: b.String(), Elsewhere: map[string]string{}}, err
		},
	}
	if c, ok := console.New(); ok {
		deps.Console = c
	}
	return api.New(api.Config{Socket: a.whole.API.Socket, Group: a.whole.API.Group, Listen: a.whole.API.Listen}, deps)
}

var errStarting = errors.New("starting: agents cannot send yet")

// readiness says why agents are not served; that some host is silent is no reason.
func (a *Analyzer) readiness() error {
	a.mu.Lock()
	serving := a.serving
	a.mu.Unlock()
	if !serving {
		return errStarting
	}
	for _, h := range a.all() {
		h.mu.Lock()
		text := h.problem["refused"]
		h.mu.Unlock()
		if text != "" {
			return fmt.Errorf("intervals of %s are not kept: %s", h.name, text)
		}
	}
	return nil
}

// Status gathers the state of the analyzer.
func (a *Analyzer) Status() obs.Status {
	s := obs.Status{
		Version: obs.ReadBuild().Version, Host: a.name, PID: os.Getpid(), Started: a.started, Now: a.clock(),
		API: a.server.Stats(), Access: a.console.Status(&a.whole.API, a.clock()),
	}
	s.Sections = []obs.Section{{Name: state.Section, Value: a.section()}}
	obs.FillLists(&s)
	return s
}

func (a *Analyzer) count(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refusals[reason]++
}

// warnAgain is how often what goes on is logged.
const warnAgain = 10 * time.Minute

// warnOnce logs a message, unless one of the same key was logged lately.
func (a *Analyzer) warnOnce(key, text string, args ...any) {
	now := time.Now()
	a.mu.Lock()
	if len(a.warned) > 1024 {
		a.warned = map[string]time.Time{}
	}
	is := now.Sub(a.warned[key]) < warnAgain
	if !is {
		a.warned[key] = now
	}
	a.mu.Unlock()
	if !is {
		a.log.Warn(text, args...)
	}
}
