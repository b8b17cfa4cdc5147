package bench

import (
	"fmt"
	"io"
	"strings"
)

// passElsewhere are figures of another machine.
const passElsewhere = "On one core of another machine, receiving alone on veth took 116 ns for forwarding at XDP, 339 in the kernel and 503 with conntrack: XDP takes 0.34 of the kernel."

// passText is what differs between reports.
type passText struct {
	flows string // what there are many of
	what  string
}

func (p *Passes) writePasses(w io.Writer, run *Run, t passText) error {
	if err := run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprint(w, "Budgets: medians\n\n")
	if err := writeBudgets(w, p.Budgets); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s: %d rounds of %d packets for each way, in turns, on one processor.\n"+
		"Median (lowest–highest of the rounds). Receiving is the time of a packet less that of sending it to an interface that is down.\n\n", t.what, p.Rounds, p.Packets)
	var rows [][]string
	for _, c := range p.Measured {
		row := []string{fmt.Sprint(c.Flows), c.Way, c.Total.String(), "", "", number(c.Rate), ""}
		if c.Way != passSending {
			row[3], row[4], row[6] = c.Receive.String(), c.Ratio.String(), "all"
			if c.Arrived < c.Sent {
				row[6] = fmt.Sprintf("all but %d of %d", c.Sent-c.Arrived, c.Sent)
			}
		}
		rows = append(rows, row)
	}
	if err := writeTable(w, []column{
		{t.flows, true},
		{"way", false},
		{"ns per packet", true},
		{"receiving, ns", true},
		{"receiving ÷ the kernel", true},
		{"million packets/s", true},
		{"arrived", false},
	}, rows); err != nil {
		return err
	}
	for _, a := range p.Absent {
		a.Why, _, _ = strings.Cut(a.Why, "\n")
		fmt.Fprintf(w, "\nnot available here: %s (%s %s): %s\n", a.Way, strings.Trim(fmt.Sprint(a.Flows), "[]"), t.flows, a.Why)
	}
	fmt.Fprint(w, "\nThe program at XDP alone, over the empty one (BPF_PROG_TEST_RUN), flows counted too. Instructions are those of a packet of a known flow, in an interpreter.\n\n")
	rows = nil
	for _, r := range p.Programs {
		rows = append(rows, []string{fmt.Sprint(r.Flows), r.What, r.Over.String(), number(r.Instructions), number(r.Helpers)})
	}
	if err := writeTable(w, []column{{t.flows, true}, {"what", false}, {"ns over the empty program", true}, {"instructions", true}, {"calls of helpers", true}}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\nOn veth, frames reach native XDP without DMA, and the stack gets them without an allocation by a driver: compare ratios, and only those of one run.\n", passElsewhere)
	return err
}

// plot draws a bar for each way, with the most flows.
func (p *Passes) plot(dir, file, title string) error {
	var most int
	for _, c := range p.Measured {
		most = max(most, c.Flows)
	}
	b := bars{file: file, title: fmt.Sprintf(title, most), x: "ns per packet"}
	for _, c := range p.Measured {
		if c.Flows == most && c.Way != passSending {
			b.names, b.values = append(b.names, c.Way), append(b.values, c.Receive)
		}
	}
	return b.write(dir)
}
