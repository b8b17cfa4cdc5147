package verdict

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// judgeDelay finds hops and paths that add delay, from what locates it best to what does not.
func judgeDelay(w *window, f *finding) error {
	for _, part := range []func(*window, *finding) error{judgeNodes, judgeSegmentDelay, judgeNetwork, judgeHandshakes} {
		if err := part(w, f); err != nil {
			return err
		}
	}
	return nil
}

// judgeSegmentDelay compares the times at which the first packets of flows were seen.
func judgeSegmentDelay(w *window, f *finding) error {
	segments, _, err := w.segments()
	if err != nil {
		return err
	}
	for _, s := range segments {
		if len(s.delays) < leastFlows {
			continue
		}
		f.count++
		delay := s.delay()
		if delay < w.PathDelay {
			continue
		}
		f.add(Verdict{
			Text:    fmt.Sprintf("%s delays packets by %s, by the first packets of %s; threshold %s", s.name(), term.Duration(delay), term.Number(uint64(len(s.delays)), "flows"), term.Duration(w.PathDelay)),
			Measure: "median delay of the hop", Unit: "s", Value: delay.Seconds(), Threshold: w.PathDelay.Seconds(), Samples: uint64(len(s.delays)),
			Where: s.where(), Flow: s.largest(), Command: s.command(w), scope: s.scope("delay"),
		})
	}
	return nil
}

// judgeNetwork uses the round trips of PDM: for each server, those of all its services.
func judgeNetwork(w *window, f *finding) error {
	services, err := w.servers()
	if err != nil {
		return err
	}
	for i := range services {
		s := &services[i]
		network, server := w.median(&s.pdm.Network), w.median(&s.pdm.Server)
		if s.pdm.Network.Count < w.Samples {
			continue
		}
		f.count++
		usual := w.usualMedian(s.usual, networkDelays)
		slow := network >= w.PathDelay && float64(network) >= w.Share*float64(network+server)
		if usual > 0 {
			slow = network >= w.PathDelay && w.unusual(network, usual, w.PathDelay)
		}
		if !slow {
			continue
		}
		f.add(w.pathVerdict(pathDelay{
			what: "round trip of PDM", measure: "median round trip", to: s.Dst, value: network, usual: usual, samples: s.pdm.Network.Count,
			filter: fmt.Sprintf("pdm and direction ingress and src %s", s.Dst), by: "proto,src,sport", sort: "network",
		}))
	}
	return nil
}

// byPair are the round trips of handshakes: a pair has both ways, and the interfaces agree.
var byPair = question{
	filter: "tcp", by: "pair", sort: "records", limit: 500, reads: fieldsOf("rtt."), sums: []string{"packets"},
	everywhere: true, // as of servers
}

// judgeHandshakes uses the handshakes of TCP, where there is a time before to compare with.
func judgeHandshakes(w *window, f *finding) error {
	rows, err := w.rows(byPair)
	if err != nil {
		return err
	}
	marked, err := w.marked()
	if err != nil {
		return err
	}
	least := max(w.Samples/2, 1)
	var slow []*query.Row
	for i := range rows {
		r := &rows[i]
		if marked[r.Src] || marked[r.Dst] || r.RTTSeen < least {
			continue
		}
		f.count++
		if r.RTT.Handshake() >= w.PathDelay {
			slow = append(slow, r)
		}
	}
	if len(slow) == 0 {
		return nil
	}
	return w.compareHandshakes(f, slow, least)
}

// compareHandshakes finds those that are slower than usual.
func (w *window) compareHandshakes(f *finding, slow []*query.Row, least uint64) error {
	var of []thing
	for _, r := range slow {
		of = append(of, thing{pairOf(r), fmt.Sprintf("(host %s and host %s)", r.Src, r.Dst)})
	}
	before, err := w.usual(byPair, of, pairOf)
	if err != nil {
		return err
	}
	usual := map[string]*query.Row{}
	for i := range before {
		usual[pairOf(&before[i])] = &before[i]
	}
	for _, r := range slow {
		b := usual[pairOf(r)]
		if b == nil || b.RTTSeen < least || b.RTT.Handshake() == 0 {
			continue
		}
		now, was := r.RTT.Handshake(), b.RTT.Handshake()
		if !w.unusual(now, was, w.PathDelay) {
			continue
		}
		f.add(w.pathVerdict(pathDelay{
			what: "round trip of TCP handshakes", measure: "mean round trip", from: r.Src, to: r.Dst, value: now, usual: was, samples: r.RTTSeen,
			filter: fmt.Sprintf("tcp and host %s and host %s", r.Src, r.Dst), by: "pair", sort: "rtt",
		}))
	}
	return nil
}

// pairOf names the hosts of a row.
func pairOf(r *query.Row) string { return r.Src.String() + " " + r.Dst.String() }

// marked are the servers whose round trip PDM reports.
func (w *window) marked() (map[netip.Addr]bool, error) {
	services, err := w.servers()
	set := map[netip.Addr]bool{}
	for i := range services {
		if services[i].pdm.Network.Count >= w.Samples {
			set[services[i].Dst] = true
		}
	}
	return set, err
}

// pathDelay is a round trip that is too long.
type pathDelay struct {
	what, measure    string
	from, to         netip.Addr // from: not valid where it is this host
	value, usual     time.Duration
	samples          uint64
	filter, by, sort string
}

func (w *window) pathVerdict(p pathDelay) Verdict {
	path := "The path to " + p.to.String()
	if p.from.IsValid() {
		path = fmt.Sprintf("The path between %s and %s", p.from, p.to)
	}
	return Verdict{
		Text:    fmt.Sprintf("%s takes %s, by the %s, %s; threshold %s", path, term.Duration(p.value), p.what, compared(p.value, p.usual), term.Duration(w.PathDelay)),
		Measure: p.measure, Unit: "s", Value: p.value.Seconds(), Threshold: w.PathDelay.Seconds(), Usual: p.usual.Seconds(), Samples: p.samples,
		Where: Where{Src: p.from, Dst: p.to}, Command: w.command(question{filter: p.filter, by: p.by, sort: p.sort}),
		scope: scope{id: "to " + p.from.String() + " " + p.to.String(), addresses: addresses(p.to)},
	}
}
