package service

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/export/prometheus"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/wire/ioam"
)

// Status is the node as registered, and what it did since the agent started.
type Status struct {
	NodeID     *uint32     `json:"node_id,omitempty"`
	WideNodeID *uint64     `json:"wide_node_id,omitempty"`
	Time       string      `json:"time"`
	Clock      Clock       `json:"clock"`
	Interfaces []Interface `json:"interfaces"`
	Namespaces []Namespace `json:"namespaces"`
	// TunnelsFrom is who may send outer headers that are removed here; empty: everybody.
	TunnelsFrom []string `json:"tunnels_from,omitempty"`

	Written   uint64   `json:"written"`   // options that data of this node were added to
	Completed uint64   `json:"completed"` // of these, with transit delay or egress interface
	Removed   uint64   `json:"removed"`   // options that were removed where their namespace ends
	Unwrapped uint64   `json:"unwrapped"` // packets whose outer IPv6 header was removed with them
	Proven    uint64   `json:"proven"`    // packets whose proof of transit was found right
	Uncounted uint64   `json:"uncounted"` // options whose reason did not fit into the counts
	Passed    []Passed `json:"passed,omitempty"`

	Direct     DirectStatus   `json:"direct_export"`
	Loopback   LoopbackStatus `json:"loopback"`
	Insertions []Insertion    `json:"insertions,omitempty"`
	Paths      *PathStatus    `json:"paths,omitempty"` // of a node where traces end, or come back to
}

// Clock is this host's, which times of the node are of.
type Clock struct {
	Synchronized bool          `json:"synchronized"`           // as the kernel says: NTP or PTP steers it
	MaxError     time.Duration `json:"max_error_ns,omitempty"` // at most so far off
}

func (c Clock) text() string {
	if c.Synchronized {
		return "clock synchronized, at most " + term.Duration(c.MaxError) + " off"
	}
	return "clock not synchronized"
}

// Interface is one of the node's.
type Interface struct {
	Name  string            `json:"name"`
	ID    *uint16           `json:"id,omitempty"`
	Wide  *uint32           `json:"wide_id,omitempty"`
	Role  string            `json:"role"`
	Roles map[uint32]string `json:"roles,omitempty"` // by namespace
}

// Namespace is one that the node knows.
type Namespace struct {
	ID       uint16  `json:"id"`
	Data     *uint32 `json:"data,omitempty"`
	WideData *uint64 `json:"wide_data,omitempty"`
	Schema   *uint32 `json:"schema,omitempty"`
}

// Passed are packets with an option that the node did not write to.
type Passed struct {
	Iface     string `json:"iface"`
	Netns     string `json:"netns,omitempty"`
	Direction string `json:"direction"`
	Reason    string `json:"reason"` // name from enum ioam_reason in bpf/ioam/abi.h, lower case
	Namespace uint16 `json:"namespace"`
	Packets   uint64 `json:"packets"`
}

// Insertion is one of the node's, and what happened to its packets since it exists.
type Insertion struct {
	Name       string   `json:"name"` // without a name its policy
	To         string   `json:"to"`
	Mode       string   `json:"mode"`
	Answers    *bool    `json:"tunnel_answers,omitempty"` // the end of the tunnel answers echo requests through it
	Unasked    string   `json:"tunnel_unasked,omitempty"` // why it cannot be asked
	Take       uint32   `json:"take"`                     // so many of
	Of         uint32   `json:"of"`                       // so many packets
	Options    []string `json:"options"`
	Namespaces []uint16 `json:"namespaces"` // of the options
	Bytes      int      `json:"bytes"`      // by which a packet grows at most
	Interfaces []string `json:"interfaces"` // where packets leave
	Named      uint64   `json:"named"`      // packets that the policy names; a GSO burst is one
	Chosen     uint64   `json:"chosen"`     // of these, take of each of; the difference to inserted was refused
	Inserted   uint64   `json:"inserted"`   // packets on the wire
}

// StatusOf is the section of a status; nil where the agent is no IOAM node.
func StatusOf(s *obs.Status) *Status { return obs.SectionOf[Status](s, name) }

// known is a value, unless it is the one for "none".
func known[T comparable](v, none T) *T {
	if v == none {
		return nil
	}
	return &v
}

