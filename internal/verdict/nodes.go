package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/term"
)

// judgeNodes uses what IOAM reports of each node of a path and of the links between them. The
// counters are sums of nanoseconds, so their means are those of the window to the packet.
func judgeNodes(w *window, f *finding) error {
	if w.request.Filter != "" {
		return nil // a path has many flows
	}
	own, _ := w.counters(PathDelay)
	grown, first, _ := w.deps.Ledger.Between(w.from.Add(-w.Compare), w.from)
	usual := map[string]time.Duration{}
	for _, c := range grown {
		if c.Kind == PathDelay && c.N >= w.Samples && first.Before(w.from) {
			usual[c.ID] = time.Duration(c.Of / int64(c.N))
		}
	}
	whole := map[string]time.Duration{}
	for _, c := range own {
		if mean := c.mean(); mean > 0 && !c.Where.relative() {
			whole[c.Where.Path] += mean
		}
	}
	for _, c := range own {
		if c.N < w.Samples {
			continue
		}
		f.count++
		w.judgeNode(f, &c, whole[c.Where.Path], usual[c.ID])
	}
	return nil
}

func (c *Counter) mean() time.Duration {
	if c.N == 0 {
		return 0
	}
	return time.Duration(c.Of / int64(c.N))
}

// relative: the clocks of both ends of a link do not agree, so only changes mean something.
func (w *Where) relative() bool { return w.Reason == Relative }

// Relative is the reason of a Counter of a link between clocks that do not agree.
const Relative = "relative"

func (w *window) judgeNode(f *finding, c *Counter, whole, usual time.Duration) {
	mean := c.mean()
	adds, slow := mean, false
	switch {
	case c.Where.relative():
		adds = mean - usual
		slow = usual != 0 && adds >= w.PathDelay
	case usual > 0:
		slow = mean >= w.PathDelay && w.unusual(mean, usual, w.PathDelay)
	default:
		slow = mean >= w.PathDelay && float64(mean) >= w.Share*float64(whole)
	}
	if !slow {
		return
	}
	where := c.Where
	where.Reason = ""
	name := "Node " + nodeName(&where, where.Hop) + " keeps packets for"
	if where.Link {
		name = fmt.Sprintf("The link from node %s to node %s takes", nodeName(&where, where.Hop), nodeName(&where, where.Hop+1))
	}
	against := compared(mean, usual)
	if c.Where.relative() {
		against = "more than usual, by clocks that do not agree"
	} else if usual == 0 {
		against = fmt.Sprintf("of %s on the whole path %s", term.Duration(whole), where.Path)
	}
	f.add(Verdict{
		Text:    fmt.Sprintf("%s %s, %s; threshold %s", name, term.Duration(adds), against, term.Duration(w.PathDelay)),
		Measure: "mean delay of the hop", Unit: "s", Value: adds.Seconds(), Threshold: w.PathDelay.Seconds(), Usual: usual.Seconds(), Samples: c.N,
		Where: where, Command: "waymark paths " + where.Path,
		scope: scope{id: c.ID, addresses: addresses(where.Src, where.Dst), located: true},
	})
}

// nodeName is the id of a node of a path.
func nodeName(w *Where, hop int) string {
	nodes := strings.Split(w.Nodes, "-")
	if hop < 1 || hop > len(nodes) {
		return fmt.Sprintf("of hop %d", hop)
	}
	return nodes[hop-1]
}

// median of durations, of which there is one at least.
func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
