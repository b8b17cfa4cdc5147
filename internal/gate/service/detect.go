package service

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// DetectConfig says which sources are banned for what they send.
type DetectConfig struct {
	Watch   []string      `yaml:"watch" doc:"rates above which a source is banned, and conditions, as in detect rules: 10000/s per src, or 50MB/s per src/24/48 udp dst port 53; they come before all rules. Empty: only detect rules of the rule file count"`
	DryRun  bool          `yaml:"dry_run" default:"false" doc:"report sources above a rate, and ban none"`
	Ban     time.Duration `yaml:"ban" default:"1m" min:"1s" max:"24h" doc:"time of the first ban of a source; each further one takes twice as long"`
	Longest time.Duration `yaml:"longest" default:"1h" min:"1s" max:"720h" doc:"limit of that time"`
	Forgive time.Duration `yaml:"forgive" default:"1h" min:"1s" max:"720h" doc:"time without a ban after which the next one is the first again"`
	Rate    uint32        `yaml:"bans_per_minute" default:"600" min:"1" doc:"limit of bans per minute by detection, which may take half of bans.max"`
	Flood   uint32        `yaml:"flood" default:"100000" min:"1000" doc:"packets per second of a watch from which a flood is reported if they come from too many sources to ban"`
}

// ByDetection says that a ban follows from a detect rule.
const ByDetection = "detection"

// Evidence is why a source was banned.
type Evidence struct {
	Rule      string  `json:"rule"`
	Rate      float64 `json:"rate"`      // per second, an estimate
	Threshold uint64  `json:"threshold"` // of the rule, per second
	Unit      string  `json:"unit"`      // packets or bytes
	Amount    uint64  `json:"amount"`    // in the window, when the threshold was passed
	Elapsed   float64 `json:"elapsed_seconds"`
	Window    float64 `json:"window_seconds"`
	Error     uint64  `json:"error_bound"` // by which the amount may be too high; left out of account
	Total     uint64  `json:"total"`       // of all sources in the window
	Packet    string  `json:"packet"`      // that passed the threshold
}

// rules are the watches as rules.
func (c *DetectConfig) rules(now time.Time) ([]*rules.Rule, error) {
	if len(c.Watch) == 0 {
		return nil, nil
	}
	for _, w := range c.Watch {
		if strings.ContainsAny(w, "\n;#") {
			return nil, fmt.Errorf("%q is not one rate with conditions", w)
		}
	}
	rs, _, err := rules.Parse("gate.detect.watch", "detect "+strings.Join(c.Watch, "\ndetect "), rules.Options{Now: now})
	if err != nil {
		return nil, err
	}
	return rs.Rules, gate.Check(rs)
}

// detector decides which candidates are banned, and for how long.
type detector struct {
	cfg      DetectConfig
	most     int // bans by detection at a time
	past     map[netip.Prefix]pastBan
	minute   time.Time // of which made is
	made     uint32
	reported map[netip.Prefix]bool // sources that were reported in this minute and not banned
	results  map[string]uint64     // candidates, by what became of them
}

// pastBan is the last ban of a source.
type pastBan struct {
	level int
	until time.Time
}

// detected are what becomes of candidates.
const (
	resultBanned  = "banned"
	resultDryRun  = "dry_run"
	resultAllowed = "allowed" // the source is on the allow list
	resultHost    = "host"    // the source has an address or a gateway of this host
	resultLogin   = "login"   // an operator who changed rules or bans is logged in from there
	resultNobody  = "nobody"  // no host can have it
	resultLimited = "limited" // too many bans, at a time or per minute
	resultKnown   = "known"   // it is banned already
	resultFailed  = "failed"  // see the log
	resultGone    = "no_rule" // the rule is gone
)

func newDetector(cfg DetectConfig, maxBans uint32) *detector {
	return &detector{cfg: cfg, most: int(max(maxBans/2, 1)), past: map[netip.Prefix]pastBan{}, reported: map[netip.Prefix]bool{}, results: map[string]uint64{}}
}

// surroundings are what a decision depends on besides the source.
type surroundings struct {
	allowed []netip.Prefix
	host    []netip.Addr
	logins  []netip.Addr
	known   map[netip.Prefix]Ban
}

// judge says what becomes of a candidate, and if it is to be banned, at which level and until when.
func (d *detector) judge(p netip.Prefix, dryRun bool, s *surroundings, now time.Time) (result string, level int, until time.Time) {
	automatic := 0
	for _, b := range s.known {
		if b.By == ByDetection {
			automatic++
		}
	}
	if now.Sub(d.minute) >= time.Minute {
		d.minute, d.made = now, 0
		clear(d.reported)
	}
	_, known := s.known[p]
	a := p.Addr()
	switch {
	case known:
		return resultKnown, 0, until
	case slices.ContainsFunc(s.allowed, func(w netip.Prefix) bool { return w.Bits() <= p.Bits() && w.Contains(a) }):
		return resultAllowed, 0, until
	case a.IsMulticast() || a.IsLoopback() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return resultNobody, 0, until
	case slices.ContainsFunc(s.host, p.Contains):
		return resultHost, 0, until
	case slices.ContainsFunc(s.logins, p.Contains):
		return resultLogin, 0, until
	case automatic >= d.most || d.made >= d.cfg.Rate:
		return resultLimited, 0, until
	}
	if was, ok := d.past[p]; ok && now.Before(was.until.Add(d.cfg.Forgive)) {
		level = was.level + 1
	}
	lasts := d.cfg.Ban
	for i := 0; i < level && lasts < d.cfg.Longest; i++ {
		lasts *= 2
	}
	until = now.Add(min(lasts, d.cfg.Longest))
	if dryRun || d.cfg.DryRun {
		return resultDryRun, level, until
	}
	d.made++
	d.note(p, pastBan{level, until}, now)
	return resultBanned, level, until
}

