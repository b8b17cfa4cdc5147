package verdict

import (
	"fmt"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// judgeLinks finds links near their speed.
func judgeLinks(w *window, f *finding) error {
	for i := range w.traffic {
		r := &w.traffic[i]
		speed := w.deps.Speed(r.Netns, r.Iface)
		if speed == 0 {
			continue
		}
		f.count++
		rate := float64(r.WireBytes) * 8 / w.to.Sub(w.from).Seconds()
		if use := rate / float64(speed); use >= w.LinkUse {
			if err := w.fullLink(f, r, use, speed); err != nil {
				return err
			}
		}
	}
	if f.count == 0 {
		f.note("no interface has a known speed: interfaces[].speed sets it")
	}
	return nil
}

// fullLink adds a verdict with the flow that has the largest part in it.
func (w *window) fullLink(f *finding, r *query.Row, use float64, speed uint64) error {
	filter := fmt.Sprintf("iface %s and netns %q and direction %s", r.Iface, r.Netns, r.Direction)
	q := question{filter: filter, by: "proto,src,sport,dst,dport", sort: "wire_bytes", limit: 20, everywhere: true, sums: []string{"wire_bytes"}}
	rows, err := w.rows(q)
	if err != nil {
		return err
	}
	name, where := r.Iface, Where{Netns: r.Netns, Iface: r.Iface, Direction: r.Direction.String()}
	if r.Netns != "" {
		name = r.Netns + "/" + r.Iface
	}
	v := Verdict{
		Text: fmt.Sprintf("%s carries %s of %sbit/s %s", name, term.Percent(use), term.SI(float64(speed)), way(r.Direction)), Measure: "share of the speed of the link", Unit: "share", Value: use, Threshold: w.LinkUse,
		Samples: r.Packets, Where: where, Command: w.command(q),
		scope: scope{id: name + " " + where.Direction, places: map[[2]string]bool{{r.Netns, r.Iface}: true}, addresses: addresses()},
	}
	for i := range rows {
		if i == 0 {
			top := flowOf(&rows[i])
			v.Flow = &top
			v.Text += fmt.Sprintf(", %s of it %s", term.Percent(float64(rows[i].WireBytes)/float64(max(r.WireBytes, 1))), top.String())
		}
		v.scope.addresses[rows[i].Src], v.scope.addresses[rows[i].Dst] = true, true
	}
	v.Text += "; threshold " + term.Percent(w.LinkUse)
	f.add(v)
	return nil
}

func way(d flow.Direction) string {
	if d == flow.Ingress {
		return "of what arrives"
	}
	return "of what leaves"
}
