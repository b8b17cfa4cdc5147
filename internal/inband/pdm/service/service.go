// Package service is PDM (RFC 8250) as a stage of the agent: it makes the stage of
// package pdm from the configuration, reserves MTU headroom for marks, follows
// reloads, and reports status, metrics and single marks. Package list registers it.
package service

import (
	"context"
	"slices"
	"sync"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	inbandpdm "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/wire/pdm"
)

// name is that of the sections in configuration and status.
const name = "pdm"

// Kind registers PDM.
func Kind() stage.Kind {
	return stage.Kind{
		Name: name,
		On:   Section.Enabled,
		New:  New,
		Memory: []stage.Memory{{
			Share: memory.Share{Name: "states of marked flows", Key: "pdm.state.max_entries", Unit: inbandpdm.StateBytes, Least: 1024, Weight: 15},
			Size:  func(c *config.Config) *uint32 { return &Section.Edit(c).State.MaxEntries },
		}},
		Settle:   settle,
		Example:  example,
		Text:     writeText,
		NoDelays: whyNoDelays,
		Off:      "nothing is marked: name flows under pdm.policies in the configuration, at both ends",
		Metrics:  metrics, Histograms: histograms,
		Streams: []api.Stream{marksStream},
		Verbs:   []stage.Verb{marksVerb},
	}
}

// service is PDM of one agent.
type service struct {
	cfg    Config
	deps   stage.Deps
	marker *inbandpdm.Marker
	totals *totals

	mu       sync.Mutex
	policies []policy.Policy // never changed in place
}

// New prepares the stage.
func New(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
	own := Section.Of(cfg)
	policies, err := own.flows()
	if err != nil {
		return nil, err
	}
	s := &service{cfg: own, deps: deps, marker: inbandpdm.New(markerConfig(own)), totals: newTotals(), policies: policies}
	out := &stage.Stage{
		Datapath: s.totals.observe(s.marker.Stage()),
		Start:    func() error { return s.marker.SetPolicies(s.current()) },
		Renew:    s.marker.Renew,
		Reload:   s.reload,
		Need:     s.need,
		Status:   s.status,
	}
	if s.cfg.Raw {
		out.Events = map[string]func(context.Context, func(api.Event)) error{marksPath: s.stream}
	}
	return out, nil
}

// markerConfig is the part of the configuration that the kernel needs.
func markerConfig(cfg Config) inbandpdm.Config {
	p := inbandpdm.Config{
		MaxEntries: cfg.State.MaxEntries, Lifetime: cfg.State.Lifetime, NewPerSecond: cfg.State.NewPerSecond,
		Packets: cfg.Mode == "packet", Strip: cfg.Strip,
		ClosedDomain: cfg.ClosedDomain, MarksPerSecond: cfg.MarksPerSecond,
	}
	if cfg.Raw {
		p.Raw = cfg.RawPerSecond
	}
	return p
}

func (s *service) current() []policy.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policies
}

// settle keeps the policies where they cannot change: they may where the programs
// mark already, and where their prefixes are not those of routes whose MTU is reduced.
func settle(running, next *config.Config) {
	was, will := Section.Of(running), Section.Of(next)
	if was.on() != will.on() || (len(was.Policies) > 0) != (len(will.Policies) > 0) || was.Reserve == string(headroom.Route) {
		Section.Edit(next).Policies = was.Policies
	}
}

// reload marks by other policies from now on.
func (s *service) reload(next *config.Config) (apply func() error, err error) {
	own := Section.Of(next)
	policies, err := own.flows()
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := s.marker.SetPolicies(policies); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.policies = policies
		return nil
	}, nil
}

// need is a mark for each packet that a policy may name.
func (s *service) need(l topology.Link) (headroom.Need, bool) {
	policies := s.current()
	marks := l.Kind != "loopback" && slices.ContainsFunc(policies, func(p policy.Policy) bool { return p.Applies(l.Name) })
	if !marks {
		return headroom.Need{}, false
	}
	n := headroom.Need{
		Key: "pdm.reserve", Mode: headroom.Mode(s.cfg.Reserve), Bytes: pdm.HeaderSize, Packets: s.cfg.Mode == "packet",
		Without: "packets that would not fit pass unmarked",
	}
	for _, p := range policies {
		n.Prefixes = append(n.Prefixes, p.To)
	}
	return n, true
}
