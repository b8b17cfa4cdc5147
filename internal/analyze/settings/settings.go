// Package settings is the configuration of the analyzer. Input: the section analyze. Output: Config. Callers: the analyzer, and
// the agent's program, whose verb config checks files of both.
package settings

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/config"
)

// Config is the section analyze.
type Config struct {
	Listen  string        `yaml:"listen" default:"[::]:8476" kind:"listen" doc:"host:port at which agents send, and hosts join; TLS 1.3"`
	Names   []string      `yaml:"names" doc:"names and addresses under which hosts reach the analyzer, for its certificate; empty: the name of this host, and localhost"`
	Path    string        `yaml:"path" kind:"directory" doc:"directory for the CA and the records of all hosts; empty: analyze in $STATE_DIRECTORY, which systemd sets, else /var/lib/waymark-analyze"`
	Size    uint64        `yaml:"size" default:"1GiB" min:"16MiB" kind:"size" doc:"most that the files of one host take; beyond half of it, old hours are reduced to their largest flows and sums, and the oldest leave"`
	Time    time.Duration `yaml:"time" default:"0s" min:"0s" max:"87600h" doc:"age after which records leave, if the size has not made them leave before; 0: no limit"`
	Rate    uint64        `yaml:"rate" default:"8MiB" min:"64KiB" kind:"size" doc:"bytes that one host may send in a second, on average; a host that sends more has to wait, and others do not notice"`
	Hosts   int           `yaml:"hosts" default:"1024" min:"1" max:"65536" doc:"most hosts that may send"`
	Revoked string        `yaml:"revoked" doc:"file with the serial numbers of certificates that are no longer accepted, one a line in hexadecimal, or a PEM list of the CA (CRL); read again when it changes; empty: revoked in path"`

	Receive      []Receive     `yaml:"receive" doc:"where devices without an agent send flows, over UDP: NetFlow 5 and 9, IPFIX and sFlow 5. Their senders can be forged: protect the address by a firewall"`
	Devices      []Device      `yaml:"devices" doc:"devices that may send"`
	ScanInterval time.Duration `yaml:"scan_interval" default:"10s" min:"1s" max:"10m" doc:"what devices send in such a time is an interval"`
}

// Receive is an address that devices send to.
type Receive struct {
	Listen    string   `yaml:"listen" kind:"listen" doc:"address:port, such as [::]:2055"`
	Protocols []string `yaml:"protocols" oneof:"netflow5 netflow9 ipfix sflow" doc:"what is accepted there; empty: all"`
	Any       bool     `yaml:"any" default:"false" doc:"devices that are not named in devices may send, too; their addresses are their names. At most analyze.hosts hosts are kept, whoever they are"`
}

// Device is one that may send.
type Device struct {
	Address  string `yaml:"address" kind:"address" doc:"address that its datagrams come from"`
	Name     string `yaml:"name" doc:"name of the host; an observation domain (source id, engine, sub-agent) other than 0 is appended: core1-256"`
	Sampling uint32 `yaml:"sampling" default:"0" max:"16777216" doc:"it counts one packet in so many: for devices that do not report that; 0: what it reports"`
}

// Section is that of the configuration. waymark run does not read it.
var Section = config.Register(config.Section[Config]{
	Name: "analyze", Doc: "waymark analyze: the records of many hosts. It reads this section, api, console, log and why; waymark run does not read this section",
	Check: (*Config).check,
})

// check reports what is impossible.
func (c *Config) check(complain config.Complain) {
	anyone := false
	for i, r := range c.Receive {
		anyone = anyone || r.Any
		if r.Listen == "" {
			complain(fmt.Sprintf("analyze.receive[%d].listen", i), "no address", "write it like [::]:2055")
		}
	}
	switch {
	case len(c.Receive) > 0 && len(c.Devices) == 0 && !anyone:
		complain("analyze.receive", "nobody may send there", "name devices in analyze.devices, or set any: true")
	case len(c.Devices) > 0 && len(c.Receive) == 0:
		complain("analyze.devices", "there is no address that they could send to", "set analyze.receive, such as [{listen: \"[::]:2055\"}]")
	}
	names, addresses := map[string]bool{}, map[netip.Addr]bool{}
	for i, d := range c.Devices {
		key := fmt.Sprintf("analyze.devices[%d].", i)
		if err := CheckName(d.Name); err != nil {
			complain(key+"name", err.Error(), "")
		} else if names[d.Name] {
			complain(key+"name", "another device is called "+d.Name, "names are of one device each")
		}
		names[d.Name] = true
		address, err := netip.ParseAddr(d.Address)
		if err != nil {
			complain(key+"address", "no address", "write it like 192.0.2.1 or 2001:db8::1")
		} else if addresses[address.Unmap()] {
			complain(key+"address", "another device has it", "a device has one name; its observation domains are appended to it")
		}
		addresses[address.Unmap()] = true
	}
}

// CheckName accepts names of hosts: a name is a directory, too.
func CheckName(name string) error {
	other := strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	})
	if name == "" || len(name) > 200 || name[0] == '.' || name[0] == '-' || other >= 0 {
		return fmt.Errorf("%q, which is no name of a host: use up to 200 letters, digits, dots and dashes", name)
	}
	return nil
}

// Socket is the default of api.socket for an analyzer, which may run next to an agent.
const Socket = "/run/waymark-analyze/analyze.sock"

// keys of other sections that an analyzer reads.
var keys = []string{"analyze", "api", "console", "log", "why"}

// Adapt checks a configuration for an analyzer, and sets what has another default there.
func Adapt(c *config.Config, origins config.Origins) error {
	var problems config.Problems
	for key, at := range origins {
		top, _, _ := strings.Cut(key, ".")
		top, _, _ = strings.Cut(top, "[")
		if key == top && !contains(keys, top) {
			problems = append(problems, config.Problem{At: at, Key: key, What: "an analyzer counts no packets", Allowed: "allowed here: " + strings.Join(keys, ", ") + "; the agent of this host has a file of its own"})
		}
	}
	if len(problems) > 0 {
		return problems
	}
	if _, set := origins["api.socket"]; !set {
		c.API.Socket = Socket
	}
	own := Section.Edit(c)
	if own.Path == "" {
		own.Path = "/var/lib/waymark-analyze"
		if list := filepath.SplitList(os.Getenv("STATE_DIRECTORY")); len(list) > 0 {
			own.Path = list[0]
		}
	}
	own.Revoked = cmp.Or(own.Revoked, filepath.Join(own.Path, "revoked"))
	if len(own.Names) == 0 {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of this host: %w; set analyze.names", err)
		}
		own.Names = []string{name, "localhost", "127.0.0.1", "::1"}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, one := range list {
		if one == s {
			return true
		}
	}
	return false
}
