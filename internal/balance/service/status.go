package service

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/term"
)

var page = api.Page{
	Path: "/api/v1/balance",
	Doc:  "The balancer by service, backend and interface, as `waymark balance status -o json` shows it",
	Missing: &api.Error{
		Status: http.StatusNotFound, What: "the balancer of this agent is off",
		How: "name interfaces and services in balance of the configuration",
	},
}

// Status is the section of the status.
type Status struct {
	Services   []Service   `json:"services"`
	Interfaces []Interface `json:"interfaces"`
}

// Service is a service and what became of its packets.
type Service struct {
	Name       string            `json:"name"`
	Address    string            `json:"address"`
	Protocol   string            `json:"protocol"`
	Port       uint16            `json:"port"`
	Forwarding string            `json:"forwarding"`
	Packets    uint64            `json:"packets"`     // that left for a backend
	Other      map[string]uint64 `json:"other"`       // packets that did not, by why
	OverBudget uint64            `json:"over_budget"` // packets of connections that did not become known: too many were new
	TableFull  uint64            `json:"table_full"`  // likewise: all places in the table were in use
	Moved      uint64            `json:"moved"`       // connections that went to another backend, since theirs was not healthy
	Backends   []Backend         `json:"backends"`
}

// Backend is a backend of a service.
type Backend struct {
	Address     string    `json:"address"`
	State       string    `json:"state"`            // up, down or draining
	Reason      string    `json:"reason,omitempty"` // why it is down, or nothing gets there
	Since       time.Time `json:"since"`            // of the state that checks found
	Changes     uint64    `json:"changes"`          // of it
	Weight      uint32    `json:"weight"`
	Share       float64   `json:"share"`       // of new connections, 0 to 1
	Connections uint64    `json:"connections"` // that are known now
	Opened      uint64    `json:"opened"`      // that became known
	Packets     uint64    `json:"packets"`
	Bytes       uint64    `json:"bytes"` // by the IP header, without outer headers
}

// Interface is one of a balancer or of a backend.
type Interface struct {
	Iface   string            `json:"iface"`
	Netns   string            `json:"netns,omitempty"`
	Mode    string            `json:"mode"`             // xdp, xdp-generic or none
	Roles   []string          `json:"roles"`            // balance, decapsulate
	Reason  string            `json:"reason,omitempty"` // why it does not do its part
	Packets map[string]uint64 `json:"packets"`          // for no service, by what became of them
}

// StatusOf is the section of a status; nil where the balancer is off.
func StatusOf(s *obs.Status) *Status { return obs.SectionOf[Status](s, name) }

func (s *service) status() (*Status, error) {
	out := &Status{Services: []Service{}, Interfaces: []Interface{}}
	services, err := s.Services()
	if err != nil {
		return out, err
	}
	s.Lock()
	defer s.Unlock()
	for i := range services {
		out.Services = append(out.Services, s.service(&services[i]))
	}
	ports, err := s.Ports()
	for i := range ports {
		out.Interfaces = append(out.Interfaces, s.iface(&ports[i]))
	}
	return out, err
}

func (s *service) service(from *balance.ServiceState) Service {
	one := Service{
		Name: from.Name, Address: from.Addr.String(), Port: from.Port, Other: map[string]uint64{},
		OverBudget: from.OverBudget, TableFull: from.Full, Moved: from.Moved, Backends: []Backend{},
	}
	for i := range s.cfg.Services {
		if c := &s.cfg.Services[i]; c.at() == from.Service.Address {
			one.Protocol, one.Forwarding = c.Protocol, c.Forwarding
		}
	}
	one.Packets, one.Other = named(&from.Counts)
	for _, b := range from.Backends {
		be := Backend{
			Address: b.Addr.String(), State: "up", Reason: b.Reason, Weight: b.Weight, Share: float64(b.Entries) / float64(balance.RingSize),
			Connections: b.Connections, Opened: b.Opened, Packets: b.Packets, Bytes: b.Bytes,
		}
		if r := s.watchers[watched{from.Service.Address, b.Addr}]; r != nil {
			be.Since, be.Changes = r.since, r.changes
			if be.Reason == "" {
				be.Reason = r.why
			}
		}
		switch {
		case !b.Up:
			be.State = "down"
		case b.Drain || b.Weight == 0:
			be.State = "draining"
		}
		one.Backends = append(one.Backends, be)
	}
	return one
}

// named are counters by the name of the result; those that are 0 are left out.
func named(c *balance.Counts) (balanced uint64, other map[string]uint64) {
	other = map[string]uint64{}
	for result, n := range c.Packets {
		if result > 0 && n > 0 {
			other[balance.Results[result].Name] = n
		}
	}
	return c.Packets[0], other
}

func (s *service) iface(p *balance.Port) Interface {
	one := Interface{Mode: p.Mode, Roles: []string{}, Reason: p.Off}
	one.Iface, one.Netns = s.deps.IfaceName(p.Iface)
	_, one.Packets = named(&p.Counts)
	if p.Clients {
		one.Roles = append(one.Roles, "balance")
		if one.Reason == "" {
			one.Reason = p.Closed
		}
	}
	if p.Unwraps {
		one.Roles = append(one.Roles, "decapsulate")
	}
	return one
}

