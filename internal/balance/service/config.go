package service

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/config"
)

// Config is the section of the configuration.
type Config struct {
	Interfaces   []string        `yaml:"interfaces" kind:"glob" doc:"names or globs of the interfaces of a balancer: those where packets of clients arrive, and those that lead to backends; the agent must attach to them (interfaces). Takes Linux 6.6"`
	Services     []ServiceConfig `yaml:"services" reload:"yes" doc:"addresses that are balanced. At most 256, with 4096 backends"`
	Connections  uint32          `yaml:"connections" default:"262144" min:"1024" max:"16777216" doc:"connections that are known at a time; each takes 8 bytes. Packets of others go where the Maglev table says, so that most of them stay on their backend, too"`
	NewPerSecond uint32          `yaml:"new_per_second" default:"50000" min:"1" max:"10000000" doc:"connections that become known per second and CPU; packets of others go by the Maglev table, so a flood of SYNs leaves those that are known alone"`
	Idle         time.Duration   `yaml:"idle_timeout" default:"1h" min:"10s" max:"9h" doc:"an established connection without packets from the client for so long is not known any more"`
	Seed         string          `yaml:"seed" doc:"any text, the same for all balancers of an address, so that each sends a connection to the same backend; a secret one keeps others from choosing the backend"`
	Decapsulate  Decapsulate     `yaml:"decapsulate" doc:"for the agent of a backend: outer headers of a balancer are removed, so that no tunnel device is needed"`
}

// Decapsulate is the part of a backend.
type Decapsulate struct {
	Interfaces []string `yaml:"interfaces" kind:"glob" doc:"names or globs of interfaces where packets of balancers arrive; the agent must attach to them (interfaces)"`
	From       []string `yaml:"from" kind:"prefix" doc:"addresses and prefixes of balancers; encapsulated packets of others are left as they are. Needed with interfaces: who may send such packets can pretend to be any client"`
}

// ServiceConfig is a service.
type ServiceConfig struct {
	Name       string          `yaml:"name" doc:"name for status and metrics; empty: its address, protocol and port"`
	Address    string          `yaml:"address" kind:"address" doc:"IPv4 or IPv6 address of the service, which all backends have on a loopback interface, and this host on none"`
	Protocol   string          `yaml:"protocol" default:"tcp" oneof:"tcp udp quic" doc:"quic: UDP, and connection IDs may name the backend"`
	Port       uint32          `yaml:"port" default:"0" max:"65535" doc:"port of the service, and of its backends"`
	Forwarding string          `yaml:"forwarding" default:"ipip" oneof:"l2 ipip gue" doc:"how packets get to a backend, which answers clients itself. l2: with its link address, on a network that both are on; ipip: behind an outer IP header; gue: behind an outer IP and UDP header (port 6080). Outer headers may be of the other version of IP"`
	Backends   []BackendConfig `yaml:"backends" doc:"who serves"`
	None       string          `yaml:"none_healthy" default:"drop" oneof:"drop reset pass" doc:"what becomes of packets when no backend takes connections: nothing; a TCP reset, or an ICMP error for UDP; or this host gets them"`
	Health     HealthConfig    `yaml:"health" doc:"how backends are checked: on the way of the packets of clients, at the address of the service"`
	QUIC       QUICConfig      `yaml:"quic" doc:"connection IDs that name a backend (QUIC-LB, plaintext), which servers have to make so; connections then stay on their backend when clients change their address"`
}

// BackendConfig is a backend.
type BackendConfig struct {
	Address string `yaml:"address" kind:"address" doc:"its IPv4 or IPv6 address"`
	Weight  uint32 `yaml:"weight" default:"1" max:"10000" doc:"its share of new connections, in proportion to those of the others; 0: as drain"`
	Drain   bool   `yaml:"drain" default:"false" doc:"it keeps its connections and gets no new ones"`
	QUICID  string `yaml:"quic_id" doc:"its id in connection IDs, hexadecimal"`
}

// QUICConfig is how connection IDs name backends.
type QUICConfig struct {
	Config uint32 `yaml:"config" default:"0" max:"6" doc:"first three bits of these connection IDs"`
	Length uint32 `yaml:"id_length" default:"0" max:"8" doc:"bytes of a backend's id, behind the first byte of the connection ID; 0: connection IDs name none"`
}

var section = config.Register(config.Section[Config]{
	Name: name, Doc: "load balancer at XDP: connections to an address go to one of several hosts, which answer clients themselves",
	On: (*Config).on, Check: (*Config).check,
})

func (c *Config) on() bool { return len(c.Interfaces)+len(c.Decapsulate.Interfaces) > 0 }

// has reports whether packets of an interface are balanced.
func (c *Config) has(iface string) bool { return config.MatchAny(c.Interfaces, iface) }

// unwraps reports whether packets of an interface lose their outer header.
func (c *Config) unwraps(iface string) bool {
	return config.MatchAny(c.Decapsulate.Interfaces, iface)
}

var protocols = map[string]uint8{"tcp": 6, "udp": 17, "quic": 17}

