package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// Change is one change of the rules that are in effect: one of Apply, Add and Delete.
type Change struct {
	File   string   `json:"file,omitempty"`   // that Apply was read from, for messages
	Apply  *string  `json:"apply,omitempty"`  // a whole rule set, without block lists in files
	Add    string   `json:"add,omitempty"`    // rules, and sets, that are added
	Before uint32   `json:"before,omitempty"` // id of the rule that Add goes in front of; 0: behind all
	First  bool     `json:"first,omitempty"`  // Add goes in front of all
	Delete []uint32 `json:"delete,omitempty"`

	// Connections are those of the operator, which no rule may drop.
	Connections []Connection `json:"connections,omitempty"`
	Force       bool         `json:"force,omitempty"` // rules may drop them
}

// Connection is a TCP connection to this host.
type Connection struct {
	Remote netip.AddrPort `json:"remote"`
	Local  netip.AddrPort `json:"local"`
}

// Changed is the answer to a change that was made.
type Changed struct {
	Rules    int      `json:"rules"` // in effect
	Added    []Rule   `json:"added"`
	Removed  []Rule   `json:"removed"`
	Warnings []string `json:"warnings"`
}

// change makes a change between two packets, or none at all.
func (s *service) change(body json.RawMessage) (any, error) {
	var c Change
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	before := lasting(s.gate.Rules(), now)
	next, warnings, err := c.of(before, now)
	if err != nil {
		return nil, refused(err)
	}
	if err := c.check(next, now); err != nil {
		return nil, err
	}
	if err := s.gate.Apply(next); err != nil {
		return nil, refused(err)
	}
	out := Changed{Rules: len(next.Rules), Added: missing(next, before), Removed: missing(before, next), Warnings: []string{}}
	for _, w := range warnings {
		out.Warnings = append(out.Warnings, w.String())
	}
	s.bans.Lock()
	defer s.bans.Unlock()
	s.noteLogins(c.Connections, now)
	return out, s.keep()
}

// lasting is a rule set without rules and members that have ended.
func lasting(rs *rules.Ruleset, now time.Time) *rules.Ruleset {
	out := &rules.Ruleset{}
	ended := func(until time.Time) bool { return !until.IsZero() && !now.Before(until) }
	for _, set := range rs.Sets {
		one := *set
		one.Prefixes = slices.DeleteFunc(slices.Clone(set.Prefixes), func(m rules.Member) bool { return ended(m.Until) })
		if len(one.Prefixes)+len(one.Ports) == 0 {
			one.Prefixes = set.Prefixes // rules name the set, and it cannot be empty
		}
		out.Sets = append(out.Sets, &one)
	}
	for _, r := range rs.Rules {
		if !ended(r.Until) {
			out.Rules = append(out.Rules, r)
		}
	}
	return out
}

// of is the rule set after the change.
func (c *Change) of(now *rules.Ruleset, at time.Time) (*rules.Ruleset, []rules.Warning, error) {
	switch {
	case c.Apply != nil:
		return parse(c.File, *c.Apply, at)
	case c.Add != "":
		return c.added(now, at)
	case len(c.Delete) > 0:
		next := &rules.Ruleset{Sets: now.Sets, Rules: slices.Clone(now.Rules)}
		for _, id := range c.Delete {
			i, err := indexOf(next, id)
			if err != nil {
				return nil, nil, err
			}
			next.Rules = slices.Delete(next.Rules, i, i+1)
		}
		return next, nil, nil
	}
	return nil, nil, &api.Error{Status: http.StatusBadRequest, What: "the request changes nothing", How: "send apply, add or delete"}
}

// parse reads rules that have no block lists.
func parse(file, text string, at time.Time) (*rules.Ruleset, []rules.Warning, error) {
	return rules.Parse(file, text, rules.Options{Now: at, Open: func(name string) (io.ReadCloser, error) {
		return nil, fmt.Errorf("the agent reads no files for others: send the members of %s", name)
	}})
}

// added puts rules where they belong. They are read behind the others, whose sets they may
// name.
func (c *Change) added(now *rules.Ruleset, at time.Time) (*rules.Ruleset, []rules.Warning, error) {
	place := len(now.Rules)
	if c.First {
		place = 0
	}
	if c.Before != 0 {
		i, err := indexOf(now, c.Before)
		if err != nil {
			return nil, nil, err
		}
		place = i
	}
	next, warnings, err := parse("rules", now.String()+c.Add, at)
	if err != nil {
		return nil, nil, err
	}
	added := slices.Clone(next.Rules[len(now.Rules):])
	if len(added) == 0 {
		return nil, nil, &api.Error{Status: http.StatusBadRequest, What: "there is no rule in " + strings.TrimSpace(c.Add)}
	}
	next.Rules = slices.Insert(next.Rules[:len(now.Rules)], place, added...)
	if place < len(now.Rules) {
		warnings = next.Warnings(at)
	}
	return next, warnings, nil
}

func indexOf(rs *rules.Ruleset, id uint32) (int, error) {
	i := slices.IndexFunc(rs.Rules, func(r *rules.Rule) bool { return r.ID == id })
	if i < 0 {
		return 0, &api.Error{Status: http.StatusNotFound, What: fmt.Sprintf("there is no rule %d", id), How: "waymark rules list shows the ids"}
	}
	return i, nil
}

// check refuses rules that would drop the operator's connection.
func (c *Change) check(next *rules.Ruleset, now time.Time) error {
	if c.Force {
		return nil
	}
	var list []rules.Connection
	for _, one := range c.Connections {
		list = append(list, rules.Connection{Remote: one.Remote, Local: one.Local})
	}
	for _, conflict := range next.ControlConflicts(list, rules.State{Now: now}) {
		from := conflict.Connection.Remote
		return &api.Error{
			Status: http.StatusConflict, What: fmt.Sprintf("%q would drop your connection from %s", conflict.Rule.Text, from),
			How: fmt.Sprintf("put pass src %s in front of it, or repeat the command with --force", from.Addr().Unmap().WithZone("")),
		}
	}
	return nil
}

// missing are the rules of the first that the second does not have.
func missing(rs, other *rules.Ruleset) []Rule {
	list := []Rule{}
	for _, r := range rs.Rules {
		if !slices.ContainsFunc(other.Rules, func(o *rules.Rule) bool { return o.ID == r.ID }) {
			list = append(list, Rule{ID: r.ID, Text: r.Text})
		}
	}
	return list
}
