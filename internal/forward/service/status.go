package service

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/forward"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/term"
)

var page = api.Page{
	Path: "/api/v1/forward",
	Doc:  "Forwarding at XDP by interface, as `waymark forward status -o json` shows it",
	Missing: &api.Error{
		Status: http.StatusNotFound, What: "forwarding of this agent is off",
		How: "name interfaces in forward.interfaces of the configuration, such as forward: {interfaces: [eth0, eth1]}",
	},
}

// Status is the section of the status.
type Status struct {
	BypassNetfilter bool `json:"bypass_netfilter"` // it is allowed
	// Bypassed are the chains of netfilter that forwarded packets do not meet.
	Bypassed   []string    `json:"bypassed"`
	Interfaces []Interface `json:"interfaces"`
}

// Interface is one between which packets are forwarded.
type Interface struct {
	Iface     string            `json:"iface"`
	Netns     string            `json:"netns,omitempty"`
	Mode      string            `json:"mode"`             // xdp, xdp-generic or none
	Receives  bool              `json:"receives"`         // packets that arrive are forwarded
	Sends     bool              `json:"sends"`            // packets are forwarded to it
	Reason    string            `json:"reason,omitempty"` // why it does not receive or send, or only flows of flow tables
	Offloaded bool              `json:"offloaded"`        // only packets of flows in a flow table of nftables are forwarded
	IPv4      bool              `json:"ipv4"`             // the kernel forwards what arrives
	IPv6      bool              `json:"ipv6"`             //
	Forwarded uint64            `json:"forwarded"`        // packets that left by another interface
	Bytes     uint64            `json:"bytes"`            // of them, by the IP header
	Passed    map[string]uint64 `json:"passed"`           // packets that went to the kernel, by why
}

// StatusOf is the section of a status; nil where forwarding is off.
func StatusOf(s *obs.Status) *Status { return obs.SectionOf[Status](s, name) }

func (s *service) status() (*Status, error) {
	out := &Status{BypassNetfilter: s.cfg.BypassNetfilter, Bypassed: []string{}, Interfaces: []Interface{}}
	ports, err := s.Ports()
	if err != nil {
		return out, err
	}
	for i := range ports {
		out.Interfaces = append(out.Interfaces, s.iface(&ports[i]))
	}
	for _, glob := range s.cfg.Interfaces {
		if !slices.ContainsFunc(out.Interfaces, func(i Interface) bool { return config.MatchAny([]string{glob}, i.Iface) }) {
			out.Interfaces = append(out.Interfaces, Interface{
				Iface: glob, Mode: "none", Passed: map[string]uint64{},
				Reason: "there is no such interface, the agent does not attach to it (interfaces), or it takes no program at XDP in its driver",
			})
		}
	}
	more, err := s.Bypasses()
	out.Bypassed = append(out.Bypassed, more...)
	return out, err
}

func (s *service) iface(p *forward.Port) Interface {
	one := Interface{
		Mode: p.Mode, Receives: p.Off == "", Sends: p.Closed == "" && p.Attached, Reason: p.Off, Offloaded: p.Only != "", IPv4: p.V4, IPv6: p.V6,
		Bytes: p.Bytes, Passed: map[string]uint64{},
	}
	one.Iface, one.Netns = s.deps.IfaceName(p.Iface)
	if one.Reason == "" {
		one.Reason = p.Closed
	}
	if one.Reason == "" && one.Offloaded {
		one.Reason = "only flows of flow tables: " + p.Only
	}
	if one.Reason == "" && !p.V4 && !p.V6 {
		one.Reason = "the kernel does not forward: set the sysctls net.ipv4.ip_forward and net.ipv6.conf.all.forwarding"
	}
	for result, n := range p.Packets {
		switch {
		case result == 0:
			one.Forwarded = n
		case n > 0:
			one.Passed[forward.Results[result].Name] = n
		}
	}
	return one
}

