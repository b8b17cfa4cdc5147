package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/address"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/timespec"
)

// BansPath is where the API has the bans.
const BansPath = "/api/v1/bans"

var bansPage = api.Page{
	Path:    BansPath,
	Doc:     "Bans in effect, as `waymark rules bans -o json` shows them. `POST`, on the unix socket as root or the agent's user: changes them",
	Missing: rulesPage.Missing,
}

// ByOperator says that a user made a ban.
const ByOperator = "operator"

// Ban is a source whose packets are dropped.
type Ban struct {
	Prefix       netip.Prefix `json:"prefix"`
	Since        time.Time    `json:"since"`
	Until        *time.Time   `json:"until"` // null: without end
	By           string       `json:"by"`
	Level        int          `json:"level"` // of back-off: bans of this source shortly before
	Reason       string       `json:"reason,omitempty"`
	Evidence     *Evidence    `json:"evidence,omitempty"` // of detection
	Dropped      uint64       `json:"dropped"`
	DroppedBytes uint64       `json:"dropped_bytes"`
}

// Bans are what waymark rules bans shows.
type Bans struct {
	Bans []Ban  `json:"bans"`
	Max  uint32 `json:"max"`
}

// BanChange is one change of the bans: either Ban, or Unban, or All.
type BanChange struct {
	Ban    string   `json:"ban,omitempty"` // address or prefix
	For    string   `json:"for,omitempty"` // such as 1h; empty: without end
	Reason string   `json:"reason,omitempty"`
	Unban  []string `json:"unban,omitempty"`
	All    bool     `json:"unban_all,omitempty"`

	// Connections are those of the operator, which no ban may cut off.
	Connections []Connection `json:"connections,omitempty"`
	Force       bool         `json:"force,omitempty"` // it may
}

// BansChanged is the answer to a change that was made.
type BansChanged struct {
	Banned   *Ban           `json:"banned,omitempty"`
	Unbanned []netip.Prefix `json:"unbanned"`
	Bans     int            `json:"bans"` // in effect
}

// maxReason bounds the text of a ban.
const maxReason = 200

func (s *service) bansPage() (any, error) { return s.listBans() }

func (s *service) listBans() (Bans, error) {
	s.bans.Lock()
	defer s.bans.Unlock()
	return s.readBans()
}

// readBans needs the lock of the bans.
func (s *service) readBans() (Bans, error) {
	out := Bans{Bans: []Ban{}, Max: s.maxBans}
	list, err := s.gate.Bans()
	for _, c := range list {
		one, ok := s.bans.known[c.Prefix]
		if !ok {
			continue // it ended meanwhile
		}
		one.Dropped, one.DroppedBytes = c.Dropped, c.DroppedBytes
		out.Bans = append(out.Bans, one)
	}
	return out, err
}

// changeBans makes a change, or none at all.
func (s *service) changeBans(body json.RawMessage) (any, error) {
	var c BanChange
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, refused(err)
	}
	s.bans.Lock()
	defer s.bans.Unlock()
	s.noteLogins(c.Connections, time.Now())
	out := BansChanged{Unbanned: []netip.Prefix{}}
	var err error
	switch {
	case c.Ban != "":
		out.Banned, err = s.banAsAsked(&c, time.Now())
	case c.All || len(c.Unban) > 0:
		out.Unbanned, err = s.unbanAsAsked(&c)
	default:
		err = &api.Error{Status: http.StatusBadRequest, What: "the request changes nothing", How: "send ban, unban or unban_all"}
	}
	if err != nil {
		return nil, refused(err)
	}
	list, err := s.readBans()
	out.Bans = len(list.Bans)
	return out, errors.Join(err, s.keep())
}

// keep saves a change that a user made. It needs the lock of the bans.
func (s *service) keep() error {
	if err := s.saveState(); err != nil {
		return &api.Error{Status: http.StatusInternalServerError, What: "the change is in effect, but is not kept over a restart: " + err.Error()}
	}
	return nil
}

