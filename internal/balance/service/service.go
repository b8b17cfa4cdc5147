// Package service is the balancer at XDP as a stage of the agent: it makes the stage of package balance from the
// configuration, checks the health of backends, and reports status and metrics. Package list registers it.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/config"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/stage"
)

// name is that of the sections in configuration and status.
const name = "balance"

const example = `balance:
  interfaces: [eth0]
  services: [{address: 192.0.2.1, port: 443, backends: [{address: 10.0.0.1}, {address: 10.0.0.2}]}]
`

// At XDP, drivers may know of VLAN tags that are not in frames.
var _ = hints.Consumer(section.Enabled)

// Where packets are balanced at XDP, the gate's rules have to be there, too.
var _ = gate.AtXDP(func(c *config.Config, iface string) bool {
	own := section.Of(c)
	return own.has(iface) || own.unwraps(iface)
})

// Kind registers the stage.
func Kind() stage.Kind {
	return stage.Kind{
		Name:    name,
		On:      section.Enabled,
		New:     newStage,
		Example: example,
		Text:    stage.Text(name, (*Status).write),
		Metrics: metrics,
		Pages:   []api.Page{page, explainPage},
		Verbs:   []stage.Verb{verb},
	}
}

type service struct {
	deps stage.Deps
	*balance.Balancer
	ctx context.Context

	sync.Mutex
	cfg      Config
	watchers map[watched]*running
}

// watched is a backend of a service.
type watched struct {
	at      balance.Address
	backend netip.Addr
}

// running is a check that is made again and again.
type running struct {
	cfg     ServiceConfig
	stop    context.CancelFunc
	up      bool
	why     string // it is not
	since   time.Time
	changes uint64
}

func newStage(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
	own := section.Of(cfg)
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if err := own.possible(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &service{deps: deps, ctx: ctx, cfg: own, watchers: map[watched]*running{}}
	s.Balancer = balance.New(own.balancer(hints.Enabled(cfg)), deps.Log)
	kernel := s.Stage()
	end := kernel.Close
	kernel.Close = func() {
		stop()
		end()
	}
	return &stage.Stage{
		Datapath: kernel,
		Start: func() error {
			if err := errors.Join(s.apply(&own), s.Expect()); err != nil {
				return err
			}
			go s.run(ctx)
			return nil
		},
		Reload:  s.reload,
		Status:  func() (any, error) { return s.status() },
		Pages:   map[string]func() (any, error){page.Path: func() (any, error) { return s.status() }},
		Changes: map[string]func(json.RawMessage) (any, error){explainPage.Path: func(q json.RawMessage) (any, error) { return stage.Explain(q, s.Explain) }},
	}, nil
}

// possible reports what the configuration does not show: interfaces that run programs of others, and addresses of services that this
// host has itself.
func (c *Config) possible() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("balance: interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		x, iface := l.Attrs().Xdp, l.Attrs().Name
		if x == nil || !x.Attached || !c.has(iface) && !c.unwraps(iface) {
			continue
		}
		if id := x.ProgId; !balance.IsOurs(id) {
			errs = append(errs, fmt.Errorf("balance.interfaces: %s runs another program at XDP (number %d): take it off (ip link set dev %s xdp off), or remove the interface", iface, id, iface))
		}
	}
	return errors.Join(append(errs, c.local())...)
}

// local reports addresses of services that this host has: the kernel would answer packets to them.
func (c *Config) local() error {
	if len(c.Interfaces) == 0 {
		return nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("balance: addresses of this host: %w", err)
	}
	var errs []error
	for i := range c.Services {
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == c.Services[i].at().Addr {
				errs = append(errs, fmt.Errorf("balance.services[%d].address: %s is an address of this host: remove it there, and have routers send packets to it here (or ip neigh add proxy %s dev INTERFACE)", i, p.Addr(), p.Addr()))
			}
		}
	}
	return errors.Join(errs...)
}

