package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/wire/pdm"
)

// marking is what PDM takes besides programs: policies, and room in packets.
type marking struct {
	cfg      config.PDM
	policies []policy.Policy
	headroom *headroom.Keeper
	log      *slog.Logger
}

// newMarking is nil where nothing is ever marked.
func newMarking(cfg config.Config, registry *topology.Registry, log *slog.Logger) (*marking, error) {
	if !cfg.PDM.On() {
		return nil, nil
	}
	policies, err := cfg.PDM.Flows()
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, p := range policies {
		prefixes = append(prefixes, p.To)
	}
	return &marking{
		cfg: cfg.PDM, policies: policies, log: log,
		headroom: headroom.New(headroom.Config{
			Mode: headroom.Mode(cfg.PDM.Reserve), Packets: cfg.PDM.Mode == "packet", Prefixes: prefixes,
			File: strings.TrimSuffix(cfg.API.Socket, ".sock") + "-pdm-room.json",
		}, headroom.Deps{Log: log, In: func(netns string, f func() error) error {
			return inNetns(registry, netns, f)
		}}),
	}, nil
}

// inNetns enters a namespace that the registry holds open, or else by its name:
// after a crash, nothing is open yet.
func inNetns(registry *topology.Registry, netns string, f func() error) error {
	for _, l := range registry.Links() {
		if l.Netns == netns {
			return registry.InNetns(l.Iface.Netns(), f)
		}
	}
	return topology.InNetns(netns, f)
}

// datapathConfig is the part of marking that is in the kernel.
func (m *marking) datapathConfig() *datapath.PDM {
	if m == nil {
		return nil
	}
	p := datapath.PDM{
		MaxEntries: m.cfg.State.MaxEntries, Lifetime: m.cfg.State.Lifetime, NewPerSecond: m.cfg.State.NewPerSecond,
		Packets: m.cfg.Mode == "packet", Strip: m.cfg.Strip,
	}
	if m.cfg.Raw {
		p.Raw = m.cfg.RawPerSecond
	}
	return &p
}

// marks tells whether packets that leave an interface may get a mark.
func (m *marking) marks(l topology.Link) bool {
	return l.Kind != "loopback" && slices.ContainsFunc(m.policies, func(p policy.Policy) bool { return p.Applies(l.Name) })
}

func roomLink(l topology.Link) headroom.Link {
	return headroom.Link{Netns: l.Netns, Name: l.Name, Index: int(l.IfIndex)}
}

// prepare makes room on an interface before anything is attached to it.
func (m *marking) prepare(l topology.Link) error {
	if m == nil || !m.marks(l) {
		return nil
	}
	if err := m.headroom.Check(roomLink(l)); err != nil {
		return fmt.Errorf("pdm on %s: %w", l, err)
	}
	if err := m.headroom.Reserve(roomLink(l)); err != nil {
		return fmt.Errorf("pdm on %s: %w", l, err)
	}
	return nil
}

// release gives back the room on an interface, which may be gone.
func (m *marking) release(l topology.Link) {
	if m == nil || !m.marks(l) {
		return
	}
	if err := m.headroom.Release(roomLink(l)); err != nil {
		m.log.Error("giving back the room for marks", "iface", l.String(), "error", err)
	}
}

// keep makes room again where something else took it.
func (m *marking) keep() {
	if m == nil {
		return
	}
	if err := m.headroom.Keep(); err != nil {
		m.log.Error("keeping room for marks", "error", err)
	}
}

// restore puts everything back, when the agent ends.
func (m *marking) restore() error {
	if m == nil {
		return nil
	}
	return m.headroom.Restore()
}

// start puts right what a killed agent left, and hands the policies over.
func (m *marking) start(p *ebpfProbe) error {
	if m == nil {
		return nil
	}
	if err := m.headroom.Recover(); err != nil {
		return err
	}
	return p.SetPolicies(m.policies)
}

// Renew lets policies begin anew that end by themselves (RFC 8250 section 4.4).
func (a *Agent) Renew() error {
	p, ok := a.probe.(*ebpfProbe)
	if a.marking == nil || !ok {
		return nil
	}
	return p.RenewPolicies()
}

