package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/verdict"
)

// noteEvery is the shortest time between two drains that look at the counters of verdicts.
const noteEvery = time.Second

// notes is when counters were looked at last.
type notes struct {
	mu   sync.Mutex
	last time.Time
}

// newExaminer finds verdicts in what the agent keeps.
func (a *Agent) newExaminer() *verdict.Examiner {
	return verdict.New(verdict.Deps{
		Host: a.host, Sampling: a.cfg.Flow.Sampling, History: a.store, Ledger: a.ledger,
		Thresholds: func() verdict.Thresholds {
			cfg := a.settings()
			return verdict.ThresholdsOf(&cfg.Why)
		},
		Places: a.hooks.places, Wiring: a.wiring.Load, Speed: a.speed, Connections: a.connections, Conditions: a.conditions,
	})
}

// examineAhead has what is usual be known before somebody asks, where a day of it is on disk.
func (a *Agent) examineAhead(ctx context.Context) error {
	if a.disk != nil {
		a.examiner.Run(ctx, a.clock)
	}
	return nil
}

// why answers the API.
func (a *Agent) why(ctx context.Context, r api.WhyRequest) (any, error) {
	now := a.clock()
	since, until, err := r.Range(now)
	if err != nil {
		return nil, err
	}
	a.note(now, 0) // no flow is newer than the counters
	return a.examiner.Examine(ctx, verdict.Request{Filter: r.Filter, Since: since, Until: until}, now)
}

// note adds to the ledger by how much counters grew, unless it did so a short time ago.
func (a *Agent) note(at time.Time, every time.Duration) {
	a.noted.mu.Lock()
	defer a.noted.mu.Unlock()
	if at.Sub(a.noted.last) < every {
		return
	}
	a.noted.last = at
	status := a.Status()
	a.ledger.Add(at, slices.Concat(a.stageCounters(&status), lossCounters(&status), a.noFlowCounters(&status), a.segmentCounters()))
}

// stageCounters are those that stages report.
func (a *Agent) stageCounters(s *obs.Status) (out []verdict.Counter) {
	for _, k := range list.Kinds() {
		if k.Counters != nil {
			out = append(out, k.Counters(s)...)
		}
	}
	return out
}

// notIP are the reasons of frames without an IP packet.
var notIP = map[string]bool{"arp": true, "ethertype": true}

// lossReasons are those of Interface.Uncounted that are losses of the agent: all others are as
// intended, or of packets that are nobody's flow.
var lossReasons = map[string]bool{"unreadable": true, "cpu_unknown": true, "unattributed_full": true}

// lossCounters are what the agent lost.
func lossCounters(s *obs.Status) (out []verdict.Counter) {
	for _, l := range s.Losses {
		if l.Where != "packets" { // these are counted, if less exactly
			out = append(out, verdict.Counter{
				Kind: verdict.AgentLosses, ID: l.Where + " " + l.Reason, N: l.Count, Where: verdict.Where{Part: l.Where, Reason: l.Reason},
			})
		}
	}
	if s.Drain.Errors > 0 {
		out = append(out, verdict.Counter{Kind: verdict.AgentLosses, ID: "drain", N: s.Drain.Errors, Where: verdict.Where{Part: "drains", Reason: "see the log of the agent"}})
	}
	return out
}

// noFlowCounters are IP packets of interfaces that are no packets of a flow, and those of them that
// are lost: as of now, since the coverage of the status is of the last drain.
func (a *Agent) noFlowCounters(s *obs.Status) (out []verdict.Counter) {
	all, err := a.probe.Uncounted()
	if err != nil {
		a.log.Debug("reading the probe's counters", "error", err)
	}
	for _, u := range all {
		iface, netns := a.ifaceName(u.Iface)
		c := noFlow(netns, iface, u.Direction.String(), u.Reason, u.Packets)
		if !notIP[u.Reason] {
			out = append(out, c)
		}
		if c.Kind = verdict.AgentLosses; lossReasons[u.Reason] {
			out = append(out, c)
		}
	}
	for _, t := range s.Totals { // these are in flows
		if t.Dropped > 0 {
			c := noFlow(t.Netns, t.Iface, t.Direction, verdict.DroppedByRule, t.Dropped)
			c.Kind, c.ID = verdict.DroppedAt, c.ID+" "+t.Protocol
			out = append(out, c)
		}
	}
	return out
}

func noFlow(netns, iface, direction, reason string, packets uint64) verdict.Counter {
	place := obs.Place(netns, iface)
	return verdict.Counter{
		Kind: verdict.InNoFlow, ID: place + " " + direction + " " + reason, N: packets,
		Where: verdict.Where{Netns: netns, Iface: iface, Direction: direction, Part: "packets of " + place, Reason: reason},
	}
}

// segmentCounters are the kernel's of TCP.
func (a *Agent) segmentCounters() (out []verdict.Counter) {
	for _, s := range a.registry.Segments() {
		out = append(out, verdict.Counter{
			Kind: verdict.Retransmissions, ID: s.Netns, N: s.Retransmitted, Of: int64(s.Sent), Older: true, Where: verdict.Where{Netns: s.Netns},
		})
	}
	return out
}

// speed is that of a link: as it is configured, else as its driver reports it.
func (a *Agent) speed(netns, iface string) uint64 {
	cfg := a.settings()
	if speed := cfg.Speed(iface); speed > 0 {
		return speed
	}
	return a.registry.Speed(netns, iface)
}

func (a *Agent) connections(netns string) (out []verdict.Connection, err error) {
	open, err := a.registry.Connections(netns)
	for _, c := range open {
		out = append(out, verdict.Connection{
			Flow: verdict.Flow{Proto: "tcp", Src: c.Local.Addr(), SrcPort: c.Local.Port(), Dst: c.Remote.Addr(), DstPort: c.Remote.Port()},
			Sent: c.Sent, Retransmitted: c.Retransmitted, Timeouts: c.Timeouts, Open: c.Open,
		})
	}
	return out, err
}

// conditions are interfaces that are not counted, or not all of their packets.
func (a *Agent) conditions() (out []verdict.Condition) {
	for _, h := range a.hookStatus() {
		if h.State == "failed" {
			out = append(out, verdict.Condition{
				Text:  fmt.Sprintf("The agent does not count %s (%s): %s", h.Place(), h.Direction, h.Error),
				Where: verdict.Where{Netns: h.Netns, Iface: h.Iface, Direction: h.Direction, Part: "hooks"},
			})
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range a.coverage {
		if i.IfacePackets == 0 {
			continue
		}
		out = append(out, verdict.Condition{
			Text:     fmt.Sprintf("The agent counts %s of the packets of %s (%s) since it attached to it", term.Percent(i.Coverage), obs.Place(i.Netns, i.Iface), i.Direction),
			Coverage: i.Coverage, Packets: i.IfacePackets, Where: verdict.Where{Netns: i.Netns, Iface: i.Iface, Direction: i.Direction, Part: "coverage"},
		})
	}
	return out
}

// places are the hooks at tc that count.
func (h *hooks) places() (out []verdict.Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.attached {
		if at.err != nil {
			continue
		}
		for _, d := range at.directions {
			out = append(out, verdict.Place{Netns: at.link.Netns, Iface: at.link.Name, IfIndex: at.link.IfIndex, Direction: d, Since: at.since})
		}
	}
	return out
}