// reload serves the next services; connections stay.
func (s *service) reload(next *config.Config) (apply func() error, err error) {
	own := section.Of(next)
	if err := own.local(); err != nil {
		return nil, err
	}
	return func() error { return s.apply(&own) }, nil
}

// apply serves services, and checks their backends.
func (s *service) apply(own *Config) error {
	s.Lock()
	defer s.Unlock()
	err := s.Apply(own.services(), func(at balance.Address, backend netip.Addr) bool {
		r := s.watchers[watched{at, backend}]
		return r == nil || r.up // a new one is taken to be healthy until checks say otherwise
	})
	if err != nil {
		return err
	}
	s.cfg = *own
	s.watch()
	return nil
}

// watch has each backend be checked as its service says now. The caller holds the lock.
func (s *service) watch() {
	stays := map[watched]bool{}
	for i := range s.cfg.Services {
		one := &s.cfg.Services[i]
		for n, b := range one.Backends {
			addr, _ := netip.ParseAddr(b.Address) // checked when it was read
			w := watched{one.at(), addr}
			stays[w] = true
			old := s.watchers[w]
			if old != nil && old.cfg.Health == one.Health && old.cfg.Protocol == one.Protocol {
				continue
			}
			r := &running{cfg: *one, up: true, since: time.Now()}
			if old != nil {
				old.stop()
				r.up, r.why, r.since, r.changes = old.up, old.why, old.since, old.changes
			}
			s.watchers[w] = r
			// Checks of one service come at different times.
			s.begin(w, r, one.Health.Interval*time.Duration(n)/time.Duration(len(one.Backends)))
		}
	}
	for w, r := range s.watchers {
		if !stays[w] {
			r.stop()
			delete(s.watchers, w)
		}
	}
}

// begin checks a backend from now on. The caller holds the lock.
func (s *service) begin(w watched, r *running, first time.Duration) {
	ctx, stop := context.WithCancel(s.ctx)
	r.stop = stop
	if r.cfg.Health.kind(&r.cfg) == "none" {
		if !r.up {
			go s.changed(w, r, true, "")
		}
		return
	}
	one := &watcher{
		service: &r.cfg, at: w.at, backend: w.backend,
		dial: func(ctx context.Context, network, to string) (net.Conn, error) {
			return s.Dial(ctx, w.at, w.backend, network)
		},
		changed: func(up bool, why string) { s.changed(w, r, up, why) },
	}
	go one.run(ctx, r.up, first)
}

// changed notes that a backend is healthy now, or not any more.
func (s *service) changed(w watched, r *running, up bool, why string) {
	s.Lock()
	defer s.Unlock()
	if s.watchers[w] != r {
		return // it is checked in another way now
	}
	r.up, r.why, r.since = up, why, time.Now()
	r.changes++
	if err := s.SetHealth(w.at, w.backend, up); err != nil {
		s.deps.Log.Warn("balance: the health of a backend has no effect", "service", r.cfg.name(), "backend", w.backend, "error", err)
		return
	}
	if up {
		s.deps.Log.Info("balance: a backend is healthy", "service", r.cfg.name(), "backend", w.backend)
	} else {
		s.deps.Log.Warn("balance: a backend is not healthy; connections go elsewhere", "service", r.cfg.name(), "backend", w.backend, "reason", strings.TrimSpace(why))
	}
}

// run follows what the kernel says of interfaces and routes, and removes connections that have ended.
func (s *service) run(ctx context.Context) {
	refresh, sweep := time.NewTicker(time.Second), time.NewTicker(10*time.Second)
	defer refresh.Stop()
	defer sweep.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-refresh.C:
			err = s.Refresh()
		case <-sweep.C:
			err = s.Sweep()
		}
		if err != nil && ctx.Err() == nil {
			s.deps.Log.Warn("balance: what the kernel says of interfaces and routes is not known", "error", err)
		}
	}
}
