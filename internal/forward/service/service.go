// Package service is forwarding at XDP as a stage of the agent: it makes the stage of package forward from the
// configuration, and reports status and metrics. Package list registers it.
package service

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/forward"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/stage"
)

// name is that of the sections in configuration and status.
const name = "forward"

const example = `forward:
  interfaces: [eth0, eth1]
`

// Config is the section of the configuration.
type Config struct {
	Interfaces      []string `yaml:"interfaces" kind:"glob" doc:"names or globs of interfaces: what arrives at one of them and is routed to another one is forwarded at XDP, by the kernel's tables; the agent must attach to them (interfaces). Takes Linux 6.3"`
	BypassNetfilter bool     `yaml:"bypass_netfilter" doc:"forward also where netfilter has rules for forwarded packets, which these packets then do not meet"`
}

// has reports whether packets of an interface are forwarded.
func (c *Config) has(iface string) bool {
	return config.MatchAny(c.Interfaces, iface)
}

var section = config.Register(config.Section[Config]{
	Name: name, Doc: "forwarding at XDP, by the kernel's routes and neighbours", On: func(c *Config) bool { return len(c.Interfaces) > 0 },
})

// At XDP, drivers may know of VLAN tags that are not in frames.
var _ = hints.Consumer(section.Enabled)

// Where packets are forwarded at XDP, the gate's rules have to be there, too.
var _ = gate.AtXDP(func(c *config.Config, iface string) bool {
	own := section.Of(c)
	return own.has(iface)
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
	cfg  Config
	deps stage.Deps
	*forward.Forwarder
}

func newStage(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
	own := section.Of(cfg)
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	s := &service{cfg: own, deps: deps, Forwarder: forward.New(forward.Config{BypassNetfilter: own.BypassNetfilter, Hints: hints.Enabled(cfg)}, deps.Log)}
	ctx, stop := context.WithCancel(context.Background())
	kernel := s.Stage(own.has)
	end := kernel.Close
	kernel.Close = func() {
		stop()
		end()
	}
	return &stage.Stage{
		Datapath: kernel,
		Start: func() error {
			go s.Run(ctx)
			return nil
		},
		Status:  func() (any, error) { return s.status() },
		Pages:   map[string]func() (any, error){page.Path: func() (any, error) { return s.status() }},
		Changes: map[string]func(json.RawMessage) (any, error){explainPage.Path: func(q json.RawMessage) (any, error) { return stage.Explain(q, s.Explain) }},
	}, nil
}
