package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/internal/topology"
)

// probe is what the agent needs of a flow.Probe besides counting.
type probe interface {
	flow.Probe
	Name() string
	Load() error
	Attach(link topology.Link, directions []flow.Direction, do func(func() error) error) (mode string, err error)
	Detach(iface flow.Iface) error
	Status() (obs.Table, []obs.Program, error)
	// Incomplete is about packets that are in a flow, but not all of it known.
	Incomplete() ([]flow.Uncounted, error)
	// Forget drops the running totals of an interface that is gone.
	Forget(iface flow.Iface) error
	Close()
}

// newProbe takes the one that is configured, or the best this kernel can. drop: the
// agent will give up its privileges.
func newProbe(cfg config.Config, s *stages, drop bool, log *slog.Logger) (probe, error) {
	tunnels := make([]flow.Tunnel, 0, len(cfg.Flow.Tunnels))
	for _, name := range cfg.Flow.Tunnels {
		t, err := flow.ParseTunnel(name)
		if err != nil {
			return nil, fmt.Errorf("flow.tunnels: %w", err)
		}
		tunnels = append(tunnels, t)
	}
	kind := probeKind(cfg)
	if kind == "afpacket" && cfg.Probe == "auto" {
		log.Warn("the eBPF probe can't run here, packets are captured instead, at a higher cost", "reason", kernel.Require())
	}
	if kind == "ebpf" {
		return &ebpfProbe{Datapath: datapath.New(datapath.Config{
			MaxEntries: cfg.Flow.MaxEntries, RingSize: cfg.Flow.RingSize, Sampling: cfg.Flow.Sampling, Tunnels: tunnels,
			Stages: s.datapath(), LinkHeader: haveLinkHeaders(cfg.Patterns()),
		}, log), drop: drop}, nil
	}
	return newAFPacketProbe(cfg, tunnels, log), nil
}

// haveLinkHeaders reports whether patterns are names of interfaces that exist and have an Ethernet header.
func haveLinkHeaders(patterns []string) bool {
	return len(patterns) > 0 && !slices.ContainsFunc(patterns, func(pattern string) bool {
		link, err := netlink.LinkByName(pattern)
		return err != nil || strings.ContainsAny(pattern, `*?[\`) || !topology.Link{LinkType: link.Attrs().EncapType}.Ethernet()
	})
}

// probeKind is the probe that is configured, or the best this kernel can run. Stages
// need the eBPF probe: another one must not replace it.
func probeKind(cfg config.Config) string {
	if cfg.Probe != "auto" {
		return cfg.Probe
	}
	if kernel.Require() != nil && len(list.On(&cfg)) == 0 {
		return "afpacket"
	}
	return "ebpf"
}

// ebpfProbe is the datapath as a probe.
type ebpfProbe struct {
	*datapath.Datapath
	drop bool // the agent will give up the privilege to load programs
}

func (p *ebpfProbe) Load() error {
	if p.drop {
		return p.Datapath.Load()
	}
	return p.Open()
}

func (p *ebpfProbe) Name() string { return "ebpf" }

func (p *ebpfProbe) Attach(link topology.Link, directions []flow.Direction, do func(func() error) error) (string, error) {
	mode, err := p.Datapath.Attach(datapath.Target{
		Iface: link.Iface, IfIndex: link.IfIndex, Netns: link.NetnsNumber, Name: link.Name, Place: link.String(), NoLinkHeader: !link.Ethernet(), Directions: directions, Do: do,
	})
	return string(mode), err
}

// AtXDP are the modes of programs at XDP of an interface.
func (p *ebpfProbe) AtXDP(iface flow.Iface) (modes []string) {
	if mode, ok := p.Modes(iface)[datapath.XDP]; ok {
		modes = append(modes, string(mode))
	}
	return modes
}

func (p *ebpfProbe) Status() (obs.Table, []obs.Program, error) {
	s, err := p.Stats()
	if err != nil {
		return obs.Table{}, nil, err
	}
	programs, err := p.Programs()
	return obs.Table{
		MaxEntries: s.MaxEntries, Entries: s.Entries, MemoryBytes: s.Memory,
		Evicted: s.Evicted, Unattributed: s.Unattributed, CountsFull: s.CountsFull, Grace: s.Grace,
	}, programs, err
}
