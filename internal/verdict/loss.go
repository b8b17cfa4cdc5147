package verdict

import (
	"fmt"
	"net/netip"

	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// leastLost is the fewest packets that are a loss.
const leastLost = 5

// judgeLoss finds hops and paths that lose packets.
func judgeLoss(w *window, f *finding) error {
	segments, note, err := w.segments()
	if err != nil {
		return err
	}
	if note != "" {
		f.note("no counts of flows at several interfaces: %s", note)
	}
	for _, s := range segments {
		f.count++
		lost, packets, ok := s.losses(w.PathLoss)
		if !ok {
			continue
		}
		share := float64(lost) / float64(packets)
		f.add(Verdict{
			Text: fmt.Sprintf("%s loses %s of %s of %s (%s); threshold %s", s.name(), term.Percent(share),
				term.Number(packets, "packets"), term.Number(uint64(s.flows), "flows"), term.Number(lost, "packets"), term.Percent(w.PathLoss)),
			Measure: "share of packets that are not seen at the next interface", Unit: "share", Value: share, Threshold: w.PathLoss, Samples: packets,
			Where: s.where(), Flow: s.largest(), Command: s.command(w), scope: s.scope("loss"),
			Evidence: []string{fmt.Sprintf("%s of the flows lose packets", term.Count(uint64(s.losing)))},
		})
	}
	return judgeMarks(w, f)
}

// losses are those of all flows, where they are more than what may have been on the way when the window ended; else those
// of flows that had ended by then.
func (s *segment) losses(threshold float64) (lost, packets uint64, ok bool) {
	all := share{s.lost, s.packets}
	for _, of := range []share{all, s.ended} {
		onItsWay := s.underway
		if of != all {
			onItsWay = 0
		}
		if of.lost >= leastLost && float64(of.lost) >= threshold*float64(of.packets) && of.lost > onItsWay && of.lost > s.noFlow {
			return of.lost, of.packets, true
		}
	}
	return 0, 0, false
}

// marks are two ways to learn of loss from the packets themselves.
var marks = []struct {
	name string
	of   func(*query.Row) (lost int64, received uint64)
}{
	{"PDM", func(r *query.Row) (int64, uint64) {
		if r.PDM == nil {
			return 0, 0
		}
		return r.PDM.Lost, r.PDM.Received
	}},
	{"IOAM", func(r *query.Row) (int64, uint64) {
		if r.IOAM == nil {
			return 0, 0
		}
		return r.IOAM.Lost, r.IOAM.Received
	}},
}

// byWay are the records of what arrives with marks, by way between two hosts.
var byWay = question{filter: "(pdm or ioam) and direction ingress", by: "src,dst", sort: "packets", limit: 500}

// judgeMarks uses the sequence numbers of PDM and IOAM. A path that both show is one.
func judgeMarks(w *window, f *finding) error {
	rows, err := w.rows(byWay)
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		seen := false
		for _, m := range marks {
			lost, received := m.of(r)
			if received == 0 && lost <= 0 {
				continue
			}
			if !seen {
				f.count++
			}
			share := 0.0
			if lost > 0 {
				share = float64(lost) / (float64(lost) + float64(received))
			}
			if seen || lost < leastLost || share < w.PathLoss {
				continue
			}
			seen = true
			f.add(w.marksVerdict(m.name, r, uint64(lost), received, share))
		}
	}
	return nil
}

func (w *window) marksVerdict(mark string, r *query.Row, lost, received uint64, share float64) Verdict {
	path, where := "", Where{Src: r.Src, Dst: r.Dst}
	if r.IOAM != nil && r.IOAM.ID != 0 {
		where.Path, where.Nodes = r.IOAM.ID.String(), r.IOAM.Nodes
		path = " over nodes " + r.IOAM.Nodes
	}
	v := Verdict{
		Text:    fmt.Sprintf("The path from %s to %s%s", r.Src, r.Dst, path),
		Measure: "share of packets whose sequence number is missing", Unit: "share", Value: share, Threshold: w.PathLoss, Samples: lost + received,
		Where: where, Command: w.command(question{filter: fmt.Sprintf("(pdm or ioam) and direction ingress and src %s and dst %s", r.Src, r.Dst), by: "src,dst"}),
		scope: scope{id: fmt.Sprintf("way %s %s", r.Src, r.Dst), addresses: addresses(r.Src, r.Dst), lost: lost},
	}
	if s := w.culprit(r, lost); s != nil {
		v.Evidence = []string{fmt.Sprintf("%s from %s to %s%s are missing; %s between these two interfaces", term.Number(lost, "packets"), r.Src, r.Dst, path, term.Count(s.lost))}
		v.Text, v.Where, v.Flow, v.Command, v.scope = s.name(), s.where(), s.largest(), s.command(w), s.scope("loss")
	}
	v.Text += fmt.Sprintf(" loses %s of %s with %s (%d lost); threshold %s", term.Percent(share), term.Number(lost+received, "packets"), mark, lost, term.Percent(w.PathLoss))
	return v
}

// culprit is the segment in which packets are lost of which the sequence numbers are missing: most of them, and at least
// twice as many as in any other. What may be on its way does not matter here; nil: there is none.
func (w *window) culprit(r *query.Row, lost uint64) (worst *segment) {
	second := uint64(0)
	for _, s := range w.between {
		switch {
		case !s.losers[r.Src] || !s.losers[r.Dst]:
		case worst == nil || s.lost > worst.lost:
			if worst != nil {
				second = worst.lost
			}
			worst = s
		default:
			second = max(second, s.lost)
		}
	}
	if worst == nil || worst.lost < max(leastLost, lost/2) || worst.lost < 2*second {
		return nil
	}
	return worst
}

// unicast reports whether packets to an address have one copy.
func unicast(a netip.Addr) bool {
	b := a.As16()
	return a.IsValid() && !a.IsMulticast() && !a.IsUnspecified() && !(a.Is4() && b[12] == 255)
}
