package service

import (
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/gate"
)

// Section is gate in the configuration.
var Section = config.Register(config.Section[Config]{
	Name: name, Doc: "packet rules, which decide about packets before all else", On: (*Config).on, Check: (*Config).check,
})

// Config says which packets meet the rules, and where the rules are.
type Config struct {
	Interfaces  []string     `yaml:"interfaces" kind:"glob" doc:"names or globs of interfaces whose packets meet the rules when they arrive; the agent must attach to them (interfaces)"`
	Rules       string       `yaml:"rules" reload:"yes" doc:"path of the rule file, which is read at the start and at each reload; empty: rules come from waymark rules apply and add"`
	State       string       `yaml:"state" doc:"path of a file that keeps rules, bans and counters over a restart of the agent, such as /var/lib/waymark/gate.json, in a directory that its user may write to; empty: rules of waymark rules apply and add, and bans, end with the agent"`
	Pin         bool         `yaml:"pin" default:"false" doc:"rules and bans stay in effect while no agent runs, until the next one takes over, or waymark restore --pins. It takes gate.state, and where tc does the work, a kernel with TCX"`
	PinDir      string       `yaml:"pin_dir" default:"/sys/fs/bpf/waymark" doc:"directory for that, in a bpf file system; each agent needs one of its own"`
	Mode        string       `yaml:"mode" default:"auto" oneof:"auto native generic tc" doc:"where packets meet the rules. native: at XDP in the driver; generic: there, or behind the driver; tc: at tc ingress. auto: native, but tc on veth, whose peer cannot send segments in bursts to an XDP program. An interface that takes no program at XDP uses tc"`
	TableMemory uint32       `yaml:"table_memory" default:"16MiB" min:"64KiB" max:"1GiB" kind:"size" doc:"memory for the addresses of rules and sets, and for the combinations of conditions of more than 64 rules: 100,000 addresses of IPv4 take 14MiB, of IPv6 21MiB"`
	MaxRules    uint32       `yaml:"max_rules" default:"4096" min:"64" max:"16384" doc:"rules at a time, with those of gate.detect.watch; each takes 100 bytes, and 64 bytes per CPU for its counters"`
	Dropped     uint32       `yaml:"dropped_flows" default:"8192" min:"64" max:"1048576" doc:"flows of dropped packets that have a record of their own, per scan interval and over all CPUs; each takes 288 bytes. What has no space is in a record per interface, rule and protocol, without addresses"`
	CaptureRate uint32       `yaml:"capture_rate" default:"10000" min:"1" max:"10000000" doc:"packets per second that waymark capture gets at most, over all CPUs; others are counted as not captured"`
	Sources     uint32       `yaml:"sources" default:"65536" min:"64" max:"16777216" doc:"token buckets of limits per source; each takes 16 bytes. When all are in use, the bucket that is nearest to full goes to another source"`
	Detect      DetectConfig `yaml:"detect" doc:"sources that are banned for what they send"`
	Bans        BansConfig   `yaml:"bans" doc:"sources whose packets are dropped before they meet the rules (waymark rules ban)"`
}

// BansConfig bounds bans.
type BansConfig struct {
	Max uint32 `yaml:"max" default:"16384" min:"1" max:"1048576" doc:"bans at a time; each takes about 120 bytes"`
}

func (c *Config) on() bool { return len(c.Interfaces) > 0 }

// check reports values that are impossible together.
func (c *Config) check(complain config.Complain) {
	if _, err := c.Detect.rules(time.Now()); err != nil {
		complain("gate.detect.watch", err.Error(), "write a rate and conditions, such as 10000/s per src tcp")
	}
	if c.Detect.Longest < c.Detect.Ban {
		complain("gate.detect.longest", "it is shorter than gate.detect.ban", "write at least "+c.Detect.Ban.String())
	}
	if c.Pin && c.State == "" {
		complain("gate.pin", "the next agent would not know the rules", "name a file in gate.state, such as /var/lib/waymark/gate.json")
	}
}

// has reports whether packets of an interface meet the rules.
func (c *Config) has(iface string) bool {
	return config.MatchAny(c.Interfaces, iface)
}

func (c *Config) gate() gate.Config {
	out := gate.Default()
	out.Mode, out.Sources, out.Bans = gate.Mode(c.Mode), c.Sources, c.Bans.Max
	out.Tables.Rules, out.CaptureRate, out.Dropped = c.MaxRules, c.CaptureRate, c.Dropped
	out.Pins, out.Keep = c.PinDir, c.Pin
	out.Tables.Lines = gate.Lines(uint64(c.TableMemory))
	return out
}
