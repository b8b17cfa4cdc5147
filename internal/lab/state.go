package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// stateDir holds a file for each lab. What a lab consists of follows from its
// prefix and topology; the file says which there are, and who is at work.
const stateDir = "/run/waymark/lab"

// state is the content of that file. It is written before the first namespace
// is made and removed after the last is gone.
type state struct {
	Prefix   string    `json:"prefix"`
	Topology string    `json:"topology"`
	MTU      int       `json:"mtu"`
	Created  time.Time `json:"created"`
	Complete bool      `json:"complete"`
	Builder  Process   `json:"builder"`
	Relay    *Process  `json:"relay,omitempty"`
}

func newState(cfg Config) *state {
	self, _ := FindProcess(os.Getpid())
	return &state{Prefix: cfg.Prefix, Topology: cfg.Topology, MTU: cfg.MTU, Created: time.Now(), Builder: self}
}

func (st *state) config() Config {
	return Config{Topology: st.Topology, Prefix: st.Prefix, MTU: st.MTU}
}

func (st *state) info() Info {
	info := Info{
		Prefix: st.Prefix, Topology: st.Topology, State: "unfinished", MTU: st.MTU,
		Created: st.Created, Hosts: []HostInfo{}, Relay: st.Relay,
	}
	if st.Complete {
		info.State = "up"
	}
	if _, ok := plans[st.Topology]; ok {
		for _, h := range newLab(st.config()).hosts {
			info.Hosts = append(info.Hosts, HostInfo{Name: h.Name, Netns: h.Netns, Interfaces: h.Interfaces})
		}
	}
	return info
}

func stateFile(prefix string) string { return filepath.Join(stateDir, prefix+".json") }

// RelayLog is where the relay of a path that runs in the background writes to.
func RelayLog(prefix string) string { return filepath.Join(stateDir, prefix+"relay.log") }

// RelaySocket is where that relay tells its counts.
func RelaySocket(prefix string) string { return filepath.Join(stateDir, prefix+"relay.sock") }

// files are all that a lab may have in stateDir.
func files(prefix string) []string {
	f := stateFile(prefix)
	return []string{f + ".new", RelayLog(prefix), RelaySocket(prefix), f}
}

// create claims the prefix: of two that try, one gets ErrExists.
func (st *state) create() error {
	for range 10 {
		if err := os.MkdirAll(stateDir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", stateDir, err)
		}
		f, err := os.OpenFile(stateFile(st.Prefix), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, os.ErrNotExist) {
			continue // the directory went with another lab
		}
		if errors.Is(err, os.ErrExist) {
			return st.existsError()
		}
		if err != nil {
			return fmt.Errorf("claim prefix %q: %w", st.Prefix, err)
		}
		return errors.Join(json.NewEncoder(f).Encode(st), f.Close())
	}
	return fmt.Errorf("claim prefix %q: %s keeps vanishing", st.Prefix, stateDir)
}

func (st *state) existsError() error {
	old, err := readState(st.Prefix)
	what := "up"
	if err != nil || !old.Complete {
		what = "unfinished"
	}
	topology := ""
	if err == nil {
		topology = fmt.Sprintf("%q ", old.Topology)
	}
	return fmt.Errorf("%w: %swith prefix %q is %s: take it away with waymark lab down%s, or choose another --prefix",
		ErrExists, topology, st.Prefix, what, prefixFlag(st.Prefix))
}

func prefixFlag(prefix string) string {
	if prefix == DefaultPrefix {
		return ""
	}
	return " --prefix " + prefix
}

// replace rewrites the file, whole or not at all.
func (st *state) replace() error {
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("encode state of lab: %w", err)
	}
	file := stateFile(st.Prefix)
	if err := os.WriteFile(file+".new", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write state of lab: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write state of lab: %w", err)
	}
	return nil
}

// readState returns os.ErrNotExist for a lab that is not there. A file that was
// cut short is the state of a lab about which nothing but the prefix is known.
func readState(prefix string) (*state, error) {
	data, err := os.ReadFile(stateFile(prefix))
	if err != nil {
		return nil, fmt.Errorf("read state of lab: %w", err)
	}
	st := &state{}
	if err := json.Unmarshal(data, st); err != nil {
		return &state{Prefix: prefix}, nil
	}
	return st, nil
}

func readStates() ([]*state, error) {
	entries, err := os.ReadDir(stateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var states []*state
	for _, e := range entries {
		prefix, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		st, err := readState(prefix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		states = append(states, st)
	}
	return states, nil
}

// RecordRelay notes the process that moves the frames of a path, so that Down
// finds it.
func RecordRelay(prefix string, p Process) error {
	st, err := readState(prefix)
	if err != nil {
		return err
	}
	st.Relay = &p
	return st.replace()
}