// status gathers the section.
func (s *service) status() (any, error) {
	cfg := s.current()
	n := cfg.node()
	out := &Status{NodeID: known(n.ID, ioam.Unavailable24), WideNodeID: known(n.WideID, ioam.Unavailable56), Time: cfg.Node.Time}
	clock, clockErr := inbandioam.ReadClock()
	out.Clock = Clock(clock)
	for k, i := range n.Interfaces {
		one := Interface{Name: i.Name, ID: known(i.ID, ioam.Unavailable16), Wide: known(i.WideID, ioam.Unavailable32), Role: cfg.Interfaces[k].Role}
		for _, r := range cfg.Interfaces[k].Roles {
			if one.Roles == nil {
				one.Roles = map[uint32]string{}
			}
			one.Roles[r.Namespace] = r.Role
		}
		out.Interfaces = append(out.Interfaces, one)
	}
	for _, ns := range n.Namespaces {
		one := Namespace{ID: ns.ID, Data: known(ns.Data, ioam.Unavailable32), WideData: known(ns.WideData, ioam.Unavailable64)}
		if ns.Schema != nil {
			one.Schema = &ns.Schema.Schema
		}
		out.Namespaces = append(out.Namespaces, one)
	}
	for _, p := range n.TunnelsFrom {
		out.TunnelsFrom = append(out.TunnelsFrom, p.String())
	}
	stats, statsErr := s.node.Stats()
	counts, countsErr := s.node.Counts()
	var pathsErr error
	out.Paths, pathsErr = s.pathStatus(&n)
	out.Written, out.Completed, out.Uncounted = stats.Written, stats.Completed, stats.Uncounted
	out.Removed, out.Unwrapped = stats.Removed, stats.Unwrapped
	out.Proven = stats.Proven
	out.Direct = DirectStatus{Every: cfg.Direct.Every, Rate: cfg.Direct.Rate, Exported: stats.Exported, Unread: stats.Unread}
	out.Direct.count(counts)
	out.Loopback = s.loopback(&cfg, &stats, counts)
	for _, c := range counts {
		iface, netns := s.deps.IfaceName(c.Iface)
		out.Passed = append(out.Passed, Passed{
			Iface: iface, Netns: netns, Direction: c.Direction.String(), Reason: c.Reason, Namespace: c.Namespace, Packets: c.Packets,
		})
	}
	order.By(out.Passed, func(x, y Passed) int {
		return cmp.Or(cmp.Compare(x.Netns, y.Netns), cmp.Compare(x.Iface, y.Iface), cmp.Compare(x.Direction, y.Direction),
			cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Namespace, y.Namespace))
	})
	inserted, insertedErr := s.node.InsertionCounts()
	for k := range n.Insertions {
		one := insertionStatus(&n, &n.Insertions[k])
		if t := n.Insertions[k].Tunnel; t != nil && t.Echo {
			answers, err := s.node.TunnelAnswers(&n.Insertions[k])
			if one.Answers = &answers; err != nil {
				one.Unasked = err.Error()
			}
		}
		if k < len(inserted) {
			one.Named, one.Chosen, one.Inserted = inserted[k].Named, inserted[k].Chosen, inserted[k].Inserted
		}
		out.Insertions = append(out.Insertions, one)
	}
	return out, errors.Join(clockErr, insertedErr, statsErr, countsErr, pathsErr)
}

func insertionStatus(n *inbandioam.Node, in *inbandioam.Insertion) Insertion {
	one := Insertion{Name: in.Identity(), To: in.Policy.To.String(), Mode: "inline", Take: in.Take, Of: in.Of, Bytes: in.Size()}
	if in.Tunnel != nil {
		one.Mode = fmt.Sprintf("ip6ip6 to %s", in.Tunnel.Destination)
	}
	for _, body := range in.Options {
		one.Options = append(one.Options, body.Kind().String())
		if space := inbandioam.Space(body); !slices.Contains(one.Namespaces, space) {
			one.Namespaces = append(one.Namespaces, space)
		}
	}
	for _, i := range n.Interfaces {
		if in.AppliesTo(&i) {
			one.Interfaces = append(one.Interfaces, i.Name)
		}
	}
	return one
}

// mode is how packets get the options, and whether a tunnel takes all of them.
func (i *Insertion) mode() string {
	switch {
	case i.Unasked != "":
		return i.Mode + ", cannot be asked"
	case i.Answers != nil && !*i.Answers:
		return i.Mode + ", no answer"
	}
	return i.Mode
}

