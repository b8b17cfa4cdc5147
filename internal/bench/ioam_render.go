package bench

import (
	"fmt"
	"io"
)

// WriteText writes the report as a text with tables.
func (r *IOAMReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprint(w, "Budgets: medians\n\n")
	if err := writeBudgets(w, r.Budgets); err != nil {
		return err
	}
	fmt.Fprint(w, "\nTransit: time per packet in ns over the empty program, by BPF_PROG_TEST_RUN: median (minimum–maximum of the rounds)\n\n")
	var rows [][]string
	for _, c := range r.Costs {
		rows = append(rows, []string{
			c.Fields, c.Type.String(), c.XDP.String(), c.TC.String(), c.Through.String(), c.Ingress.String(), c.Without.String(),
			c.Plain.String(), c.PlainOff.String(),
		})
	}
	err := writeTable(w, []column{
		{"trace of", false},
		{"Trace-Type", false},
		{"XDP", true},
		{"tc ingress", true},
		{"tc ingress and egress", true},
		{"all stages of ingress", true},
		{"no node", true},
		{"packet without options", true},
		{"no node", true},
	}, rows)
	if err != nil {
		return err
	}
	return r.writeTransit(w)
}

func (r *IOAMReport) writeTransit(w io.Writer) error {
	t := r.Transit
	fmt.Fprintf(w, "\nTransit on the chain: UDP datagrams with a trace (%s) through three routers on one CPU, %d rounds of\n"+
		"%d packets for each kind of routers, in turns\n\n", t.Fields, t.Rounds, t.Packets)
	var rows [][]string
	for _, n := range t.Nodes {
		added, linux := "", ""
		if n.Added != nil {
			added, linux = n.Added.String(), number(n.Linux)
		}
		rows = append(rows, []string{n.Node, n.Packet.String(), added, linux})
	}
	return writeTable(w, []column{
		{"transit node", false}, {"ns per packet, whole chain", true}, {"ns added by each router", true}, {"÷ Linux", true},
	}, rows)
}

// WritePlots has no plots: costs of programs are in the table.
func (r *IOAMReport) WritePlots(string) error { return nil }
