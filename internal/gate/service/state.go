package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// stateVersion is that of the file's format.
const stateVersion = 1

// state is what outlasts the agent: the file of gate.state.
type state struct {
	Version int       `json:"version"`
	Saved   time.Time `json:"saved"`
	Rules   string    `json:"rules"` // in effect
	// RuleFile is a checksum of the rule file, and of the lists that it names, from which Rules began; empty: there was none.
	RuleFile string    `json:"rule_file,omitempty"`
	Bans     []Ban     `json:"bans"`
	Past     []pastOne `json:"past_bans"` // by which the next ban of a source is longer
	// Counters are all, and Inherited the part that the maps of the agent did not have which wrote this: of agents before,
	// and of those of their pins that are Folded.
	Counters  *gate.Amounts `json:"counters"`
	Inherited *gate.Amounts `json:"inherited"`
	Folded    []string      `json:"folded"`

	rules *rules.Ruleset // of Rules
}

// pastOne is a ban of detection that may have ended.
type pastOne struct {
	Prefix netip.Prefix `json:"prefix"`
	Level  int          `json:"level"`
	Until  time.Time    `json:"until"`
}

// loadState reads the file; nil: there is none. One that is damaged is put aside, and the agent starts without, unless rules
// of an agent before are in effect: these stay, and the agent does not start.
func (s *service) loadState(now time.Time) (*state, error) {
	if s.stateFile == "" {
		if s.gate.InEffect() {
			s.deps.Log.Warn("gate: rules and bans that an agent before has left in effect end: gate.state names no file that has them", "pins", s.cfg.PinDir)
		} else {
			s.gate.DropFormers()
		}
		return nil, nil
	}
	text, err := os.ReadFile(s.stateFile)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && !s.gate.InEffect():
		s.gate.DropFormers()
		return nil, nil
	case missing:
		return nil, s.locked(err)
	case err != nil:
		return nil, fmt.Errorf("read rules and bans of the agent before: %w: the agent's user must be able to read gate.state", err)
	}
	st := &state{}
	if err = st.parse(text, now); err == nil {
		return st, nil
	}
	if s.gate.InEffect() {
		return nil, s.locked(fmt.Errorf("%s: %w", s.stateFile, err))
	}
	s.gate.DropFormers()
	aside := s.stateFile + ".bad"
	how := "it is kept as " + aside
	if moved := os.Rename(s.stateFile, aside); moved != nil {
		how = moved.Error()
	}
	s.deps.Log.Error("gate: the state of the agent before is ignored: its rules, bans and counters are lost", "file", s.stateFile, "error", err, "what_now", how)
	return nil, nil
}

// locked is why an agent does not replace what an agent before has left in effect.
func (s *service) locked(err error) error {
	return fmt.Errorf("rules and bans of an agent before are in effect and stay so, because this one cannot go on with them: %w: "+
		"correct that, or end them with waymark restore --pins --pin-dir %s", err, s.cfg.PinDir)
}

// parse reads a file as a whole, or not at all.
func (st *state) parse(text []byte, now time.Time) error {
	var head struct{ Version int }
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	if head.Version != stateVersion {
		return fmt.Errorf("it has version %d, and this agent reads version %d", head.Version, stateVersion)
	}
	if err := json.Unmarshal(text, st); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	if st.Counters == nil || st.Inherited == nil {
		return errors.New("it is damaged: it has no counters")
	}
	for _, b := range st.Bans {
		if !b.Prefix.IsValid() || b.Prefix != b.Prefix.Masked() {
			return fmt.Errorf("it is damaged: %q is no prefix to ban", b.Prefix)
		}
	}
	var err error
	if st.rules, _, err = parse("its rules", st.Rules, now); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	return nil
}

// saveState writes the file, if there is one, as a whole or not at all. It needs the lock of the bans.
func (s *service) saveState() error {
	if s.stateFile == "" || s.unloaded {
		return nil
	}
	st := &state{Version: stateVersion, Saved: time.Now().UTC(), Rules: s.gate.Rules().String(), RuleFile: s.ruleFile, Bans: []Ban{}, Past: []pastOne{}, Folded: []string{}}
	list, err := s.readBans()
	if err != nil {
		return fmt.Errorf("save rules and bans: %w", err)
	}
	st.Bans = list.Bans
	for p, b := range s.detector.past {
		st.Past = append(st.Past, pastOne{p, b.level, b.until})
	}
	if st.Counters, st.Inherited, st.Folded, err = s.gate.Amounts(); err != nil {
		return fmt.Errorf("save rules and bans: %w", err)
	}
	text, err := json.Marshal(st)
	if err == nil {
		err = replaceFile(s.stateFile, text)
	}
	if err != nil {
		return fmt.Errorf("save rules and bans: %w: gate.state must be in a directory that the agent's user may write to", err)
	}
	s.saved, s.unsaved = st.Saved, false
	return nil
}

