package service

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/config"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/wire/ioam"
)

// Section is ioam in the configuration.
var Section = config.Register(config.Section[Config]{
	Name: name, Doc: "node of in-situ OAM: its data are added to traces in IPv6 packets (RFC 9197, RFC 9486)",
	On: (*Config).on, Check: (*Config).check, CheckWhole: (*Config).checkHeadroom, Headroom: (*Config).headroom,
})

// Config describes an IOAM node. Only packets that arrive at its interfaces are touched.
type Config struct {
	Node       NodeConfig        `yaml:"node" doc:"the node"`
	Interfaces []InterfaceConfig `yaml:"interfaces" short:"name:id:role" keyed:"name" reload:"yes" doc:"interfaces of the node, as a list or as a mapping by name; the agent must attach to them (interfaces). to-athos:31:both is short for {name: to-athos, id: 31, role: both}"`
	Namespaces []NamespaceConfig `yaml:"namespaces" reload:"yes" doc:"namespaces whose traces the node fills; namespace 0 is always one of them. At most 31"`
	Schemas    []SchemaConfig    `yaml:"schemas" reload:"yes" doc:"opaque state snapshots, for namespaces. At most 31"`
	Border     string            `yaml:"border" default:"drop" oneof:"off drop strip" doc:"what happens to packets with options of the node's namespaces at interfaces that have no role for them, those of the agent that are not listed here included: drop them, or strip the options. off: something else guards the border"`
	Insert     []InsertConfig    `yaml:"insert" reload:"yes" doc:"options that are inserted into packets that leave. At most 32"`
	Reserve    string            `yaml:"reserve" default:"interface" oneof:"interface route none" doc:"where MTU headroom for inserted options comes from while the agent runs: the interface's IPv6 MTU, the MTU of the routes to the prefixes of insertions, or none: packets that would not fit go without options"`
	Paths      uint32            `yaml:"paths" default:"128" min:"16" max:"4096" doc:"paths that are counted at a time, where a namespace ends; each takes 40 KiB of kernel memory"`
	// TunnelsFrom guards what hosts that make outer headers put into them.
	TunnelsFrom []string       `yaml:"tunnels_from" kind:"prefix6" reload:"yes" doc:"prefixes of those who may send outer headers (ip6ip6) that are removed here with their options; packets behind outer headers of others are not taken out. At most 16; empty: everybody may, as long as the border keeps options of others out of the domain"`
	Direct      DirectConfig   `yaml:"direct_export" doc:"what the node exports of packets that ask for it with a direct export option (RFC 9326) of one of its namespaces"`
	Loopback    LoopbackConfig `yaml:"loopback" doc:"copies that the node sends back to the source of packets whose trace asks for it (RFC 9322), in one of its namespaces"`
	// ClosedDomain allows what RFC 8200 forbids.
	ClosedDomain bool   `yaml:"closed_domain" default:"false" reload:"yes" doc:"insert inline into forwarded packets, too, and into all packets of protocols without acknowledgments, which otherwise are few until it is known that they arrive. RFC 8200 allows only the source to insert options: set this only if all hosts and routers on the path are under your control"`
	Transit      string `yaml:"transit" default:"auto" oneof:"auto xdp tc" doc:"where the data of the node are added: at XDP in the driver, or at tc ingress, which is also used where the driver has no XDP. auto: xdp, but tc on veth, whose peer cannot send segments in bursts to an XDP program"`
}

// NodeConfig is what all interfaces share.
type NodeConfig struct {
	ID      uint32 `yaml:"id" default:"16777215" max:"16777215" reload:"yes" doc:"node id, 24 bits; 16777215: none"`
	WideID  string `yaml:"wide_id" kind:"bits" reload:"yes" doc:"wide node id, 56 bits; empty: none"`
	Time    string `yaml:"time" default:"posix" oneof:"posix ptp ntp" doc:"format of timestamps, the same in the whole domain; Linux writes posix"`
	Receive string `yaml:"receive_time" default:"kernel" oneof:"kernel nic" doc:"where the receive time in traces comes from: the kernel, when the first program sees a packet, or the network card, where a packet has its time (hardware timestamps, which ethtool, hwstamp_ctl or ptp4l turn on). transit: auto is then XDP only where the driver shows programs this time (waymark hints); with transit: xdp, the time of the kernel serves elsewhere"`
}

// DirectConfig limits direct export.
type DirectConfig struct {
	Every uint32 `yaml:"every" default:"100" max:"1000000" reload:"yes" doc:"at most one in so many packets with a direct export option is exported, on each CPU; nodes choose the same packets where options have sequence numbers. 0: none"`
	Rate  uint32 `yaml:"rate" default:"100" max:"100000" reload:"yes" doc:"records per second and CPU at most"`
}

// LoopbackConfig limits loopback.
type LoopbackConfig struct {
	Every uint32 `yaml:"every" default:"100" max:"1000000" reload:"yes" doc:"at most one copy is sent back for so many traces that the node fills, on each CPU, whether they ask for one or not; insertions may ask for copies of this share of packets. 0: none"`
	Rate  uint32 `yaml:"rate" default:"100" max:"100000" reload:"yes" doc:"copies per second and CPU at most"`
}

