package service

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/order"
)

// StatusOf is the section of a status; nil where nothing is ever marked.
func StatusOf(s *obs.Status) *Status { return obs.SectionOf[Status](s, name) }

// Status is what marks of RFC 8250 did since the agent started.
type Status struct {
	Mode     string   `json:"mode"` // packet or burst
	Policies []Policy `json:"policies"`

	Marked   uint64 `json:"marked"`   // skbs that left with a mark: a GSO burst is one
	Read     uint64 `json:"read"`     // skbs whose mark was read
	Stripped uint64 `json:"stripped"` // of these, sent on without it

	MaxEntries  uint64 `json:"max_entries"`  // flows whose state is kept
	Entries     uint64 `json:"entries"`      // at the last drain
	MemoryBytes uint64 `json:"memory_bytes"` // of the states

	Created uint64 `json:"created"` // states
	Expired uint64 `json:"expired"` // states deleted for their age
	Evicted uint64 `json:"evicted"` // states pushed out: their flows' numbers restart
	Refused uint64 `json:"refused"` // packets of new flows beyond what may begin in a second
	Alerts  uint64 `json:"alerts"`  // drains that found states evicted or refused

	Fallbacks uint64 `json:"fallbacks"` // flows that went on unmarked, since marked packets of them did not arrive
	Blocked   uint64 `json:"blocked"`   // destinations likewise, for ten minutes each
	Narrowed  uint64 `json:"narrowed"`  // paths that turned out to take shorter packets than expected

	DelaysLost uint64 `json:"delays_lost"` // delays that did not fit
	EventsLost uint64 `json:"events_lost"` // raw events beyond their rate

	Passed []Passed `json:"passed"` // what was not marked, or not read, by reason
	Totals []Total  `json:"totals"`

	Reduced []Reduction `json:"reduced"` // settings that are lower while packets are marked

	Drain time.Duration `json:"drain_ns"` // the last one
}

// Policy is a policy in force.
type Policy struct {
	Text  string    `json:"text"` // as a user would write it
	Until time.Time `json:"until"`
}

// InForce reports whether the policy has not ended yet.
func (p *Policy) InForce(now time.Time) bool { return p.Until.After(now) }

// Passed is an amount of packets that PDM passed over.
type Passed struct {
	Iface     string `json:"iface"`
	Netns     string `json:"netns,omitempty"`
	Direction string `json:"direction"`
	Reason    string `json:"reason"` // name from enum mark_reason in bpf/mark/abi.h, lower case
	Packets   uint64 `json:"packets"`
}

// Reduction is a setting that is lower while packets are marked. It is restored
// when the agent ends, or by the next one.
type Reduction struct {
	Iface   string `json:"iface"`
	Netns   string `json:"netns,omitempty"`
	Setting string `json:"setting"`         // IPv6 MTU, gso_max_segs or route MTU
	Route   string `json:"route,omitempty"` // its prefix
	From    int    `json:"from"`            // of a route, 0: it had none of its own
	To      int    `json:"to"`
}

// Total is the sum of what marks reported of one protocol on one interface.
type Total struct {
	Iface    string `json:"iface"`
	Netns    string `json:"netns,omitempty"`
	Protocol string `json:"protocol"` // as in obs.Total

	Sent       uint64 `json:"sent"`
	Received   uint64 `json:"received"`
	Lost       int64  `json:"lost"` // below 0 when packets came late that had been lost before the agent started
	Reordered  uint64 `json:"reordered"`
	Duplicates uint64 `json:"duplicates"`
	Suspicious uint64 `json:"suspicious"`
	Discarded  uint64 `json:"discarded"`

	Server  flow.Delays `json:"-"` // the metrics page has them
	Network flow.Delays `json:"-"`
}

// status gathers the section.
func (s *service) status() (any, error) {
	stats, err := s.marker.Stats()
	if err != nil {
		return nil, err
	}
	policies, policiesErr := s.marker.Policies()
	passed, passedErr := s.marker.Passed()
	out := &Status{
		Mode:   s.cfg.Mode,
		Marked: stats.Marked, Read: stats.Read, Stripped: stats.Stripped,
		MaxEntries: stats.MaxStates, Entries: stats.States, MemoryBytes: stats.MaxStates * stats.Bytes,
		Created: stats.Created, Expired: stats.Expired, Evicted: stats.Evicted, Refused: stats.Refused, Alerts: stats.Alerts,
		Fallbacks: stats.Fallbacks, Blocked: stats.Blocked, Narrowed: stats.Narrowed,
		DelaysLost: stats.DelaysLost, EventsLost: stats.EventsLost,
		Totals: s.totals.list(s.deps.IfaceName), Drain: stats.Drain,
	}
	for _, p := range policies {
		out.Policies = append(out.Policies, Policy{Text: policyText(p.Policy), Until: p.Until})
	}
	for _, u := range passed {
		iface, netns := s.deps.IfaceName(u.Iface)
		out.Passed = append(out.Passed, Passed{
			Iface: iface, Netns: netns, Direction: u.Direction.String(), Reason: u.Reason, Packets: u.Packets,
		})
	}
	order.By(out.Passed, func(x, y Passed) int {
		return cmp.Or(cmp.Compare(x.Netns, y.Netns), cmp.Compare(x.Iface, y.Iface),
			cmp.Compare(x.Direction, y.Direction), cmp.Compare(x.Reason, y.Reason))
	})
	reduced, _ := s.deps.Headroom.Status()
	for _, r := range reduced {
		out.Reduced = append(out.Reduced, Reduction{Iface: r.Name, Netns: r.Netns, Setting: r.Setting, Route: r.Route, From: r.From, To: r.To})
	}
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