func text[T any](v *T, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

// write shows the node as registered.
func (n *Status) write(w io.Writer) error {
	if err := term.Heading(w, "IOAM node %s (wide %s), times in %s: %s written, %s completed at egress, %s removed; %s",
		text(n.NodeID, "%d"), text(n.WideNodeID, "0x%x"), n.Time, term.Count(n.Written), term.Count(n.Completed), term.Count(n.Removed), n.Clock.text()); err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{{Title: "IOAM INTERFACE", Least: 12}, {Title: "ID", Right: true}, {Title: "WIDE", Right: true}, {Title: "ROLE"}}}
	for _, i := range n.Interfaces {
		role := i.Role
		for _, ns := range sortedKeys(i.Roles) {
			role += fmt.Sprintf(", %s for namespace %d", i.Roles[ns], ns)
		}
		t.Add(i.Name, text(i.ID, "%d"), text(i.Wide, "%d"), role)
	}
	if err := term.Section(w, t); err != nil {
		return err
	}
	t = &term.Table{Columns: []term.Column{{Title: "IOAM NAMESPACE"}, {Title: "DATA"}, {Title: "WIDE DATA"}, {Title: "SCHEMA", Right: true}}}
	for _, ns := range n.Namespaces {
		t.Add(fmt.Sprint(ns.ID), text(ns.Data, "0x%08x"), text(ns.WideData, "0x%016x"), text(ns.Schema, "%d"))
	}
	if err := term.Section(w, t); err != nil {
		return err
	}
	if len(n.TunnelsFrom) > 0 {
		if err := term.Heading(w, "IOAM outer headers are removed only of packets from %s", strings.Join(n.TunnelsFrom, ", ")); err != nil {
			return err
		}
	}
	t = &term.Table{Columns: []term.Column{
		{Title: "IOAM INSERTION", Least: 12},
		{Title: "MODE"},
		{Title: "OPTIONS"},
		{Title: "BYTES", Right: true},
		{Title: "EVERY", Right: true},
		{Title: "NAMED", Right: true},
		{Title: "CHOSEN", Right: true},
		{Title: "INSERTED", Right: true},
	}}
	for _, i := range n.Insertions {
		t.Add(i.Name, i.mode(), strings.Join(i.Options, ", "), fmt.Sprint(i.Bytes), fmt.Sprintf("%d/%d", i.Take, i.Of),
			term.Count(i.Named), term.Count(i.Chosen), term.Count(i.Inserted))
	}
	if err := term.Section(w, t); err != nil {
		return err
	}
	if err := n.Direct.write(w); err != nil {
		return err
	}
	if err := n.Loopback.write(w); err != nil {
		return err
	}
	if err := writePathStatus(w, n.Paths); err != nil {
		return err
	}
	t = &term.Table{Columns: []term.Column{{Title: "IOAM PASSED"}, {Title: "DIR"}, {Title: "REASON"}, {Title: "NAMESPACE", Right: true}, {Title: "PACKETS", Right: true}}}
	for _, one := range n.Passed {
		t.Add(obs.Place(one.Netns, one.Iface), one.Direction, one.Reason, fmt.Sprint(one.Namespace), term.Count(one.Packets))
	}
	return term.Section(w, t)
}

func sortedKeys(m map[uint32]string) (keys []uint32) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// metrics are there where the agent is an IOAM node, and empty elsewhere.
var metrics = []prometheus.Metric{
	{
		Name: "waymark_ioam_clock_synchronized", Type: prometheus.Gauge, Help: "1: the kernel says that this host's clock is synchronized; 0: times of this node are of a clock that runs free.",
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			if n := StatusOf(s); n != nil {
				sample(boolean(n.Clock.Synchronized))
			}
		},
	},
	counter("waymark_ioam_written_options_total", "Options that data of this node were added to.", func(n *Status) uint64 { return n.Written }),
	counter("waymark_ioam_completed_options_total", "Options that got the egress interface or the transit delay of this node.", func(n *Status) uint64 { return n.Completed }),
	counter("waymark_ioam_removed_options_total", "Options that were removed where their namespace ends.", func(n *Status) uint64 { return n.Removed }),
	counter("waymark_ioam_unwrapped_packets_total", "Packets whose outer IPv6 header was removed with their options.", func(n *Status) uint64 { return n.Unwrapped }),
	counter("waymark_ioam_proven_packets_total", "Packets whose proof of transit was found right.", func(n *Status) uint64 { return n.Proven }),
	insertionCounter("waymark_ioam_named_packets_total", "Packets that the policy of an insertion names; a GSO burst is one.", func(i *Insertion) uint64 { return i.Named }),
	insertionCounter("waymark_ioam_chosen_packets_total", "Of the named packets, those to insert into.", func(i *Insertion) uint64 { return i.Chosen }),
	insertionCounter("waymark_ioam_inserted_packets_total", "Packets on the wire with the options of an insertion.", func(i *Insertion) uint64 { return i.Inserted }),
	{
		Name: "waymark_ioam_passed_options_total", Type: prometheus.Counter, Labels: []string{"interface", "netns", "direction", "reason", "namespace"},
		Help: "Options that data of this node were not added to, by reason.",
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			if n := StatusOf(s); n != nil {
				for _, p := range n.Passed {
					sample(float64(p.Packets), p.Iface, p.Netns, p.Direction, p.Reason, fmt.Sprint(p.Namespace))
				}
			}
		},
	},
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func insertionCounter(name, help string, value func(*Insertion) uint64) prometheus.Metric {
	return prometheus.Metric{Name: name, Type: prometheus.Counter, Help: help, Labels: []string{"insertion"}, Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if n := StatusOf(s); n != nil {
			for i := range n.Insertions {
				sample(float64(value(&n.Insertions[i])), n.Insertions[i].Name)
			}
		}
	}}
}

func counter(name, help string, value func(*Status) uint64) prometheus.Metric {
	return prometheus.Metric{Name: name, Type: prometheus.Counter, Help: help, Collect: func(s *obs.Status, sample func(float64, ...string)) {
		if n := StatusOf(s); n != nil {
			sample(float64(value(n)))
		}
	}}
}