// check reports what is impossible.
func (c *Config) check(complain config.Complain) {
	if len(c.Services) > 0 && len(c.Interfaces) == 0 {
		complain("balance.services", "nothing is balanced without interfaces", "name those where packets of clients arrive in balance.interfaces")
	}
	if len(c.Decapsulate.Interfaces) > 0 && len(c.Decapsulate.From) == 0 {
		complain("balance.decapsulate.interfaces", "packets of nobody would be decapsulated", "name the addresses of balancers in balance.decapsulate.from")
	}
	if len(c.Services) > balance.MaxServices {
		complain("balance.services", fmt.Sprintf("%d services", len(c.Services)), fmt.Sprintf("at most %d are possible", balance.MaxServices))
	}
	taken, names, backends := map[balance.Address]string{}, map[string]string{}, 0
	for i := range c.Services {
		s, at := &c.Services[i], fmt.Sprintf("balance.services[%d]", i)
		backends += len(s.Backends)
		s.check(at, complain)
		if first, is := taken[s.at()]; is && s.Address != "" {
			complain(at+".address", "it is that of another service", "give each service an address, protocol or port of its own; the other one is "+first)
		}
		if first, is := names[s.name()]; is {
			complain(at+".name", fmt.Sprintf("%q is the name of another service", s.name()), "give each service a name of its own; the other one is "+first)
		}
		taken[s.at()], names[s.name()] = at, at
	}
	if backends > balance.MaxBackends {
		complain("balance.services", fmt.Sprintf("%d backends", backends), fmt.Sprintf("at most %d are possible", balance.MaxBackends))
	}
}

// at is the address of a service; what is no address was reported when it was read.
func (s *ServiceConfig) at() balance.Address {
	addr, _ := netip.ParseAddr(s.Address)
	return balance.Address{Addr: addr, Proto: protocols[s.Protocol], Port: uint16(s.Port)}
}

func (s *ServiceConfig) name() string {
	if s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(s.at().Addr, uint16(s.Port)), s.Protocol)
}

func (s *ServiceConfig) check(at string, complain config.Complain) {
	if s.Address == "" {
		complain(at+".address", "the service has no address", "write the one that clients use, such as 192.0.2.1")
		return
	}
	if s.Port == 0 {
		complain(at+".port", "the service has no port", "write the one that clients use, such as 443")
	}
	if len(s.Backends) == 0 {
		complain(at+".backends", "the service has no backends", "name at least one, such as [{address: 10.0.0.1}]")
	}
	if s.QUIC.Length > 0 && s.Protocol != "quic" {
		complain(at+".quic", "only QUIC has connection IDs", "write protocol: quic, or remove quic")
	}
	s.checkBackends(at, complain)
	s.Health.check(at+".health", s, complain)
}

func (s *ServiceConfig) checkBackends(at string, complain config.Complain) {
	addrs, ids := map[netip.Addr]bool{}, map[string]bool{}
	vip := s.at().Addr
	for i, b := range s.Backends {
		key := fmt.Sprintf("%s.backends[%d]", at, i)
		addr, err := netip.ParseAddr(b.Address)
		switch {
		case err != nil:
			complain(key+".address", "the backend has no address", "write that of the host, such as 10.0.0.1")
			continue
		case s.Forwarding == "l2" && addr.Is4() != vip.Is4():
			complain(key+".address", fmt.Sprintf("%s is not of the version of IP of %s, and l2 puts no header in front of packets", addr, vip), "name the backend's address of that version, or write forwarding: ipip")
		case addr == vip:
			complain(key+".address", "it is the address of the service", "name the address that only this backend has")
		case addrs[addr]:
			complain(key+".address", fmt.Sprintf("%s is given twice", addr), "give one backend the weight of both")
		}
		addrs[addr] = true
		if s.QUIC.Length == 0 && b.QUICID == "" {
			continue
		}
		id, err := hex.DecodeString(b.QUICID)
		switch {
		case err != nil || len(id) != int(s.QUIC.Length):
			complain(key+".quic_id", fmt.Sprintf("%q is no id of %d bytes", b.QUICID, s.QUIC.Length), "write two hexadecimal digits for each byte of quic.id_length, such as 0a for one")
		case ids[b.QUICID]:
			complain(key+".quic_id", fmt.Sprintf("%s is the id of another backend", b.QUICID), "give each backend an id of its own")
		}
		ids[b.QUICID] = true
	}
}

var (
	ways  = map[string]balance.Forwarding{"l2": balance.L2, "ipip": balance.IPIP, "gue": balance.GUE}
	nones = map[string]balance.None{"drop": balance.NoneDrop, "reset": balance.NoneReset, "pass": balance.NonePass}
)

// services are what the balancer serves.
func (c *Config) services() (all []balance.Service) {
	for i := range c.Services {
		s := &c.Services[i]
		one := balance.Service{Name: s.name(), Address: s.at(), Forwarding: ways[s.Forwarding], None: nones[s.None], Seed: balance.Seed(c.Seed)}
		if s.QUIC.Length > 0 {
			one.QUIC = &balance.QUIC{Config: uint8(s.QUIC.Config), Length: uint8(s.QUIC.Length)}
		}
		for _, b := range s.Backends {
			addr, _ := netip.ParseAddr(b.Address) // checked when it was read
			id, _ := hex.DecodeString(b.QUICID)
			one.Backends = append(one.Backends, balance.Backend{Addr: addr, Weight: b.Weight, Drain: b.Drain, ID: id})
		}
		all = append(all, one)
	}
	return all
}

func (c *Config) balancer(hints bool) balance.Config {
	out := balance.Config{Connections: c.Connections, NewPerSecond: c.NewPerSecond, Idle: c.Idle, Hints: hints, Clients: c.has, Unwraps: c.unwraps}
	for _, text := range c.Decapsulate.From {
		if !strings.Contains(text, "/") {
			addr, _ := netip.ParseAddr(text)
			out.Sources = append(out.Sources, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		p, _ := netip.ParsePrefix(text)
		out.Sources = append(out.Sources, p)
	}
	return out
}
