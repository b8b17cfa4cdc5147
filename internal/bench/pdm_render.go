package bench

import (
	"fmt"
	"io"
)

// WriteText writes the report as a text with tables.
func (r *PDMReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprint(w, "Budgets: medians\n\n")
	if err := writeBudgets(w, r.Budgets); err != nil {
		return err
	}
	fmt.Fprint(w, "\nProcessor time of a packet in ns: median (lowest–highest of the rounds)\n\n")
	if err := r.writeCosts(w); err != nil {
		return err
	}
	fmt.Fprint(w, "\nThe programs as they are attached\n\n")
	var rows [][]string
	for _, s := range r.Sizes {
		pdm := "off"
		if s.PDM {
			pdm = "on"
		}
		rows = append(rows, []string{s.Program, pdm, fmt.Sprint(s.Instructions), fmt.Sprint(s.Machine)})
	}
	columns := []column{{"program", false}, {"PDM", false}, {"instructions", true}, {"bytes of machine code", true}}
	if err := writeTable(w, columns, rows); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nState of a flow: %d bytes with its key, %.0f with all that the map takes; room for %d flows by default.\n",
		r.State.KeyValue, r.State.Kernel, r.State.MaxFlows)
	if err := r.writeTransfers(w); err != nil {
		return err
	}
	return r.writeDraft(w)
}

func (r *PDMReport) writeCosts(w io.Writer) error {
	text := func(s *Spread) string {
		if s == nil {
			return ""
		}
		return s.String()
	}
	var rows [][]string
	for _, c := range r.Costs {
		flows := "new ones"
		if c.Flows > 0 {
			flows = fmt.Sprint(c.Flows)
		}
		rows = append(rows, []string{c.Direction, c.What, flows, c.Stage.String(), text(c.Whole), text(c.Without), text(c.Added)})
	}
	return writeTable(w, []column{
		{"", false},
		{"packet", false},
		{"flows", true},
		{"parse and PDM, over empty", true},
		{"whole program, over empty", true},
		{"PDM off", true},
		{"added by PDM", true},
	}, rows)
}

func (r *PDMReport) writeTransfers(w io.Writer) error {
	t := r.Transfer
	for _, a := range t.Absent {
		fmt.Fprintf(w, "\nnot measured: %s: %s\n", a.Probe, a.Why)
	}
	if len(t.Modes) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nTCP over IPv6 on a veth pair of MTU %d by iperf3: %d rounds of %g s in each mode that sends bursts, and every %d-th also in the others,\n"+
		"in turns of a tenth of a second, sender and receiver on one processor, with an agent on both hosts. Ratios: median, what it is with\n"+
		"95 %% confidence, lowest and highest round\n\n", t.MTU, t.Rounds, t.Seconds, t.Every)
	var rows [][]string
	for _, m := range t.Modes {
		rows = append(rows, []string{
			m.Mode, m.Rate.String(), m.Ratio.sure(m.RatioSure), m.Retransmits.String(), m.Processor.precise(), m.Work.sure(m.WorkSure),
			number(m.Agent), fmt.Sprint(m.Marked),
		})
	}
	return writeTable(w, []column{
		{"marks", false},
		{"Gbit/s", true},
		{"÷ unmarked", true},
		{"segments sent again", true},
		{"processor, s a GB", true},
		{"÷ unmarked", true},
		{"agent, ms a transfer", true},
		{"marked", true},
	}, rows)
}

// precise is String with a third place: it tells permille.
func (s Spread) precise() string { return fmt.Sprintf("%.3f (%.3f–%.3f)", s.Median, s.Low, s.High) }

// sure is precise with a confidence interval of the median.
func (s Spread) sure(r Range) string {
	return fmt.Sprintf("%.3f [%.3f–%.3f] (%.3f–%.3f)", s.Median, r.From, r.To, s.Low, s.High)
}

// writeDraft sets the figures of the draft next to those of this run.
func (r *PDMReport) writeDraft(w io.Writer) error {
	d := r.Draft
	ours := map[string]string{}
	for _, c := range r.Costs {
		if c.Flows == 1 && c.Added != nil {
			ours[c.What] = "+" + number(c.Added.Median) + " ns"
		}
	}
	rate, again := "", ""
	for _, m := range r.Transfer.Modes {
		if m.Mode == modeBurst {
			base := r.Transfer.Modes[0]
			rate = fmt.Sprintf("%s → %s Gbit/s (round by round %+.1f %%)",
				number(base.Rate.Median), number(m.Rate.Median), 100*(m.Ratio.Median-1))
			again = fmt.Sprintf("%.0f → %.0f", base.Retransmits.Median, m.Retransmits.Median)
		}
	}
	fmt.Fprint(w, "\nAlongside the figures of draft-elkins-v6ops-bpf-pdm-ebpf-00, which are of another machine\n\n")
	return writeTable(w, []column{{"", false}, {"draft", true}, {"this run", true}}, [][]string{
		{"egress, a packet", fmt.Sprintf("+%.0f ns", d.Egress), ours[costMark]},
		{"ingress, a packet", fmt.Sprintf("+%.0f ns", d.Ingress), ours[costRead]},
		{
			"TCP, one mark for a burst",
			fmt.Sprintf("%.2f → %.2f Gbit/s (%+.1f %%)", d.Rate[0], d.Rate[1], 100*(d.Rate[1]/d.Rate[0]-1)), rate,
		},
		{"segments sent again", fmt.Sprintf("%.0f → %.0f", d.Retransmits[0], d.Retransmits[1]), again},
		{
			"state of a flow", fmt.Sprintf("%d bytes", d.State),
			fmt.Sprintf("%d bytes with its key", r.State.KeyValue),
		},
		{"flows", fmt.Sprint(d.Flows), fmt.Sprint(r.State.MaxFlows)},
	})
}

// WritePlots draws what marking and reading cost over the number of flows.
func (r *PDMReport) WritePlots(dir string) error {
	c := chart{file: "pdm", title: "A packet of a marked flow", y: "ns over the empty program"}
	for _, line := range []struct {
		what, name string
		value      func(PDMCost) Spread
	}{
		{costMark, "parse and mark", func(c PDMCost) Spread { return c.Stage }},
		{costMark, "egress, all stages", func(c PDMCost) Spread { return *c.Whole }},
		{costRead, "parse and read", func(c PDMCost) Spread { return c.Stage }},
		{costRead, "ingress, all stages", func(c PDMCost) Spread { return *c.Whole }},
		{costMark, "egress, PDM off", func(c PDMCost) Spread { return *c.Without }},
	} {
		s := series{name: line.name}
		for _, cost := range r.Costs {
			if cost.What == line.what {
				s.x = append(s.x, float64(cost.Flows))
				s.y = append(s.y, line.value(cost))
			}
		}
		c.series = append(c.series, s)
	}
	return writeCharts(dir, []chart{c})
}
