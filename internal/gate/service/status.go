package service

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// RulesPath is where the API has the rules.
const RulesPath = "/api/v1/rules"

var rulesPage = api.Page{
	Path: RulesPath,
	Doc:  "Packet rules with their counters, as `waymark rules list -o json` shows them. `POST`, on the unix socket as root or the agent's user: changes them",
	Missing: &api.Error{
		Status: http.StatusNotFound, What: "the gate of this agent is off",
		How: "name interfaces in gate.interfaces of the configuration, such as gate: {interfaces: [eth0]}",
	},
}

// RulesTextPath is where the API has the rules as a file.
const RulesTextPath = "/api/v1/rules/text"

var rulesTextPage = api.Page{
	Path:    RulesTextPath,
	Doc:     "Packet rules in effect and the members of their sets, as the rule file that `waymark rules list -o rules` prints",
	Missing: rulesPage.Missing,
}

// RulesText are the rules in effect as a rule file.
type RulesText struct {
	Text string `json:"text"`
}

// Counts are running totals.
type Counts struct {
	Packets      uint64 `json:"packets"` // that matched
	Bytes        uint64 `json:"bytes"`   // by the IP header
	Dropped      uint64 `json:"dropped"` // of the packets
	DroppedBytes uint64 `json:"dropped_bytes"`
}

// Rule is a rule in effect.
type Rule struct {
	ID   uint32 `json:"id"`
	Text string `json:"text"`
	Counts
	PacketRate float64 `json:"packets_per_second"` // between the last two scans
	ByteRate   float64 `json:"bytes_per_second"`
}

// Rules are what waymark rules list shows.
type Rules struct {
	Rules   []Rule `json:"rules"`
	Sets    []Set  `json:"sets"`
	Passed  Counts `json:"passed"`  // packets that no rule decided about
	NotIP   Counts `json:"not_ip"`  // frames that meet no rule
	Removed Counts `json:"removed"` // of rules that are no longer in effect
	Banned  Counts `json:"banned"`  // packets whose source was banned
	Exempt  Counts `json:"exempt"`  // packets of banned prefixes that an allow list let through to the rules
	// Forgotten are token buckets that went to other sources before they were full again.
	Forgotten uint64 `json:"forgotten_sources"`
	// Captures are what happened to packets that somebody captures.
	Captures gate.Captures `json:"captures"`
}

// Set is a set of addresses or ports.
type Set struct {
	Name    string `json:"name"`
	Members int    `json:"members"`
}

// Status is the gate since the agent started.
type Status struct {
	Mode       string      `json:"mode"`
	Interfaces []Interface `json:"interfaces"`
	Bans       int         `json:"bans"` // in effect
	MaxBans    uint32      `json:"max_bans"`
	// Detected are sources above the rate of a detect rule, by what became of them.
	Detected map[string]uint64 `json:"detected"`
	// SYNCookies are packets that syncookie rules decided about, by what became of them.
	SYNCookies map[string]uint64 `json:"syncookies"`
	Rules
}

// Interface is one whose packets meet the rules.
type Interface struct {
	Name  string `json:"name"`
	Netns string `json:"netns,omitempty"`
	Hook  string `json:"hook"`             // xdp, xdp-generic, tc or none
	Why   string `json:"reason,omitempty"` // for none, and for tc where the mode asks for XDP
}

// StatusOf is the section of a status; nil where the gate is off.
func StatusOf(s *obs.Status) *Status { return obs.SectionOf[Status](s, name) }

// page is what the API answers.
func (s *service) page() (any, error) { return s.rules() }

func (s *service) rulesText() (any, error) {
	return RulesText{lasting(s.gate.Rules(), time.Now()).String()}, nil
}

func (s *service) rules() (Rules, error) {
	out := Rules{Rules: []Rule{}, Sets: []Set{}}
	c, err := s.gate.Counters()
	if err != nil {
		return out, err
	}
	out.Passed, out.NotIP, out.Removed, out.Forgotten = Counts(c.Passed), Counts(c.NotIP), Counts(c.Removed), c.Forgotten
	out.Banned, out.Exempt = Counts(c.Banned), Counts(c.Exempt)
	for _, r := range c.Rules {
		out.Rules = append(out.Rules, Rule{ID: r.Rule.ID, Text: r.Rule.Text, Counts: Counts(r.Counts), PacketRate: r.PacketRate, ByteRate: r.ByteRate})
	}
	out.Captures, err = s.gate.Captures()
	for _, set := range s.gate.Rules().Sets {
		out.Sets = append(out.Sets, Set{set.Name, len(set.Prefixes) + len(set.Ports)})
	}
	return out, err
}

// status gathers the section.
func (s *service) status() (any, error) {
	s.mu.Lock()
	mode := s.cfg.Mode
	s.mu.Unlock()
	list, err := s.rules()
	bans, bansErr := s.listBans()
	cookies, cookiesErr := s.gate.CookieCounts()
	out := &Status{Mode: mode, Interfaces: []Interface{}, Rules: list, Bans: len(bans.Bans), MaxBans: s.maxBans, SYNCookies: cookies, Detected: s.detected()}
	places, placesErr := s.gate.Places()
	for _, p := range places {
		iface, netns := s.deps.IfaceName(p.Iface)
		out.Interfaces = append(out.Interfaces, Interface{Name: iface, Netns: netns, Hook: p.Hook, Why: p.Why})
	}
	out.Interfaces = append(out.Interfaces, s.unmet(out.Interfaces)...)
	return out, errors.Join(err, bansErr, cookiesErr, placesErr)
}

