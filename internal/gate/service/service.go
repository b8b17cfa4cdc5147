// Package service is the gate as a stage of the agent: it makes the stage of package gate
// from the configuration, reads the rule file, follows reloads and changes over the API,
// and reports status and metrics. Package list registers it.
package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/stage"
)

// name is that of the sections in configuration and status.
const name = "gate"

// example is the least that has packets meet rules.
const example = `gate:
  interfaces: [eth0]
`

// Kind registers the gate.
func Kind() stage.Kind {
	return stage.Kind{
		Name:     name,
		On:       Section.Enabled,
		New:      New,
		Memory:   memoryShares(),
		Example:  example,
		Text:     stage.Text(name, (*Status).write),
		Counters: counters,
		Metrics:  metrics,
		Pages:    []api.Page{rulesPage, rulesTextPage, bansPage},
		Streams:  append(captureStreams(), eventsStream),
	}
}

// service is the gate of one agent.
type service struct {
	deps stage.Deps
	gate *gate.Gate

	mu  sync.Mutex // held while rules change
	cfg Config     // never changed in place

	detectCfg DetectConfig
	detector  *detector // guarded by bans
	maxBans   uint32
	stateFile string // empty: rules and bans end with the agent
	ruleFile  string // checksum of the rule file; guarded by bans, as are those below
	saved     time.Time
	unsaved   bool // something has changed since
	unloaded  bool // the datapath is closed
	logins    map[netip.Addr]time.Time
	bans      struct {
		sync.Mutex
		known map[netip.Prefix]Ban // in effect, and shortly after
	}
	events struct {
		sync.Mutex
		emit func(api.Event) // nil: nobody follows
	}
}

// At XDP, rules may ask for VLAN tags that are not in frames.
var _ = hints.Consumer(Section.Enabled)

// atXDP report whether packets of an interface may go no further than XDP.
var atXDP []func(cfg *config.Config, iface string) bool

// AtXDP registers one: the rules are at XDP there, whatever the mode. A package calls it to initialize a variable.
func AtXDP(is func(cfg *config.Config, iface string) bool) struct{} {
	atXDP = append(atXDP, is)
	return struct{}{}
}

// Fit reports what rules would take of the tables of an agent, or why they would not fit.
func Fit(cfg *config.Config, rs *rules.Ruleset) (gate.Use, error) {
	own := Section.Of(cfg)
	watches, err := own.Detect.rules(time.Now())
	if err != nil {
		return gate.Use{}, fmt.Errorf("gate.detect.watch: %w", err)
	}
	g := gate.New(own.gate(), slog.New(slog.DiscardHandler))
	g.Detect(watches)
	return g.Fit(rs)
}

// New prepares the stage.
func New(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
	own := Section.Of(cfg)
	table := own.gate()
	if hints.Enabled(cfg) {
		table.Bound = hints.OffersVLAN
	}
	table.AtXDP = func(iface string) bool {
		return slices.ContainsFunc(atXDP, func(is func(*config.Config, string) bool) bool { return is(cfg, iface) })
	}
	s := &service{cfg: own, deps: deps, gate: gate.New(table, deps.Log), maxBans: own.Bans.Max, stateFile: own.State, detectCfg: own.Detect, detector: newDetector(own.Detect, own.Bans.Max)}
	s.bans.known, s.logins = map[netip.Prefix]Ban{}, map[netip.Addr]time.Time{}
	s.warnOfUnattached(cfg.Patterns(), cfg.Exclude)
	watches, err := own.Detect.rules(time.Now())
	if err != nil {
		return nil, fmt.Errorf("gate.detect.watch: %w", err)
	}
	s.gate.Detect(watches)
	ctx, stop := context.WithCancel(context.Background())
	kernel := s.gate.Stage(own.has)
	kernel.Close = both(stop, kernel.Close)
	s.gate.OnUnban(func(c gate.BanCounts, err error) { go s.unbanned(c, err) }) // the caller may hold the lock
	s.gate.OnSettled(s.settled)
	return &stage.Stage{
		Datapath: kernel,
		Start: func() error {
			if err := s.begin(time.Now()); err != nil {
				return err
			}
			go s.detect(ctx)
			go s.watchFloods(ctx)
			go s.keepState(ctx.Done())
			return nil
		},
		Stop:   s.stop,
		Reload: s.reload, Rereads: true,
		Status:  s.status,
		Pages:   map[string]func() (any, error){RulesPath: s.page, RulesTextPath: s.rulesText, BansPath: s.bansPage},
		Changes: map[string]func(json.RawMessage) (any, error){RulesPath: s.change, BansPath: s.changeBans},
		Events:  s.streams(),
	}, nil
}

