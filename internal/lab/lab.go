// Package lab makes hosts as network namespaces on this machine, wires them to a
// topology and removes them completely. Input: the name of a topology. Output:
// hosts that run Go code and processes. Callers: waymark lab, the demo, tests and
// benchmarks. Package traffic sends traffic between hosts, package wire is a path
// with delay and loss.
package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/suggest"
)

// Errors that callers distinguish. Each comes wrapped with what to do about it.
var (
	ErrExists    = errors.New("lab exists")
	ErrNotUp     = errors.New("no lab is up")
	ErrConfig    = errors.New("invalid lab configuration")
	ErrPrivilege = privilegeError{}
)

// privilegeError is fs.ErrPermission in words that say more.
type privilegeError struct{}

func (privilegeError) Error() string        { return "missing privilege" }
func (privilegeError) Is(target error) bool { return target == fs.ErrPermission }

// Config describes a lab.
type Config struct {
	Topology string // one of Topologies
	Prefix   string // of the names of its namespaces; labs with different prefixes coexist
	MTU      int    // of every link, bytes

	Slow map[string]time.Duration // by host: how much longer a packet is in it
}

// DefaultPrefix is that of the lab a user makes without saying more.
const DefaultPrefix = "wm-"

// Default is a lab of two hosts on one link.
func Default() Config {
	return Config{Topology: "pair", Prefix: DefaultPrefix, MTU: 1500}
}

// Below 1280 there is no IPv6 (RFC 8200, section 5); veth takes up to 65535.
const (
	minMTU = 1280
	maxMTU = 65535
)