// pdmStatus is nil where nothing is ever marked.
func (a *Agent) pdmStatus() (*obs.PDM, error) {
	p, ok := a.probe.(*ebpfProbe)
	if a.marking == nil || !ok {
		return nil, nil
	}
	s, err := p.PDMStats()
	if err != nil {
		return nil, err
	}
	policies, policiesErr := p.Policies()
	passed, passedErr := p.PDMPassed()
	out := &obs.PDM{
		Mode:   a.marking.cfg.Mode,
		Marked: s.Marked, Read: s.Read, Stripped: s.Stripped,
		MaxEntries: s.MaxStates, Entries: s.States, MemoryBytes: s.MaxStates * s.Bytes,
		Created: s.Created, Expired: s.Expired, Evicted: s.Evicted, Refused: s.Refused, Alerts: s.Alerts,
		DelaysLost: s.DelaysLost, EventsLost: s.EventsLost,
		Totals: a.totals.pdm(a.ifaceName), Drain: s.Drain,
	}
	for _, p := range policies {
		out.Policies = append(out.Policies, obs.Policy{Text: policyText(p.Policy), Until: p.Until})
	}
	for _, u := range passed {
		iface, netns := a.ifaceName(u.Iface)
		out.Passed = append(out.Passed, obs.Passed{
			Iface: iface, Netns: netns, Direction: u.Direction.String(), Reason: u.Reason, Packets: u.Packets,
		})
	}
	slices.SortFunc(out.Passed, func(x, y obs.Passed) int {
		return cmp.Or(cmp.Compare(x.Netns, y.Netns), cmp.Compare(x.Iface, y.Iface),
			cmp.Compare(x.Direction, y.Direction), cmp.Compare(x.Reason, y.Reason))
	})
	return out, errors.Join(policiesErr, passedErr)
}

// policyText is a policy in the words of the configuration.
func policyText(p policy.Policy) string {
	text := "to " + p.To.String()
	if len(p.Protos) > 0 {
		var names []string
		for _, proto := range p.Protos {
			names = append(names, flow.ProtoName(proto))
		}
		text += " proto " + strings.Join(names, ",")
	}
	if len(p.Ports) > 0 {
		var ranges []string
		for _, r := range p.Ports {
			ranges = append(ranges, r.String())
		}
		text += " ports " + strings.Join(ranges, ",")
	}
	if p.Interface != "" && p.Interface != "*" {
		text += " on " + p.Interface
	}
	return text
}

// pdm is what marks told, by interface and protocol, in a fixed order.
func (t *totals) pdm(name func(flow.Iface) (name, netns string)) []obs.PDMTotal {
	t.mu.Lock()
	defer t.mu.Unlock()
	sums := map[pdmPlace]*flow.PDM{}
	for k, s := range t.sum {
		if s.PDM == nil {
			continue
		}
		iface, netns := name(k.iface)
		at := pdmPlace{netns, iface, k.protocol}
		if sums[at] == nil {
			sums[at] = &flow.PDM{}
		}
		sums[at].Add(s.PDM)
	}
	out := make([]obs.PDMTotal, 0, len(sums))
	for at, s := range sums {
		out = append(out, obs.PDMTotal{
			Netns: at.netns, Iface: at.iface, Protocol: at.protocol,
			Sent: s.Sent, Received: s.Received, Lost: s.Lost, Reordered: s.Reordered, Duplicates: s.Duplicates,
			Suspicious: s.Suspicious, Discarded: s.Discarded, Server: s.Server, Network: s.Network,
		})
	}
	slices.SortFunc(out, func(x, y obs.PDMTotal) int {
		return cmp.Or(cmp.Compare(x.Netns, y.Netns), cmp.Compare(x.Iface, y.Iface), cmp.Compare(x.Protocol, y.Protocol))
	})
	return out
}

// pdmPlace is an interface, in both directions, and a class of protocols.
type pdmPlace struct{ netns, iface, protocol string }

// streamMarks tells marked packets one by one; nil where none are told.
func (a *Agent) streamMarks() func(context.Context, func(*api.Mark)) error {
	p, ok := a.probe.(*ebpfProbe)
	if a.marking == nil || !a.marking.cfg.Raw || !ok {
		return nil
	}
	return func(ctx context.Context, emit func(*api.Mark)) error {
		return p.StreamPDM(ctx, func(e *datapath.PDMEvent) {
			m := api.Mark{
				Time: e.Time, Direction: e.Direction.String(), Proto: e.Proto, Local: e.Local, Remote: e.Remote,
				PSNTP: e.Option.PSNTP, PSNLR: e.Option.PSNLR,
			}
			m.Iface, m.Netns = a.ifaceName(e.Iface)
			m.DTLR, _ = pdm.Duration(e.Option.DeltaTLR, e.Option.ScaleDTLR)
			m.DTLS, _ = pdm.Duration(e.Option.DeltaTLS, e.Option.ScaleDTLS)
			if e.Direction == flow.Ingress {
				m.Arrival, m.Suspicious = e.Arrival.String(), e.Suspicion.String()
			}
			if e.HasServer {
				m.Server = e.Server
			}
			if e.HasNetwork {
				m.Network = e.Network
			}
			emit(&m)
		})
	}
}