// news reports whether a source that is not banned is reported: once per minute.
func (d *detector) news(p netip.Prefix) bool {
	if d.reported[p] || len(d.reported) >= 2*d.most {
		return false
	}
	d.reported[p] = true
	return true
}

// note remembers a ban, and of the others as many as there may be bans.
func (d *detector) note(p netip.Prefix, b pastBan, now time.Time) {
	if _, ok := d.past[p]; !ok && len(d.past) >= 2*d.most {
		oldest, found := netip.Prefix{}, false
		for other, was := range d.past {
			if now.After(was.until.Add(d.cfg.Forgive)) {
				delete(d.past, other)
			} else if !found || was.until.Before(d.past[oldest].until) {
				oldest, found = other, true
			}
		}
		if len(d.past) >= 2*d.most {
			delete(d.past, oldest)
		}
	}
	d.past[p] = b
}

// detect bans sources until ctx ends.
func (s *service) detect(ctx context.Context) {
	if err := s.gate.Candidates(ctx, s.candidate); err != nil && ctx.Err() == nil {
		s.deps.Log.Error("gate: sources above a rate are not found any more", "error", err)
	}
}

// candidate decides about a source above a rate.
func (s *service) candidate(c *gate.Candidate) {
	now := time.Now()
	counters, err := s.gate.Counters()
	i := slices.IndexFunc(counters.Rules, func(r gate.RuleCounts) bool { return r.Rule.ID == c.Rule })
	host, hostErr := s.gate.HostAddresses()
	s.bans.Lock()
	defer s.bans.Unlock()
	if err != nil || hostErr != nil || i < 0 {
		s.detector.results[resultGone]++
		return
	}
	rule := counters.Rules[i].Rule
	allowed := s.gate.Rules().AllowList(func(until time.Time) bool { return !until.IsZero() && !now.Before(until) })
	result, level, until := s.detector.judge(c.Source, rule.DryRun, &surroundings{allowed, host, s.loginsAt(now), s.bans.known}, now)
	until = until.UTC()
	one := &Ban{Prefix: c.Source, Since: now.UTC(), Until: &until, By: ByDetection, Level: level, Reason: "above " + rule.Text, Evidence: evidenceOf(c, rule)}
	switch result {
	case resultBanned:
		if err := s.ban(one); err != nil {
			result = resultFailed
			s.deps.Log.Warn("gate: a source above a rate is not banned", "prefix", c.Source, "error", err)
		}
	case resultDryRun:
		if s.detector.news(c.Source) {
			s.report(EventDryRun, one)
		}
	case resultAllowed, resultHost, resultLogin, resultLimited, resultNobody:
		one.Until, one.Reason = nil, result
		if s.detector.news(c.Source) {
			s.report(EventSpared, one)
		}
	}
	s.detector.results[result]++
}

// Operators are remembered for a day after their last change, and the last few of them.
const (
	loginLasts = 24 * time.Hour
	maxLogins  = 64
)

// noteLogins remembers from where operators are logged in who may change rules and bans. It needs the lock of the bans.
func (s *service) noteLogins(list []Connection, now time.Time) {
	for _, c := range list {
		s.logins[c.Remote.Addr().Unmap().WithZone("")] = now
	}
	for len(s.logins) > maxLogins {
		oldest := netip.Addr{}
		for a, at := range s.logins {
			if !oldest.IsValid() || at.Before(s.logins[oldest]) {
				oldest = a
			}
		}
		delete(s.logins, oldest)
	}
}

// loginsAt are those that count. It needs the lock of the bans.
func (s *service) loginsAt(now time.Time) []netip.Addr {
	maps.DeleteFunc(s.logins, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > loginLasts })
	return slices.Collect(maps.Keys(s.logins))
}

func evidenceOf(c *gate.Candidate, r *rules.Rule) *Evidence {
	unit := "packets"
	if r.Limit.Bytes {
		unit = "bytes"
	}
	return &Evidence{
		Rule: r.Text, Rate: float64(c.Amount) / c.Elapsed.Seconds(), Threshold: r.Limit.Rate, Unit: unit, Amount: c.Amount,
		Elapsed: c.Elapsed.Seconds(), Window: gate.DetectWindow.Seconds(), Error: c.Bound, Total: c.Total, Packet: c.Packet,
	}
}

// detected are the results of candidates.
func (s *service) detected() map[string]uint64 {
	s.bans.Lock()
	defer s.bans.Unlock()
	return maps.Clone(s.detector.results)
}
