package service

import (
	"cmp"
	"fmt"
	"io"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hints"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/term"
)

// Status is the section of the status.
type Status struct {
	Interfaces []Interface `json:"interfaces"` // that a program was bound to
	Metadata   []Passed    `json:"metadata"`   // on which packets carry their hints on
}

// Interface is one of them.
type Interface struct {
	Iface   string       `json:"iface"`
	Netns   string       `json:"netns,omitempty"`
	IfIndex int          `json:"ifindex"`
	Driver  string       `json:"driver"`
	Hints   []hints.Hint `json:"hints"`
}

// StatusOf is the section of a status; nil where the agent reads no hints.
func StatusOf(s *obs.Status) *Status { return obs.SectionOf[Status](s, name) }

// status gathers the section.
func (r *Reader) status(place func(flow.Iface) (name, netns string)) (any, error) {
	out := &Status{Interfaces: []Interface{}, Metadata: []Passed{}}
	if r.core == nil {
		return out, nil
	}
	err := r.core.Do(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for iface, b := range r.devices {
			rates, err := hints.ReadCounts(r.counts, b.slot)
			if err != nil {
				return err
			}
			one := Interface{IfIndex: b.IfIndex, Driver: b.Driver}
			one.Iface, one.Netns = place(iface)
			for _, h := range b.Hints {
				rate := rates[h.Kind]
				if h.Rate = &rate; rate != (hints.Rate{}) {
					one.Hints = append(one.Hints, h)
				}
			}
			out.Interfaces = append(out.Interfaces, one)
		}
		if r.takersMap == nil {
			return nil
		}
		passed, err := r.passed(place)
		out.Metadata = append(out.Metadata, passed...)
		return err
	})
	order.By(out.Metadata, func(a, b Passed) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface))
	})
	order.By(out.Interfaces, func(a, b Interface) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface))
	})
	return out, err
}

// write is the section of waymark status.
func (s *Status) write(w io.Writer) error {
	t := &term.Table{Columns: []term.Column{
		{Title: "HINT"}, {Title: "IFACE"}, {Title: "FROM"}, {Title: "PACKETS", Right: true}, {Title: "PRESENT", Right: true},
	}}
	for _, i := range s.Interfaces {
		for _, h := range i.Hints {
			t.Add(h.Kind.String(), obs.Place(i.Netns, i.Iface), h.Source, term.Count(h.Rate.Present+h.Rate.Absent), term.Percent(h.Rate.Share()))
		}
	}
	if err := term.Section(w, t); err != nil || len(s.Metadata) == 0 {
		return err
	}
	t = &term.Table{Columns: []term.Column{
		{Title: "METADATA"}, {Title: "HINTS"}, {Title: "AF_XDP MAP", Right: true}, {Title: "QUEUE 0", Right: true}, {Title: "REFUSED", Right: true},
	}}
	for _, p := range s.Metadata {
		with, sockets := "hash, vlan", "none"
		if p.Time {
			with = "time, hash, vlan"
		}
		if p.SocketMap != 0 {
			sockets = fmt.Sprint(p.SocketMap)
		}
		t.Add(obs.Place(p.Netns, p.Iface), with, sockets, fmt.Sprint(p.FirstQueue), term.Count(p.Refused))
	}
	return term.Section(w, t)
}