func (s *service) banAsAsked(c *BanChange, now time.Time) (*Ban, error) {
	p, err := sourceOf(c.Ban)
	if err != nil {
		return nil, err
	}
	one := Ban{Prefix: p, Since: now.UTC(), By: ByOperator, Reason: c.Reason}
	if len(one.Reason) > maxReason {
		return nil, fmt.Errorf("the reason has %d bytes, and %d are allowed: shorten it", len(one.Reason), maxReason)
	}
	if c.For != "" {
		d, err := timespec.Duration(c.For)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("for %s: write a duration with its unit, such as 10m, 1h or 7d", c.For)
		}
		until := now.Add(d).UTC()
		one.Until = &until
	}
	if err := s.mayBan(p, c, now); err != nil {
		return nil, err
	}
	return &one, s.ban(&one)
}

// sourceOf reads an address or a prefix.
func sourceOf(text string) (netip.Prefix, error) {
	p, err := address.Prefix(text, "bans")
	if errors.Is(err, address.ErrNone) {
		return p, fmt.Errorf("%q is neither an address nor a prefix: write it like 192.0.2.1 or 2001:db8::/32", text)
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", text, err)
	}
	return p, nil
}

// mayBan refuses bans without effect, and those that would cut off the operator.
func (s *service) mayBan(p netip.Prefix, c *BanChange, now time.Time) error {
	allowed := s.gate.Rules().AllowList(func(until time.Time) bool { return !until.IsZero() && !now.Before(until) })
	if i := slices.IndexFunc(allowed, func(a netip.Prefix) bool { return a.Bits() <= p.Bits() && a.Contains(p.Addr()) }); i >= 0 {
		return &api.Error{
			Status: http.StatusConflict, What: fmt.Sprintf("%s is on the allow list, with %s", c.Ban, allowed[i]),
			How: "take it out of the rule pass src … first: waymark rules list shows the rules",
		}
	}
	if c.Force {
		return nil
	}
	for _, one := range c.Connections {
		from := one.Remote.Addr().Unmap().WithZone("")
		if p.Contains(from) && !slices.ContainsFunc(allowed, func(a netip.Prefix) bool { return a.Contains(from) }) {
			return &api.Error{
				Status: http.StatusConflict, What: fmt.Sprintf("the ban of %s would drop your connection from %s", c.Ban, one.Remote),
				How: fmt.Sprintf("add the rule pass src %s first, or repeat the command with --force", from),
			}
		}
	}
	if p.Bits() == 0 {
		return &api.Error{Status: http.StatusConflict, What: fmt.Sprintf("the ban of %s would drop the packets of all hosts", c.Ban), How: "if that is meant, repeat the command with --force"}
	}
	return nil
}

func (s *service) unbanAsAsked(c *BanChange) (list []netip.Prefix, err error) {
	for _, text := range c.Unban {
		p, err := sourceOf(text)
		if err != nil {
			return nil, err
		}
		if _, ok := s.bans.known[p]; !ok {
			return nil, &api.Error{Status: http.StatusNotFound, What: fmt.Sprintf("%s is not banned", text), How: "waymark rules bans shows the bans"}
		}
		list = append(list, p)
	}
	for p := range s.bans.known {
		if c.All {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	list = slices.Compact(list)
	return list, s.gate.Unban(list...)
}

// ban makes a ban effective and reports it. It needs the lock of the bans.
func (s *service) ban(b *Ban) error {
	if err := s.enforce(b); err != nil {
		return err
	}
	s.unsaved = true
	s.report(EventBan, b)
	return nil
}

func (s *service) enforce(b *Ban) error {
	one := gate.Ban{Prefix: b.Prefix, Since: b.Since}
	if b.Until != nil {
		one.Until = *b.Until
	}
	if err := s.gate.Ban(one); err != nil {
		return err
	}
	if was, ok := s.bans.known[b.Prefix]; ok {
		b.Since = was.Since
	}
	s.bans.known[b.Prefix] = *b
	return nil
}

// unbanned follows the end of a ban.
func (s *service) unbanned(c gate.BanCounts, err error) {
	s.bans.Lock()
	defer s.bans.Unlock()
	if err != nil {
		s.deps.Log.Warn("gate: what a ban dropped is not known", "prefix", c.Prefix, "error", err)
	}
	b, ok := s.bans.known[c.Prefix]
	if !ok || !b.Since.Equal(c.Since) {
		return // it is banned again
	}
	delete(s.bans.known, c.Prefix)
	b.Dropped, b.DroppedBytes = c.Dropped, c.DroppedBytes
	s.report(EventUnban, &b)
	s.unsaved = true
}
