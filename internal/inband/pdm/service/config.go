package service

import (
	"fmt"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/wire/pdm"
)

// Section is pdm in the configuration.
var Section = config.Register(config.Section[Config]{
	Name: name, Doc: "network and server delay, measured by marks in packets (RFC 8250)",
	On: (*Config).on, Check: (*Config).check, CheckWhole: (*Config).checkLifetime, Headroom: (*Config).headroom,
})

// Config configures marking (RFC 8250). Only flows that a policy names are marked.
type Config struct {
	Mode           string         `yaml:"mode" default:"burst" oneof:"burst packet" doc:"unit that gets a sequence number: a GSO burst as the stack passes it, or each packet on the wire, which disables GSO bursts on the interface"`
	MarksPerSecond uint32         `yaml:"marks_per_second" default:"1000" doc:"limit of marked packets per flow and second; bulk data beyond it passes unmarked, the first packets of answers have marks of their own; 0: no limit"`
	State          StateConfig    `yaml:"state" doc:"state of marked flows"`
	Policies       []PolicyConfig `yaml:"policies" reload:"yes" doc:"flows to mark"`
	Strip          bool           `yaml:"strip" default:"false" doc:"remove the option from received packets before they reach the stack"`
	Reserve        string         `yaml:"reserve" default:"interface" oneof:"interface route none" doc:"where 16 bytes of MTU headroom for marks come from while the agent runs: the interface's IPv6 MTU, the MTU of the routes that policies name, or none: full-size packets then go unmarked"`
	ClosedDomain   bool           `yaml:"closed_domain" default:"false" doc:"mark forwarded packets, too. RFC 8200 allows only the source to insert options: set this only if all hosts and routers on the path are under your control"`
	Raw            bool           `yaml:"raw" default:"false" doc:"also report single marked packets (waymark marks)"`
	RawPerSecond   uint32         `yaml:"raw_per_second" default:"10000" min:"1" doc:"limit of single packets reported per second and CPU"`
}

// StateConfig bounds what is kept of marked flows.
type StateConfig struct {
	MaxEntries   uint32        `yaml:"max_entries" default:"65536" min:"1" max:"16777216" doc:"capacity of the table of marked flows; when it is full, new flows go unmarked"`
	Lifetime     time.Duration `yaml:"lifetime" default:"60s" min:"1s" max:"24h" doc:"state of a flow without packets expires after this time, which must be longer than flow.scan_interval"`
	NewPerSecond uint32        `yaml:"new_per_second" default:"0" doc:"limit of new marked flows per second; 0: a sixteenth of the free entries"`
}

// PolicyConfig names flows.
type PolicyConfig struct {
	To        string        `yaml:"to" kind:"prefix6" doc:"destination prefix; multicast and link-local addresses are included only by prefixes within ff00::/8 and fe80::/10"`
	Proto     string        `yaml:"proto" default:"any" kind:"proto" doc:"protocol, by name or number"`
	Ports     []string      `yaml:"ports" kind:"ports" doc:"ports, of the source or the destination; empty: all"`
	For       time.Duration `yaml:"for" default:"1h" min:"1s" max:"8760h" doc:"the policy expires after this time, unless SIGHUP renews it"`
	Interface string        `yaml:"interface" default:"*" kind:"glob" doc:"name or glob of the interfaces on which packets are marked"`
}

// on reports whether the kernel has anything to do for PDM.
func (p *Config) on() bool { return len(p.Policies) > 0 || p.Strip }

// checkLifetime checks that states are read before they expire: what has expired may be replaced at once.
func (p *Config) checkLifetime(whole *config.Config, complain config.Complain) {
	if interval := whole.Flow.ScanInterval; p.on() && p.State.Lifetime <= interval {
		complain("pdm.state.lifetime", fmt.Sprintf("%v is not longer than flow.scan_interval, %v", p.State.Lifetime, interval),
			"states would expire before they are read: make the lifetime longer")
	}
}

// headroom is what marks take of the MTU of an interface.
func (p *Config) headroom(iface string) int {
	policies, err := p.flows()
	if err != nil || p.Reserve == string(headroom.None) || !slices.ContainsFunc(policies, func(one policy.Policy) bool { return one.Applies(iface) }) {
		return 0
	}
	return pdm.HeaderSize
}

// flows turns the policies into the form that the datapath takes.
func (p *Config) flows() ([]policy.Policy, error) {
	list := make([]policy.Policy, len(p.Policies))
	for i, c := range p.Policies {
		var err error
		if list[i], err = c.flows(); err != nil {
			return nil, fmt.Errorf("pdm.policies[%d]: %w", i, err)
		}
	}
	return list, nil
}

func (p PolicyConfig) flows() (out policy.Policy, err error) {
	out.Interface, out.For = p.Interface, p.For
	if out.To, err = policy.ParsePrefix(p.To); err != nil {
		return out, err
	}
	if out.Protos, err = policy.ParseProto(p.Proto); err != nil {
		return out, err
	}
	for _, s := range p.Ports {
		ports, err := policy.ParsePorts(s)
		if err != nil {
			return out, err
		}
		out.Ports = append(out.Ports, ports)
	}
	return out, out.Check()
}

// check refuses policies that contradict each other or cannot be carried out.
func (p *Config) check(complain config.Complain) {
	if n := len(p.Policies); n > policy.Max {
		complain("pdm.policies", fmt.Sprintf("%d policies", n), fmt.Sprintf("at most %d", policy.Max))
		return
	}
	var list []policy.Policy
	for i, c := range p.Policies {
		key := fmt.Sprintf("pdm.policies[%d]", i)
		if c.To == "" {
			complain(key+".to", "a policy without a destination", "write to: ::/0 for all")
			continue
		}
		one, err := c.flows()
		if err != nil {
			complain(key, err.Error(), "")
			continue
		}
		for j, other := range list {
			if one.Overlaps(other) {
				complain(key, fmt.Sprintf("a policy to %s that overlaps pdm.policies[%d], to %s", one.To, j, other.To),
					"a packet may match at most one policy: separate them by prefix, protocol, ports or interface")
				break
			}
		}
		list = append(list, one)
	}
}