// warnOfUnattached names interfaces whose packets would meet the rules if the agent attached to them.
func (s *service) warnOfUnattached(attached, excluded []string) {
	is := func(globs []string, name string) bool {
		one := Config{Interfaces: globs}
		return one.has(name)
	}
	for _, name := range s.cfg.Interfaces {
		if !strings.ContainsAny(name, `*?[\`) && (!is(attached, name) || is(excluded, name)) {
			s.deps.Log.Warn("gate: packets of an interface meet no rules: the agent does not attach to it; name it in interfaces", "interface", name)
		}
	}
}

// both calls two functions.
func both(first, second func()) func() {
	return func() {
		first()
		second()
	}
}

// read reads a rule file, and sums it up with the lists that it names; nil: there is none.
func (s *service) read(file string) (rs *rules.Ruleset, sum string, err error) {
	if file == "" {
		return nil, "", nil
	}
	all, open := sha256.New(), rules.RelativeTo(file)
	text, err := readText(file, open)
	if err != nil {
		return nil, "", fmt.Errorf("read packet rules: %w", err)
	}
	_, _ = io.WriteString(all, text) // never fails
	rs, warnings, err := rules.Parse(file, text, rules.Options{Now: time.Now(), Open: func(name string) (io.ReadCloser, error) {
		f, err := open(name)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.TeeReader(f, all), f}, nil
	}})
	if err != nil {
		return nil, "", err
	}
	for _, w := range warnings {
		s.deps.Log.Warn("packet rules", "warning", w.String())
	}
	return inline(rs), hex.EncodeToString(all.Sum(nil)), nil
}

func readText(file string, open func(string) (io.ReadCloser, error)) (string, error) {
	f, err := open(filepath.Base(file))
	if err != nil {
		return "", err
	}
	defer f.Close() // only read from
	return rules.ReadText(file, f)
}

// inline has sets keep their members, not the names of files that these came from.
func inline(rs *rules.Ruleset) *rules.Ruleset {
	for _, set := range rs.Sets {
		set.File = ""
	}
	return rs
}

// reload reads the rule file again. Rules that came over the API stay only where there is
// no file.
func (s *service) reload(next *config.Config) (apply func() error, err error) {
	own := Section.Of(next)
	rs, sum, err := s.read(own.Rules)
	if err != nil {
		return nil, err
	}
	if rs != nil {
		if _, err := s.gate.Fit(rs); err != nil {
			return nil, fmt.Errorf("%s: %w", own.Rules, err)
		}
	}
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if rs == nil && s.cfg.Rules != "" {
			rs = &rules.Ruleset{}
		}
		if rs == nil {
			s.cfg = own
			return s.gate.Refresh()
		}
		if err := errors.Join(s.gate.Apply(rs), s.gate.Refresh()); err != nil {
			return err
		}
		s.cfg = own
		s.bans.Lock()
		defer s.bans.Unlock()
		s.ruleFile = sum
		s.saveOrWarn()
		return nil
	}, nil
}

// refused is an answer about what a caller wrote.
func refused(err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	return &api.Error{Status: 400, What: err.Error()}
}

// streams emit what happens.
func (s *service) streams() map[string]func(context.Context, func(api.Event)) error {
	all := s.captureEvents()
	all[EventsPath] = s.follow
	return all
}
