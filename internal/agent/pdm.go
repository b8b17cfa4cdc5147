package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	inbandpdm "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/topology"
)

// marking is what PDM takes besides programs: policies, and MTU headroom.
type marking struct {
	cfg      config.PDM
	marker   *inbandpdm.Marker
	headroom *headroom.Keeper
	log      *slog.Logger

	mu       sync.Mutex
	policies []policy.Policy
}

// setPolicies replaces the policies, which are never changed in place.
func (m *marking) setPolicies(policies []policy.Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies = policies
}

func (m *marking) current() []policy.Policy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.policies
}

// newMarking is nil where nothing is ever marked.
func newMarking(cfg config.Config, keeper *headroom.Keeper, policies []policy.Policy, log *slog.Logger) *marking {
	if !cfg.PDM.On() {
		return nil
	}
	return &marking{
		cfg: cfg.PDM, marker: inbandpdm.New(markerConfig(cfg.PDM)),
		policies: policies, headroom: keeper, log: log,
	}
}

// markerConfig is the part of the configuration that the kernel needs.
func markerConfig(cfg config.PDM) inbandpdm.Config {
	p := inbandpdm.Config{
		MaxEntries: cfg.State.MaxEntries, Lifetime: cfg.State.Lifetime, NewPerSecond: cfg.State.NewPerSecond,
		Packets: cfg.Mode == "packet", Strip: cfg.Strip,
		ClosedDomain: cfg.ClosedDomain,
	}
	if cfg.Raw {
		p.Raw = cfg.RawPerSecond
	}
	return p
}

// stages are those that a configuration adds to the datapath.
func (m *marking) stages() []*datapath.Stage {
	if m == nil {
		return nil
	}
	return []*datapath.Stage{m.marker.Stage()}
}

// marks tells whether packets that leave an interface may get a mark.
func (m *marking) marks(l topology.Link) bool {
	return l.Kind != "loopback" && slices.ContainsFunc(m.current(), func(p policy.Policy) bool { return p.Applies(l.Name) })
}

// start hands the policies over.
func (m *marking) start() error {
	if m == nil {
		return nil
	}
	return m.marker.SetPolicies(m.current())
}

// Renew lets policies begin anew that end by themselves (RFC 8250 section 4.4).
func (a *Agent) Renew() error {
	if a.marking == nil {
		return nil
	}
	return a.marking.marker.Renew()
}

// pdmStatus is nil where nothing is ever marked.
func (a *Agent) pdmStatus() (*obs.PDM, error) {
	if a.marking == nil {
		return nil, nil
	}
	p := a.marking.marker
	s, err := p.Stats()
	if err != nil {
		return nil, err
	}
	policies, policiesErr := p.Policies()
	passed, passedErr := p.Passed()
	out := &obs.PDM{
		Mode:   a.marking.cfg.Mode,
		Marked: s.Marked, Read: s.Read, Stripped: s.Stripped,
		MaxEntries: s.MaxStates, Entries: s.States, MemoryBytes: s.MaxStates * s.Bytes,
		Created: s.Created, Expired: s.Expired, Evicted: s.Evicted, Refused: s.Refused, Alerts: s.Alerts,
		Fallbacks: s.Fallbacks, Blocked: s.Blocked, Narrowed: s.Narrowed,
		DelaysLost: s.DelaysLost, EventsLost: s.EventsLost,
		Totals: a.totals.pdm(a.ifaceName), Drain: s.Drain,
		Reduced: a.marking.reduced(),
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
	if a.marking == nil || !a.marking.cfg.Raw {
		return nil
	}
	return func(ctx context.Context, emit func(*api.Mark)) error {
		return a.marking.marker.Stream(ctx, func(e *inbandpdm.Event) {
			m := api.Mark{
				Time: e.Time, Direction: e.Direction.String(), Proto: e.Proto,
				PSNTP: e.Option.PSNTP, PSNLR: e.Option.PSNLR,
			}
			src, dst := e.Local, e.Remote
			if e.Direction == flow.Ingress {
				src, dst = dst, src
			}
			m.Src, m.SrcPort, m.Dst, m.DstPort = src.Addr(), src.Port(), dst.Addr(), dst.Port()
			m.Iface, m.Netns = a.ifaceName(e.Iface)
			m.DTLR = e.Option.DTLR()
			m.DTLS = e.Option.DTLS()
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