// write is the section of waymark status.
func (s *Status) write(w io.Writer) error {
	var sum uint64
	for _, i := range s.Services {
		sum += i.Packets
	}
	if err := term.Heading(w, "Balancer: %s to backends", term.Number(sum, "packets")); err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "SERVICE"},
		{Title: "BACKEND"},
		{Title: "STATE"},
		{Title: "SHARE", Right: true},
		{Title: "CONNECTIONS", Right: true},
		{Title: "OPENED", Right: true},
		{Title: "PACKETS", Right: true},
		{Title: "BYTES", Right: true},
		{Title: "REASON", Least: 12},
	}}
	for _, one := range s.Services {
		for _, b := range one.Backends {
			t.Add(one.Name, b.Address, b.State, fmt.Sprintf("%.1f %%", 100*b.Share), term.Count(b.Connections), term.Count(b.Opened), term.Count(b.Packets), term.Count(b.Bytes), b.Reason)
		}
	}
	if err := term.Section(w, t); err != nil {
		return err
	}
	t = &term.Table{Columns: []term.Column{{Title: "INTERFACE"}, {Title: "HOOK"}, {Title: "ROLE"}, {Title: "REASON", Least: 12}}}
	for _, i := range s.Interfaces {
		t.Add(obs.Place(i.Netns, i.Iface), i.Mode, strings.Join(i.Roles, ", "), i.Reason)
	}
	return term.Section(w, t)
}

// others adds what became of packets that went to no backend.
func (s *Status) others(w io.Writer) error {
	t := &term.Table{Columns: []term.Column{{Title: "OTHER PACKETS"}, {Title: "PACKETS", Right: true}, {Title: "TO"}, {Title: "RESULT"}, {Title: "", Least: 12}}}
	add := func(what string, packets map[string]uint64) {
		for _, r := range balance.Results {
			if n := packets[r.Name]; n > 0 {
				t.Add(what, term.Count(n), r.To, r.Name, r.Doc)
			}
		}
	}
	for _, one := range s.Services {
		add(one.Name, one.Other)
	}
	for _, i := range s.Interfaces {
		add(obs.Place(i.Netns, i.Iface), i.Packets)
	}
	return term.Section(w, t)
}

var verb = stage.Verb{
	Name: name, Arg: "status",
	Short: "Show services, the state of their backends, and what they get",
	Long: `Balance shows each backend of each service: whether checks find it healthy, its share of
new connections, the connections that are known, and what it got. And the packets that went
to no backend, by the reason.`,
	Example: `  waymark balance status
  waymark balance status -o json | jq '.services[].backends[] | {address, state, connections}'`,
	Formats: stage.ReportFormats, Explainer: explainer,
	Run: stage.ShowStatus(page, report),
}

func report(s *Status) stage.Report {
	return stage.Report{
		Table: stage.Tables(s.write, s.others),
		Lines: stage.Lines(s.Services),
		Rows:  s.rows,
	}
}

// rows are, behind their titles, one for each backend.
func (s *Status) rows() [][]string {
	rows := [][]string{{"service", "backend", "state", "weight", "share", "connections", "opened", "packets", "bytes"}}
	for _, one := range s.Services {
		for _, b := range one.Backends {
			rows = append(rows, []string{
				one.Name, b.Address, b.State, fmt.Sprint(b.Weight), fmt.Sprintf("%.6f", b.Share),
				fmt.Sprint(b.Connections), fmt.Sprint(b.Opened), fmt.Sprint(b.Packets), fmt.Sprint(b.Bytes),
			})
		}
	}
	return rows
}

// metrics are there where the balancer is on, and empty elsewhere.
var metrics = []prometheus.Metric{
	ofBackends("packets_total", prometheus.Counter, "Packets that left for a backend.", func(b *Backend) float64 { return float64(b.Packets) }),
	ofBackends("bytes_total", prometheus.Counter, "Bytes of them, by the IP header, without outer headers.", func(b *Backend) float64 { return float64(b.Bytes) }),
	ofBackends("connections_total", prometheus.Counter, "Connections to a backend that became known.", func(b *Backend) float64 { return float64(b.Opened) }),
	ofBackends("connections", prometheus.Gauge, "Connections to a backend that are known now.", func(b *Backend) float64 { return float64(b.Connections) }),
	ofBackends("share", prometheus.Gauge, "Share of new connections that a backend gets, 0 to 1.", func(b *Backend) float64 { return b.Share }),
	ofBackends("changes_total", prometheus.Counter, "How often checks found that a backend became healthy, or ceased to be.", func(b *Backend) float64 { return float64(b.Changes) }),
	ofBackends("up", prometheus.Gauge, "1: the backend is healthy.", func(b *Backend) float64 {
		if b.State == "down" {
			return 0
		}
		return 1
	}),
	{
		Name: "waymark_balance_other_packets_total", Type: prometheus.Counter, Labels: []string{"service", "iface", "netns", "result"},
		Help: "Packets that went to no backend, by what became of them: of a service, or, without its name, at an interface.",
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			own := StatusOf(s)
			if own == nil {
				return
			}
			for _, one := range own.Services {
				for result, n := range one.Other {
					sample(float64(n), one.Name, "", "", result)
				}
			}
			for _, i := range own.Interfaces {
				for result, n := range i.Packets {
					sample(float64(n), "", i.Iface, i.Netns, result)
				}
			}
		},
	},
}

func ofBackends(metric string, kind prometheus.Type, help string, value func(*Backend) float64) prometheus.Metric {
	return prometheus.Metric{
		Name: "waymark_balance_" + metric, Type: kind, Labels: []string{"service", "backend"}, Help: help,
		Collect: func(s *obs.Status, sample func(float64, ...string)) {
			own := StatusOf(s)
			if own == nil {
				return
			}
			for i := range own.Services {
				for j := range own.Services[i].Backends {
					b := &own.Services[i].Backends[j]
					sample(value(b), own.Services[i].Name, b.Address)
				}
			}
		},
	}
}
