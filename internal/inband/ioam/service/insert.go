package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/waymark-net/waymark/internal/config"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/wire/ioam"
)

// InsertConfig says what is inserted into which packets.
type InsertConfig struct {
	Name       string   `yaml:"name" doc:"name in waymark status. Counts and sequence numbers go on while name or policy stay the same; empty: destination, protocol, ports and interface"`
	To         string   `yaml:"to" kind:"prefix6" doc:"destination prefix; the longest that contains a destination wins, then the first in the list. Multicast and link-local addresses are included only by prefixes within ff00::/8 and fe80::/10"`
	Proto      string   `yaml:"proto" default:"any" kind:"proto" doc:"protocol, by name or number"`
	Ports      []string `yaml:"ports" kind:"ports" doc:"ports, of the source or the destination; empty: all"`
	Interface  string   `yaml:"interface" default:"*" kind:"glob" doc:"name or glob of the interfaces where packets leave; with role egress for the namespaces of all options"`
	Every      string   `yaml:"every" default:"1" kind:"ratio" doc:"share of the packets, chosen at random, exactly k of each n: 1 is all, 100 or 1/100 one in 100, 3/10 three in 10; a GSO burst counts as one"`
	Mode       string   `yaml:"mode" default:"inline" oneof:"inline ip6ip6" doc:"inline: into the extension headers of packets that this host makes, with closed_domain of forwarded ones, too; ip6ip6: behind an outer IPv6 header"`
	TunnelFrom string   `yaml:"tunnel_from" kind:"address6" doc:"ip6ip6: source address of the outer header, one of this host's"`
	TunnelTo   string   `yaml:"tunnel_to" kind:"address6" doc:"ip6ip6: destination address of the outer header, where the options are removed"`
	TunnelEcho bool     `yaml:"tunnel_echo" default:"true" doc:"ip6ip6: packets of protocols without acknowledgments go into the tunnel only while tunnel_to answers an ICMPv6 echo request that is sent through it each second. false: they go into it also if its end is silently gone, and are lost"`
	OptionConfig
	Options []OptionConfig `yaml:"options" doc:"further options, at most 11 in all, of any namespaces. Linux nodes drop packets with more than 8 in a header unless net.ipv6.max_hbh_opts_number is larger"`
}

// OptionConfig is what an option contains; an entry may have several kinds.
type OptionConfig struct {
	Namespace   uint32   `yaml:"namespace" default:"0" max:"65535" doc:"namespace id of the options of this entry"`
	Trace       []string `yaml:"trace" oneof:"hop_limit_node_id interface_ids timestamp_seconds timestamp_fraction transit_delay namespace_data queue_depth checksum_complement hop_limit_node_id_wide interface_ids_wide namespace_data_wide buffer_occupancy opaque_state_snapshot" doc:"fields of a trace, in any order"`
	Size        uint32   `yaml:"size" default:"0" doc:"space for data of nodes in the trace, in bytes: a multiple of 4, at most 244"`
	Incremental bool     `yaml:"incremental" default:"false" doc:"the trace grows at each node of the namespace with incremental: true, up to size; else the space is there from the start. Linux fills only the latter"`
	Loopback    bool     `yaml:"loopback" default:"false" doc:"each node sends a copy of the trace back to this one (RFC 9322), which shows how far packets come. Only with trace: [hop_limit_node_id], and by interfaces with role both; every is at most 1 in ioam.loopback.every. Inline it is for packets that this host makes, closed_domain or not"`
	E2E         []string `yaml:"e2e" oneof:"sequence_64 sequence_32 timestamp_seconds timestamp_fraction" doc:"fields of an edge-to-edge option, for loss and delay between the ends of the domain"`
	POT         bool     `yaml:"pot" default:"false" doc:"proof of transit, with proof of the namespace; experimental"`
	DEX         []string `yaml:"dex" oneof:"hop_limit_node_id interface_ids timestamp_seconds timestamp_fraction transit_delay namespace_data queue_depth checksum_complement hop_limit_node_id_wide interface_ids_wide namespace_data_wide buffer_occupancy opaque_state_snapshot flow_id sequence" doc:"direct export: fields that nodes export, and optionally flow_id and sequence. Needs every: 1/100 or less (RFC 9326)"`
}

// ProofConfig is the node's part in proof of transit.
type ProofConfig struct {
	Prime  string `yaml:"prime" kind:"bits" doc:"proof of transit (experimental): the prime, up to 64 bits, the same at all nodes; empty: no proof"`
	Share  string `yaml:"share" kind:"bits" doc:"point of the node on the secret polynomial"`
	Poly2  string `yaml:"poly2" kind:"bits" doc:"point of the node on the public polynomial, without its constant term"`
	LPC    string `yaml:"lpc" kind:"bits" doc:"Lagrange polynomial constant of the node; empty: the node has no share"`
	Secret string `yaml:"secret" kind:"bits" doc:"the secret, at the last node only, which verifies packets; empty: it does not"`
}

