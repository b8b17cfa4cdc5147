// Package service is the IOAM node as a stage of the agent: it makes the stage of
// package ioam from the configuration, follows reloads, and reports status and metrics.
// Package list registers it.
package service

import (
	"context"
	"slices"
	"sync"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/wire/ioam"
)

// name is that of the sections in configuration and status.
const name = "ioam"

// example is the least that fills traces.
const example = `ioam:
  node: {id: 3}
  interfaces: [{name: eth0, id: 31}, {name: eth1, id: 32}]
  namespaces: [{id: 123}]
`

// Kind registers the node.
func Kind() stage.Kind {
	return stage.Kind{
		Name:     name,
		On:       Section.Enabled,
		New:      New,
		Example:  example,
		Text:     stage.Text(name, (*Status).write),
		Counters: counters,
		Metrics:  slices.Concat(metrics, directMetrics, loopbackMetrics, pathMetrics), Histograms: pathHistograms,
		Pages:   []api.Page{pathsPage},
		Streams: []api.Stream{eventsStream, tracesStream, exportsStream},
		Verbs:   []stage.Verb{pathsVerb},
	}
}

// service is the node of one agent.
type service struct {
	deps   stage.Deps
	node   *inbandioam.Registrar
	format ioam.TimeFormat

	mu  sync.Mutex
	cfg Config // never changed in place
}

// At XDP, nodes may read the receive time of packets.
var _ = hints.Consumer(Section.Enabled)

// New prepares the stage.
func New(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
	own := Section.Of(cfg)
	format, err := ioam.ParseTimeFormat(own.Node.Time)
	if err != nil {
		return nil, err
	}
	node := inbandioam.Config{Time: format, Transit: inbandioam.Transit(own.Transit), Border: inbandioam.Border(own.Border), Paths: own.Paths, NICTime: own.Node.Receive == "nic"}
	if hints.Enabled(cfg) {
		node.Bound = hints.OffersTime
	}
	s := &service{cfg: own, deps: deps, format: format, node: inbandioam.New(node)}
	return &stage.Stage{
		Datapath: s.node.Stage(func(name string) bool {
			cfg := s.current()
			return slices.Contains(cfg.names(), name)
		}),
		Start:  func() error { return s.node.Apply(own.node()) },
		Reload: s.reload,
		Status: s.status,
		Need:   s.need,
		Pages:  map[string]func() (any, error){pathsPath: s.page},
		Traces: s.nodesOfPaths,
		Events: map[string]func(context.Context, func(api.Event)) error{
			eventsPath: s.events, tracesPath: s.traces, exportsPath: s.exports,
		},
	}, nil
}

func (s *service) current() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

func (s *service) swap(next Config) (was Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, s.cfg = s.cfg, next
	return was
}

// reload replaces the node between two packets.
func (s *service) reload(next *config.Config) (apply func() error, err error) {
	own := Section.Of(next)
	return func() error {
		was := s.swap(own)
		if err := s.node.Apply(own.node()); err != nil {
			s.swap(was)
			return err
		}
		return s.node.Refresh()
	}, nil
}
