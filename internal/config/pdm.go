package config

import (
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/inband/policy"
)

// PDM configures marking (RFC 8250). Nothing is marked that no policy names.
type PDM struct {
	Mode         string      `yaml:"mode" default:"burst" oneof:"burst packet" doc:"what gets a number: a burst of segments as the stack hands it over, or each packet on the wire, which ends bursts on the interface"`
	State        PDMState    `yaml:"state" doc:"what is kept of marked flows"`
	Policies     []PDMPolicy `yaml:"policies" reload:"yes" doc:"flows that are marked"`
	Strip        bool        `yaml:"strip" default:"false" doc:"take the option out of received packets before the stack gets them"`
	Reserve      string      `yaml:"reserve" default:"interface" oneof:"interface route none" doc:"where the 16 bytes of a mark are reserved while the agent runs: the interface's IPv6 MTU, the MTU of the routes that policies name, or nowhere, so that full packets go unmarked"`
	ClosedDomain bool        `yaml:"closed_domain" default:"false" doc:"mark forwarded packets, too: only where all hosts and routers that these packets pass are one's own, since RFC 8200 lets none but the source insert options"`
	Raw          bool        `yaml:"raw" default:"false" doc:"report single marked packets, too (waymark marks)"`
	RawPerSecond uint32      `yaml:"raw_per_second" default:"10000" min:"1" doc:"single packets reported in a second, by each processor"`
}

// PDMState bounds what is kept of marked flows.
type PDMState struct {
	MaxEntries   uint32        `yaml:"max_entries" default:"65536" min:"1" max:"16777216" doc:"flows whose state is kept; when all entries are in use, further flows go unmarked"`
	Lifetime     time.Duration `yaml:"lifetime" default:"60s" min:"1s" max:"24h" doc:"a state without packets is forgotten after this time"`
	NewPerSecond uint32        `yaml:"new_per_second" default:"0" doc:"flows that may begin to be marked in one second; 0: a sixteenth of the entries that are free"`
}

// PDMPolicy names flows.
type PDMPolicy struct {
	To        string        `yaml:"to" kind:"prefix6" doc:"destination; a shorter prefix than ff00::/8 does not mean multicast, nor one than fe80::/10 link-local addresses"`
	Proto     string        `yaml:"proto" default:"any" kind:"proto" doc:"protocol, by name or number"`
	Ports     []string      `yaml:"ports" kind:"ports" doc:"ports of either end; none: all"`
	For       time.Duration `yaml:"for" default:"1h" min:"1s" max:"8760h" doc:"marking ends after this time, unless it is renewed"`
	Interface string        `yaml:"interface" default:"*" kind:"glob" doc:"interface name or glob"`
}

// On reports whether the kernel has anything to do for PDM.
func (p PDM) On() bool { return len(p.Policies) > 0 || p.Strip }

// Flows turns the policies into the form that the datapath takes.
func (p PDM) Flows() ([]policy.Policy, error) {
	list := make([]policy.Policy, len(p.Policies))
	for i, c := range p.Policies {
		var err error
		if list[i], err = c.flows(); err != nil {
			return nil, fmt.Errorf("pdm.policies[%d]: %w", i, err)
		}
	}
	return list, nil
}

func (p PDMPolicy) flows() (out policy.Policy, err error) {
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

// checkPDM refuses policies that say different things of one packet, or that
// nothing here could carry out.
func (w *whole) checkPDM(c *Config) {
	if c.PDM.On() && c.Probe == "afpacket" {
		w.complain("pdm", "the probe afpacket cannot change packets", "set probe: ebpf, or take pdm out")
	}
	if n := len(c.PDM.Policies); n > policy.Max {
		w.complain("pdm.policies", fmt.Sprintf("%d policies", n), fmt.Sprintf("at most %d", policy.Max))
		return
	}
	var list []policy.Policy
	for i, p := range c.PDM.Policies {
		key := fmt.Sprintf("pdm.policies[%d]", i)
		if p.To == "" {
			w.complain(key+".to", "a policy without a destination", "write to: ::/0 for all")
			continue
		}
		one, err := p.flows()
		if err != nil {
			w.complain(key, err.Error(), "")
			continue
		}
		for j, other := range list {
			if one.Overlaps(other) {
				w.complain(key, fmt.Sprintf("a policy to %s that overlaps pdm.policies[%d], to %s", one.To, j, other.To),
					"which one holds for a packet that both name would be unclear: part them by prefix, protocol, ports or interface")
				break
			}
		}
		list = append(list, one)
	}
}