// write is the section of waymark status.
func (s *Status) write(w io.Writer) error {
	var sum uint64
	for _, i := range s.Interfaces {
		sum += i.Forwarded
	}
	if err := term.Heading(w, "Forwarding at XDP: %s; these packets meet no rules of netfilter, no tc and no queueing discipline", term.Number(sum, "packets")); err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "FORWARD"}, {Title: "HOOK"}, {Title: "FROM"}, {Title: "TO"}, {Title: "FORWARDED", Right: true}, {Title: "TO THE KERNEL", Right: true}, {Title: "REASON", Least: 12},
	}}
	for _, i := range s.Interfaces {
		var passed uint64
		for _, n := range i.Passed {
			passed += n
		}
		t.Add(obs.Place(i.Netns, i.Iface), i.Mode, yes(i.Receives), yes(i.Sends), term.Count(i.Forwarded), term.Count(passed), i.Reason)
	}
	if err := term.Section(w, t); err != nil || len(s.Bypassed) == 0 {
		return err
	}
	t = &term.Table{Columns: []term.Column{{Title: "NETFILTER CHAIN THAT IS BYPASSED"}}}
	for _, chain := range s.Bypassed {
		t.Add(chain)
	}
	return term.Section(w, t)
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

var verb = stage.Verb{
	Name: name, Arg: "status",
	Short: "Show what is forwarded at XDP, and why the kernel forwards the rest",
	Long: `Forward shows each interface of forward.interfaces: whether packets that arrive are
forwarded at XDP, whether packets are forwarded to it, how many were, and how many went to
the kernel, by the reason.`,
	Example: `  waymark forward status
  waymark forward status -o json | jq '.interfaces[] | {iface, forwarded, passed}'`,
	Formats: stage.ReportFormats, Explainer: explainer,
	Run: stage.ShowStatus(page, report),
}

func report(s *Status) stage.Report {
	return stage.Report{
		Table: stage.Tables(s.write, s.passed),
		Lines: stage.Lines(s.Interfaces),
		Rows:  s.rows,
	}
}

// passed adds what went to the kernel.
func (s *Status) passed(w io.Writer) error {
	t := &term.Table{Columns: []term.Column{{Title: "TO THE KERNEL"}, {Title: "PACKETS", Right: true}, {Title: "RESULT"}, {Title: "", Least: 12}}}
	for _, i := range s.Interfaces {
		for _, r := range forward.Results {
			if n := i.Passed[r.Name]; n > 0 {
				t.Add(obs.Place(i.Netns, i.Iface), term.Count(n), r.Name, r.Doc)
			}
		}
	}
	return term.Section(w, t)
}

// rows are, behind their titles, one for each result of each interface.
func (s *Status) rows() [][]string {
	rows := [][]string{{"iface", "netns", "result", "packets"}}
	for _, i := range s.Interfaces {
		for _, r := range forward.Results {
			n := i.Passed[r.Name]
			if r == forward.Results[0] {
				n = i.Forwarded
			}
			rows = append(rows, []string{i.Iface, i.Netns, r.Name, fmt.Sprint(n)})
		}
	}
	return rows
}

// metrics are there where forwarding is on, and empty elsewhere.
var metrics = []prometheus.Metric{
	{
		Name: "waymark_forward_packets_total", Type: prometheus.Counter, Labels: []string{"iface", "netns", "result"},
		Help: "Packets that arrived at an interface that forwards at XDP, by what became of them; all but forwarded went to the kernel.",
		Collect: collect(func(i *Interface, sample func(float64, ...string)) {
			sample(float64(i.Forwarded), i.Iface, i.Netns, forward.Results[0].Name)
			for result, n := range i.Passed {
				sample(float64(n), i.Iface, i.Netns, result)
			}
		}),
	},
	{
		Name: "waymark_forward_bytes_total", Type: prometheus.Counter, Labels: []string{"iface", "netns"},
		Help: "Bytes of the packets that were forwarded at XDP, by the IP header.",
		Collect: collect(func(i *Interface, sample func(float64, ...string)) {
			sample(float64(i.Bytes), i.Iface, i.Netns)
		}),
	},
}

func collect(each func(*Interface, func(float64, ...string))) func(*obs.Status, func(float64, ...string)) {
	return func(s *obs.Status, sample func(float64, ...string)) {
		if own := StatusOf(s); own != nil {
			for i := range own.Interfaces {
				each(&own.Interfaces[i], sample)
			}
		}
	}
}
