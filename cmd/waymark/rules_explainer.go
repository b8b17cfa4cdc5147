package main

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/waymark-net/waymark/internal/gate/rules"
	gate "github.com/waymark-net/waymark/internal/gate/service"
)

// explainer decides about packets as the rules of a file do, or as the running agent does by its rules and bans.
type explainer struct {
	rules *rules.Ruleset
	live  bool // of the agent: rules have no lines that a user knows

	bans    map[netip.Prefix]gate.Ban
	lengths []int // of bans
	allowed []netip.Prefix
}

// newLiveExplainer asks the agent what is in effect.
func newLiveExplainer(ctx context.Context, agent *agentFlag) (*explainer, error) {
	var text gate.RulesText
	var list gate.Bans
	if err := agent.client().Page(ctx, gate.RulesTextPath, &text); err != nil {
		return nil, err
	}
	if err := agent.client().Page(ctx, gate.BansPath, &list); err != nil {
		return nil, err
	}
	now := time.Now()
	rs, _, err := rules.Parse("the agent's rules", text.Text, rules.Options{Now: now})
	if err != nil {
		return nil, err
	}
	x := &explainer{rules: rs, live: true, bans: map[netip.Prefix]gate.Ban{}}
	for _, b := range list.Bans {
		x.bans[b.Prefix] = b
		if n := b.Prefix.Bits(); !slices.Contains(x.lengths, n) {
			x.lengths = append(x.lengths, n)
		}
	}
	x.allowed = rs.AllowList(func(until time.Time) bool { return !until.IsZero() && !now.Before(until) })
	return x, nil
}

// ban is one because of which the packet meets no rule; nil: there is none.
func (x *explainer) ban(p *rules.Packet) *gate.Ban {
	for _, n := range x.lengths {
		prefix, err := p.Src.Prefix(n)
		if err != nil { // the address is shorter, or not known
			continue
		}
		b, banned := x.bans[prefix]
		if banned && !slices.ContainsFunc(x.allowed, func(a netip.Prefix) bool { return a.Contains(p.Src) }) {
			return &b
		}
	}
	return nil
}

// number is what a user knows a rule by, title the column of it, and name both in a sentence.
func (x *explainer) number(r *rules.Rule) string {
	if x.live {
		return strconv.FormatUint(uint64(r.ID), 10)
	}
	return strconv.Itoa(r.Pos.Line)
}

func (x *explainer) title() string {
	if x.live {
		return "ID"
	}
	return "LINE"
}

func (x *explainer) name(r *rules.Rule) string {
	if x.live {
		return "rule " + x.number(r)
	}
	return "line " + x.number(r)
}
