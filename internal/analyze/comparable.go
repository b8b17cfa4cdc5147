package analyze

import (
	"context"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// incomparable says why counts of a host mean something else than those of others; empty: they do not.
func (h *host) incomparable(ctx context.Context, answer *query.Answer, since, until time.Time) (why string, err error) {
	if why = missing(answer); why != "" {
		return why, nil
	}
	h.mu.Lock()
	sampling, off, gap := h.state.Sampling, h.state.ClockOffset, h.gapIn(answer.From, answer.To)
	h.mu.Unlock()
	switch {
	case sampling > 1:
		return fmt.Sprintf("one packet in %d is counted, at each interface another one", sampling), nil
	case off.Abs() > farClock:
		return fmt.Sprintf("its clock is %v off", off.Round(time.Second)), nil
	case gap != nil:
		return fmt.Sprintf("it did not count for %v from %s", gap.To.Sub(gap.From).Round(time.Millisecond), gap.From.Local().Format(time.TimeOnly)), nil
	}
	p := query.Plan{Since: since, Until: until, Sums: []string{"packets"}, Sort: "packets", Limit: 1, Everywhere: true}
	if p.Filter, err = filter.Parse("unattributed"); err != nil {
		return "", err
	}
	if p.By, err = query.ParseBy("iface"); err != nil {
		return "", err
	}
	none, err := own{h}.Query(ctx, p)
	if err == nil && len(none.Rows) > 0 && none.Rows[0].Packets > 0 {
		why = "some packets are in no flow"
	}
	return why, err
}

// Times in which an agent did not count: it was restarted, or intervals were lost.
const (
	mostGaps = 64
	leastGap = 50 * time.Millisecond
)

// recallGaps notes those of intervals from before the analyzer started. Which of them are first ones of a run is not known then: those
// behind a gap may be.
func (h *host) recallGaps(heads []store.Head) {
	for i := range heads {
		h.noteGap(&heads[i], h.until.IsZero() || heads[i].From.Sub(h.until) >= leastGap)
	}
}

// noteGap notes the time between two intervals, and the first interval of a run, in which counting began; h.mu is held.
func (h *host) noteGap(head *store.Head, first bool) {
	add := func(list []hops.Window, from, to time.Time) []hops.Window {
		if len(list) == mostGaps {
			list = list[1:]
		}
		return append(list, hops.Window{From: from, To: to})
	}
	if !h.until.IsZero() && head.From.Sub(h.until) >= leastGap {
		h.gaps = add(h.gaps, h.until, head.From)
	}
	if head.To.After(h.until) {
		h.until = head.To
	}
	if first {
		h.starts = add(h.starts, head.From, head.To)
	}
}

// counting is since when a host has counted everything up to some time, in a range.
func (h *host) counting(since, until time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range [][]hops.Window{h.gaps, h.starts} {
		for _, g := range list {
			if g.To.After(since) && (until.IsZero() || g.From.Before(until)) {
				since = g.To
			}
		}
	}
	return since
}

// gapIn is one between two times; nil: none is known; h.mu is held.
func (h *host) gapIn(from, to time.Time) *hops.Window {
	for i := range h.gaps {
		if g := &h.gaps[i]; g.To.After(from) && g.From.Before(to) {
			return g
		}
	}
	return nil
}