// unmet are configured names and globs of which no interface meets the rules.
func (s *service) unmet(places []Interface) (list []Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, glob := range s.cfg.Interfaces {
		one := Config{Interfaces: []string{glob}}
		if !slices.ContainsFunc(places, func(p Interface) bool { return one.has(p.Name) }) {
			list = append(list, Interface{Name: glob, Hook: "none", Why: "its packets meet no rules: the agent attaches to no such interface (interfaces)"})
		}
	}
	return list
}

// totals are packets that met the rules, and those of them that were dropped.
func (r *Rules) totals() (all, dropped uint64) {
	dropped = r.Removed.Dropped + r.Banned.Dropped
	for _, one := range r.Rules {
		dropped += one.Dropped
	}
	return r.Passed.Packets, dropped
}

// write shows where packets meet the rules.
func (g *Status) write(w io.Writer) error {
	passed, dropped := g.totals()
	if err := term.Heading(w, "Gate: %s, %s; %s dropped, %s passed without a rule that decides", term.Number(uint64(len(g.Rules.Rules)), "rules"), term.Number(uint64(g.Bans), "bans"), term.Count(dropped), term.Count(passed)); err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{{Title: "GATE INTERFACE", Least: 12}, {Title: "HOOK"}, {Title: "REASON"}}}
	for _, i := range g.Interfaces {
		t.Add(obs.Place(i.Netns, i.Name), i.Hook, i.Why)
	}
	return term.Section(w, t)
}

// metrics are there where the gate is on, and empty elsewhere.
var metrics = []prometheus.Metric{
	ruleCounter("waymark_gate_rule_packets_total", "Packets that a rule of the gate matched.", func(c *Counts) uint64 { return c.Packets }),
	ruleCounter("waymark_gate_rule_bytes_total", "Bytes of the packets that a rule of the gate matched, by the IP header.", func(c *Counts) uint64 { return c.Bytes }),
	ruleCounter("waymark_gate_rule_dropped_packets_total", "Packets that a rule of the gate dropped.", func(c *Counts) uint64 { return c.Dropped }),
	counter("waymark_gate_passed_packets_total", "Packets that no rule of the gate decided about.", func(r *Rules) uint64 { return r.Passed.Packets }),
	counter("waymark_gate_not_ip_frames_total", "Frames that meet no rule of the gate: they are not IP.", func(r *Rules) uint64 { return r.NotIP.Packets }),
	counter("waymark_gate_removed_rules_dropped_packets_total", "Packets that were dropped by rules of the gate that are no longer in effect.", func(r *Rules) uint64 { return r.Removed.Dropped }),
	counter("waymark_gate_banned_packets_total", "Packets that were dropped because their source is banned.", func(r *Rules) uint64 { return r.Banned.Dropped }),
	counter("waymark_gate_exempt_packets_total", "Packets of banned prefixes that an allow list let through to the rules of the gate.", func(r *Rules) uint64 { return r.Exempt.Packets }),
	{Name: "waymark_gate_bans", Type: prometheus.Gauge, Help: "Bans in effect.", Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if g := StatusOf(s); g != nil {
			sample(float64(g.Bans))
		}
	}},
	{Name: "waymark_gate_detected_sources_total", Type: prometheus.Counter, Help: "Sources above the rate of a detect rule of the gate, by what became of them.", Labels: []string{"result"}, Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if g := StatusOf(s); g != nil {
			for result, n := range g.Detected {
				sample(float64(n), result)
			}
		}
	}},
	{Name: "waymark_gate_syncookie_packets_total", Type: prometheus.Counter, Help: "Packets that syncookie rules of the gate decided about, by what became of them.", Labels: []string{"result"}, Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if g := StatusOf(s); g != nil {
			for result, n := range g.SYNCookies {
				sample(float64(n), result)
			}
		}
	}},
	counter("waymark_gate_forgotten_sources_total", "Token buckets of limits that went to other sources before they were full again.", func(r *Rules) uint64 { return r.Forgotten }),
}

func ruleCounter(name, help string, value func(*Counts) uint64) prometheus.Metric {
	return prometheus.Metric{Name: name, Type: prometheus.Counter, Help: help, Labels: []string{"id", "rule"}, Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if g := StatusOf(s); g != nil {
			for i := range g.Rules.Rules {
				r := &g.Rules.Rules[i]
				sample(float64(value(&r.Counts)), fmt.Sprint(r.ID), r.Text)
			}
		}
	}}
}

func counter(name, help string, value func(*Rules) uint64) prometheus.Metric {
	return prometheus.Metric{Name: name, Type: prometheus.Counter, Help: help, Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if g := StatusOf(s); g != nil {
			sample(float64(value(&g.Rules)))
		}
	}}
}