var validPrefix = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,31}$`)

// Validate reports what cannot be made; errors wrap ErrConfig.
func (c Config) Validate() error {
	if err := CheckTopology(c.Topology); err != nil {
		return err
	}
	if c.MTU < minMTU || c.MTU > maxMTU {
		return configError(fmt.Sprintf("MTU %d: it is %d to %d", c.MTU, minMTU, maxMTU))
	}
	for host, delay := range c.Slow {
		if hosts := plans[c.Topology].hosts; !slices.Contains(hosts, host) {
			return configError(fmt.Sprintf("slow host %q: topology %s has %s", host, c.Topology, strings.Join(hosts, ", ")))
		}
		if err := checkSlow(delay); err != nil {
			return err
		}
	}
	return validatePrefix(c.Prefix)
}

// configError is an ErrConfig that says by itself what is wrong.
type configError string

func (e configError) Error() string        { return string(e) }
func (e configError) Is(target error) bool { return target == ErrConfig }

// CheckTopology reports a topology that there is not; the error wraps ErrConfig.
func CheckTopology(name string) error {
	if _, ok := plans[name]; !ok {
		return unknownTopology(name)
	}
	return nil
}

func unknownTopology(name string) error {
	if near := suggest.Nearest(name, Topologies()); near != "" {
		return configError(fmt.Sprintf("unknown topology %q: did you mean %s?", name, near))
	}
	return configError(fmt.Sprintf("unknown topology %q: choose one of %s", name, strings.Join(Topologies(), ", ")))
}

func validatePrefix(prefix string) error {
	if !validPrefix.MatchString(prefix) {
		return configError(fmt.Sprintf("prefix %q: choose up to 32 letters, digits, dots, dashes and underscores, such as %q", prefix, DefaultPrefix))
	}
	return nil
}

// Lab is a lab that is up.
type Lab struct {
	cfg   Config
	hosts []*Host
	wire  *Host // the namespace in the middle of a path; nil elsewhere
}

// Up makes the lab and returns when its hosts reach each other over IPv4 and
// IPv6. A lab that cannot be finished is taken away again. Empty fields of cfg
// have the values of Default.
func Up(cfg Config) (*Lab, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := checkPrivilege(); err != nil {
		return nil, err
	}
	st := newState(cfg)
	if err := st.create(); err != nil {
		return nil, err
	}
	l := newLab(cfg)
	if err := l.build(); err != nil {
		// The builder named in the state is this process: Down may go ahead.
		return nil, errors.Join(fmt.Errorf("make lab %q: %w", cfg.Topology, err), Down(cfg.Prefix))
	}
	st.Complete = true
	if err := st.replace(); err != nil {
		return nil, errors.Join(err, Down(cfg.Prefix))
	}
	return l, nil
}

func (c Config) withDefaults() Config {
	d := Default()
	if c.Topology == "" {
		c.Topology = d.Topology
	}
	if c.Prefix == "" {
		c.Prefix = d.Prefix
	}
	if c.MTU == 0 {
		c.MTU = d.MTU
	}
	return c
}

// Open finds the lab of that prefix, made by this or another process.
func Open(prefix string) (*Lab, error) {
	if err := validatePrefix(prefix); err != nil {
		return nil, err
	}
	st, err := readState(prefix)
	if errors.Is(err, os.ErrNotExist) {
		return nil, notUp(prefix)
	}
	if err != nil {
		return nil, err
	}
	if !st.Complete {
		return nil, fmt.Errorf("lab %q with prefix %q is unfinished: run waymark lab down, then lab up again", st.Topology, prefix)
	}
	return newLab(st.config()), nil
}

// notUp names the labs that are up instead, if there are any.
func notUp(prefix string) error {
	var others []string
	if infos, err := List(); err == nil {
		for _, i := range infos {
			others = append(others, "--prefix "+i.Prefix)
		}
	}
	there := ""
	if len(others) > 0 {
		there = fmt.Sprintf(" with prefix %q, but with %s", prefix, strings.Join(others, ", "))
	}
	return fmt.Errorf("%w%s: make one with: waymark lab up pair%s", ErrNotUp, there, prefixFlag(prefix))
}

// newLab derives hosts and addresses from the configuration alone.
func newLab(cfg Config) *Lab {
	p := plans[cfg.Topology]
	l := &Lab{cfg: cfg, hosts: p.newHosts(cfg.Prefix)}
	if p.wired {
		l.wire = &Host{Name: wireHost, Netns: cfg.Prefix + wireHost}
	}
	return l
}

// Config is how the lab was made.
func (l *Lab) Config() Config { return l.cfg }

// Hosts are all hosts from one end to the other.
func (l *Lab) Hosts() []*Host { return slices.Clone(l.hosts) }

// Find is the host of that name.
func (l *Lab) Find(name string) (*Host, bool) {
	for _, h := range l.hosts {
		if h.Name == name {
			return h, true
		}
	}
	return nil, false
}

// Host is Find for names that are part of the program: an unknown one panics.
func (l *Lab) Host(name string) *Host {
	h, ok := l.Find(name)
	if !ok {
		panic(fmt.Sprintf("lab %q has no host %q", l.cfg.Topology, name))
	}
	return h
}

// Down takes the lab away; see the function of that name.
func (l *Lab) Down() error { return Down(l.cfg.Prefix) }

// Info is a lab that exists, as List reports it.
type Info struct {
	Prefix   string     `json:"prefix"`
	Topology string     `json:"topology"`
	State    string     `json:"state"` // up, unfinished
	MTU      int        `json:"mtu"`
	Created  time.Time  `json:"created"`
	Hosts    []HostInfo `json:"hosts"`
	Relay    *Process   `json:"relay,omitempty"`
}

// HostInfo is one host of a lab.
type HostInfo struct {
	Name       string      `json:"name"`
	Netns      string      `json:"netns"`
	Interfaces []Interface `json:"interfaces"`
}

// List reports all labs on this machine, by prefix.
func List() ([]Info, error) {
	states, err := readStates()
	if err != nil {
		return nil, err
	}
	infos := []Info{}
	for _, st := range states {
		infos = append(infos, st.info())
	}
	return infos, nil
}