func (p *ProofConfig) proof() *inbandioam.Proof {
	if p.Prime == "" {
		return nil
	}
	return &inbandioam.Proof{
		Prime: number(p.Prime, 0), Share: number(p.Share, 0), Poly2: number(p.Poly2, 0), LPC: number(p.LPC, 0), HasShare: p.LPC != "",
		Secret: number(p.Secret, 0), Verifies: p.Secret != "",
	}
}

var traceFields = map[string]ioam.TraceType{
	"hop_limit_node_id": ioam.HopLimitNodeID, "interface_ids": ioam.InterfaceIDs, "timestamp_seconds": ioam.TimestampSeconds,
	"timestamp_fraction": ioam.TimestampFraction, "transit_delay": ioam.TransitDelay, "namespace_data": ioam.NamespaceData,
	"queue_depth": ioam.QueueDepth, "checksum_complement": ioam.ChecksumComplement, "hop_limit_node_id_wide": ioam.HopLimitNodeIDWide,
	"interface_ids_wide": ioam.InterfaceIDsWide, "namespace_data_wide": ioam.NamespaceDataWide, "buffer_occupancy": ioam.BufferOccupancy,
	"opaque_state_snapshot": ioam.OpaqueStateSnapshot,
}

var e2eFields = map[string]ioam.E2EType{
	"sequence_64": ioam.E2ESequence64, "sequence_32": ioam.E2ESequence32, "timestamp_seconds": ioam.E2ESeconds, "timestamp_fraction": ioam.E2EFraction,
}

var dexFields = map[string]ioam.DEXFlags{"flow_id": ioam.DEXFlowID, "sequence": ioam.DEXSequence}

// traceType is the type with these fields, each known.
func traceType(names []string) (t ioam.TraceType) {
	for _, name := range names {
		t |= traceFields[name]
	}
	return t
}

// bodies are the options of an entry; those that are impossible are left out, which check has reported.
func (o *OptionConfig) bodies() (out []ioam.Body) {
	space := uint16(o.Namespace)
	if len(o.Trace) > 0 {
		make := ioam.NewTrace
		if o.Incremental {
			make = ioam.NewIncrementalTrace
		}
		if t, err := make(space, traceType(o.Trace), int(o.Size)); err == nil {
			if o.Loopback {
				t.Flags = ioam.Loopback
			}
			out = append(out, t)
		}
	}
	if o.POT {
		out = append(out, &ioam.POT{Namespace: space})
	}
	if len(o.DEX) > 0 {
		d := &ioam.DEX{Namespace: space, Type: traceType(o.DEX)}
		for _, name := range o.DEX {
			d.Extension |= dexFields[name]
		}
		out = append(out, d)
	}
	if len(o.E2E) > 0 {
		e := &ioam.E2E{Namespace: space}
		for _, name := range o.E2E {
			e.Type |= e2eFields[name]
		}
		out = append(out, e)
	}
	return out
}

// entries are the options, with the keys of each: those of the insertion itself, and its list.
func (i *InsertConfig) entries(key string) map[string]*OptionConfig {
	out := map[string]*OptionConfig{}
	if len(i.bodies()) > 0 || len(i.Trace) > 0 || i.Loopback || len(i.Options) == 0 {
		out[key] = &i.OptionConfig
	}
	for n := range i.Options {
		out[fmt.Sprintf("%s.options[%d]", key, n)] = &i.Options[n]
	}
	return out
}

// insertion is what the programs get; an error is one of the policy.
func (i *InsertConfig) insertion() (out inbandioam.Insertion, err error) {
	out.Name, out.Policy.Interface, out.Policy.For = i.Name, i.Interface, 1
	if i.Mode == "ip6ip6" {
		from, _ := netip.ParseAddr(i.TunnelFrom) // checked when it was read
		to, _ := netip.ParseAddr(i.TunnelTo)
		out.Tunnel = &inbandioam.Tunnel{Source: from, Destination: to, Echo: i.TunnelEcho}
	}
	out.Options = i.bodies()
	for n := range i.Options {
		out.Options = append(out.Options, i.Options[n].bodies()...)
	}
	if out.Policy.To, err = policy.ParsePrefix(i.To); err != nil {
		return out, err
	}
	if out.Policy.Protos, err = policy.ParseProto(i.Proto); err != nil {
		return out, err
	}
	for _, s := range i.Ports {
		ports, err := policy.ParsePorts(s)
		if err != nil {
			return out, err
		}
		out.Policy.Ports = append(out.Policy.Ports, ports)
	}
	if out.Take, out.Of, err = config.ParseRatio(i.Every); err != nil {
		return out, err
	}
	return out, out.Policy.Check()
}

// insertions are those of the whole section.
func (c *Config) insertions() (out []inbandioam.Insertion) {
	for i := range c.Insert {
		if in, err := c.Insert[i].insertion(); err == nil {
			out = append(out, in)
		}
	}
	return out
}

// knows reports whether a namespace is one of the node's.
func (c *Config) knows(id uint32) bool {
	return id == 0 || slices.ContainsFunc(c.Namespaces, func(ns NamespaceConfig) bool { return ns.ID == id })
}
