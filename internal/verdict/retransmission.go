package verdict

import (
	"cmp"
	"fmt"

	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/term"
)

// leastAgain is the fewest segments that were sent again that give a verdict.
const leastAgain = 10

// judgeRetransmissions compares the kernel's counters of each network namespace. No flow record
// counts retransmissions: that would take a look at every sequence number. The kernel's account
// of each open connection, which costs nothing until it is asked for, names the worst.
func judgeRetransmissions(w *window, f *finding) error {
	own, _ := w.counters(Retransmissions)
	if len(own) == 0 {
		f.note("the kernel has no counters of the time, or no segment was sent")
	}
	for _, c := range own {
		sent := uint64(max(c.Of, 0)) + c.N
		f.count += sent
		share := float64(c.N) / float64(max(sent, 1))
		if c.N < leastAgain || share < w.Retransmissions {
			continue
		}
		host := "This host"
		if c.Where.Netns != "" {
			host = "Namespace " + c.Where.Netns
		}
		v := Verdict{
			Text:    fmt.Sprintf("%s sends %s of %s again (%s)", host, term.Percent(share), term.Number(sent, "TCP segments"), term.Count(c.N)),
			Measure: "share of segments that are sent again", Unit: "share", Value: share, Threshold: w.Retransmissions, Samples: sent,
			Where: c.Where, Command: w.command(question{filter: "tcp", by: "conversation", sort: "packets"}),
			scope: scope{id: c.Where.Netns, addresses: addresses(), lost: c.N},
		}
		w.worst(&v)
		v.Text += "; threshold " + term.Percent(w.Retransmissions)
		f.add(v)
	}
	return nil
}

// worst names the open connections that sent most again.
func (w *window) worst(v *Verdict) {
	open, err := w.deps.Connections(v.Where.Netns)
	if err != nil {
		v.Evidence = append(v.Evidence, "open connections: "+err.Error())
		return
	}
	order.By(open, func(a, b Connection) int { return cmp.Compare(b.Retransmitted, a.Retransmitted) })
	for i := range open[:min(len(open), 5)] {
		c := &open[i]
		if c.Retransmitted == 0 {
			break
		}
		if i == 0 {
			v.Flow = &c.Flow
			v.Text += ", most of them " + c.Flow.String()
			v.Command = w.command(question{filter: fmt.Sprintf("tcp and host %s and port %d", c.Dst, c.DstPort), by: "conversation", sort: "packets"})
		}
		v.Evidence = append(v.Evidence, fmt.Sprintf("%s: %d of %d segments since it was opened", c.Flow.String(), c.Retransmitted, c.Sent))
		v.scope.addresses[c.Src], v.scope.addresses[c.Dst] = true, true
	}
}