// replaceFile writes a file as a whole, or leaves it as it is.
func replaceFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".waymark-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
	}
	return err
}

// begin has the rules, bans and counters of the agent before go on. The rule file counts where it has changed since.
func (s *service) begin(now time.Time) error {
	rs, sum, err := s.read(s.cfg.Rules)
	if err != nil {
		return err
	}
	s.bans.Lock()
	defer s.bans.Unlock()
	st, err := s.loadState(now)
	if err != nil {
		return err
	}
	s.ruleFile = sum
	if st == nil {
		err = s.applyFirst(rs)
	} else {
		err = s.resume(st, rs, now)
	}
	if err != nil {
		return err
	}
	s.saveOrWarn() // before packets meet the rules: whatever ends this agent, the next one knows what it has left
	return nil
}

// resume goes on from a state; file: the rules of the rule file.
func (s *service) resume(st *state, file *rules.Ruleset, now time.Time) error {
	if s.gate.Formers() {
		s.gate.Inherit(st.Inherited, st.Folded)
	} else {
		s.gate.Inherit(st.Counters, nil)
	}
	for _, p := range st.Past {
		s.detector.note(p.Prefix, pastBan{p.Level, p.Until}, now)
	}
	kept := file
	if st.RuleFile == s.ruleFile {
		kept = lasting(st.rules, now)
	} else {
		s.deps.Log.Info("gate: the rule file has changed: its rules replace those of before", "file", s.cfg.Rules)
	}
	if err := s.applyFirst(kept); err != nil {
		if s.gate.InEffect() {
			return s.locked(err)
		}
		s.deps.Log.Error("gate: rules of before are not in effect", "file", s.stateFile, "error", err)
		if err := s.applyFirst(file); err != nil {
			return err
		}
	}
	if err := s.banAgain(st.Bans, now); err != nil {
		return s.locked(err)
	}
	s.deps.Log.Info("gate: rules and bans of before are in effect", "file", s.stateFile, "rules", len(s.gate.Rules().Rules), "bans", len(s.bans.known))
	return nil
}

// applyFirst applies the first rules; nil: there are none.
func (s *service) applyFirst(rs *rules.Ruleset) error {
	if rs == nil {
		rs = &rules.Ruleset{}
	}
	return s.gate.Apply(rs)
}

// banAgain makes bans effective that have not ended. The error is that of one that is in effect in the kernel and would end.
func (s *service) banAgain(list []Ban, now time.Time) error {
	for _, b := range list {
		if b.Until != nil && !now.Before(*b.Until) {
			continue
		}
		b.Dropped, b.DroppedBytes = 0, 0
		err := s.enforce(&b)
		if err != nil && s.gate.InEffect() {
			return fmt.Errorf("the ban of %s: %w", b.Prefix, err)
		}
		if err != nil {
			s.deps.Log.Error("gate: a ban of before is not in effect", "prefix", b.Prefix, "error", err)
		}
	}
	return nil
}

// savePause is for how long a change by others than users, and the longest for how long counters, are not saved.
const (
	savePause   = time.Second
	saveLongest = time.Minute
)

// keepState saves what changes until the agent ends.
func (s *service) keepState(done <-chan struct{}) {
	each := time.NewTicker(savePause)
	defer each.Stop()
	for {
		select {
		case <-done:
			return
		case <-each.C:
		}
		s.bans.Lock()
		if s.unsaved || time.Since(s.saved) > saveLongest {
			s.saveOrWarn()
		}
		s.bans.Unlock()
	}
}

// saveOrWarn needs the lock of the bans.
func (s *service) saveOrWarn() {
	if err := s.saveState(); err != nil {
		s.saved, s.unsaved = time.Now(), false // the next one in a minute
		s.deps.Log.Warn("gate: rules and bans would not outlast the agent", "error", err)
	}
}

// stop saves the last counters.
func (s *service) stop() error {
	s.bans.Lock()
	defer s.bans.Unlock()
	s.saveOrWarn()
	s.unloaded = true
	return nil
}

// settled follows the end of what agents before have left in the kernel.
func (s *service) settled() {
	s.bans.Lock()
	defer s.bans.Unlock()
	s.saveOrWarn()
	if err := s.gate.Release(); err != nil {
		s.deps.Log.Warn("gate: pins of an agent before are left", "error", err)
	}
}