// InterfaceConfig is one interface.
type InterfaceConfig struct {
	Name   string       `yaml:"name" kind:"glob" doc:"name of the interface, not a glob"`
	ID     uint32       `yaml:"id" default:"65535" max:"65535" doc:"interface id, 16 bits; 65535: none"`
	Role   string       `yaml:"role" default:"both" oneof:"none ingress egress both" doc:"ingress: data of the node are added to traces that arrive; egress: they are completed with transit delay and egress interface in traces that leave"`
	WideID string       `yaml:"wide_id" kind:"bits" doc:"wide interface id, 32 bits; empty: none"`
	Roles  []RoleConfig `yaml:"roles" short:"namespace:role" doc:"roles for single namespaces"`
}

// RoleConfig is the role of an interface for one namespace.
type RoleConfig struct {
	Namespace uint32 `yaml:"namespace" default:"0" max:"65535" doc:"namespace id"`
	Role      string `yaml:"role" default:"none" oneof:"none ingress egress both" doc:"as interfaces[].role"`
}

// NamespaceConfig is one namespace.
type NamespaceConfig struct {
	ID          uint32      `yaml:"id" default:"0" max:"65535" doc:"namespace id"`
	Data        string      `yaml:"data" kind:"bits" doc:"namespace data, 32 bits; empty: not available"`
	WideData    string      `yaml:"wide_data" kind:"bits" doc:"wide namespace data, 64 bits; empty: not available"`
	Remove      bool        `yaml:"remove" doc:"its options are removed from packets that arrive at an interface with role ingress for it, with the header if nothing else is in it"`
	Incremental bool        `yaml:"incremental" default:"false" doc:"incremental traces grow at this node by its data, as far as the MTU of the interface allows; else they pass as they are. No node knows the MTU of the links behind the next one: reserve the space where the traces are inserted"`
	Proof       ProofConfig `yaml:"proof" doc:"proof of transit"`
	Schema      string      `yaml:"schema" kind:"bits" doc:"id of the schema whose data is the opaque state snapshot; empty: none"`
}

// SchemaConfig is one schema.
type SchemaConfig struct {
	ID   uint32 `yaml:"id" default:"0" max:"16777214" doc:"schema id, 24 bits"`
	Data string `yaml:"data" doc:"data of the snapshot, at most 240 bytes, padded with zeros to a multiple of 4: text, or hexadecimal after 0x"`
}

// on reports whether the node has an interface.
func (c *Config) on() bool { return len(c.Interfaces) > 0 }

var roles = map[string]inbandioam.Role{
	"none": inbandioam.RoleNone, "ingress": inbandioam.RoleIngress, "egress": inbandioam.RoleEgress, "both": inbandioam.RoleBoth,
}

// number reads a text of kind bits; none where it is empty.
func number(text string, none uint64) uint64 {
	if text == "" {
		return none
	}
	v, _ := config.ParseBits(text) // checked when it was read
	return v
}

func (s SchemaConfig) bytes() ([]byte, error) {
	data := []byte(s.Data)
	if digits, ok := strings.CutPrefix(s.Data, "0x"); ok {
		var err error
		if data, err = hex.DecodeString(digits); err != nil {
			return nil, fmt.Errorf("%q is not hexadecimal", s.Data)
		}
	}
	return append(data, make([]byte, -len(data)&3)...), nil
}

// node is the description that the programs get; check has found it possible.
func (c *Config) node() inbandioam.Node {
	n := inbandioam.Node{ID: c.Node.ID, WideID: number(c.Node.WideID, ioam.Unavailable56), Insertions: c.insertions(), ClosedDomain: c.ClosedDomain, Direct: inbandioam.DirectExport(c.Direct), Loopback: inbandioam.Loopback(c.Loopback)}
	schemas := map[uint64]*ioam.Snapshot{}
	for _, s := range c.Schemas {
		data, _ := s.bytes()
		schemas[uint64(s.ID)] = &ioam.Snapshot{Schema: s.ID, Data: data}
	}
	for _, ns := range c.Namespaces {
		one := inbandioam.Namespace{
			ID: uint16(ns.ID), Data: uint32(number(ns.Data, ioam.Unavailable32)), WideData: number(ns.WideData, ioam.Unavailable64),
			Remove: ns.Remove, Proof: ns.Proof.proof(), Incremental: ns.Incremental,
		}
		if ns.Schema != "" {
			one.Schema = schemas[number(ns.Schema, 0)]
		}
		n.Namespaces = append(n.Namespaces, one)
	}
	for _, text := range c.TunnelsFrom {
		p, _ := policy.ParsePrefix(text) // checked when it was read
		n.TunnelsFrom = append(n.TunnelsFrom, p)
	}
	for _, i := range c.Interfaces {
		one := inbandioam.Interface{
			Name: i.Name, ID: uint16(i.ID), WideID: uint32(number(i.WideID, ioam.Unavailable32)), Role: roles[i.Role],
			Exceptions: map[uint16]inbandioam.Role{},
		}
		for _, r := range i.Roles {
			one.Exceptions[uint16(r.Namespace)] = roles[r.Role]
		}
		n.Interfaces = append(n.Interfaces, one)
	}
	return n
}

// names are the interfaces, in order.
func (c *Config) names() []string {
	names := map[string]bool{}
	for _, i := range c.Interfaces {
		names[i.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
