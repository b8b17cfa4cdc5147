package bench

import (
	"fmt"
	"io"
	"strings"
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
			c.Fields, c.Type.String(), c.XDP.String(), c.General.String(), c.TC.String(), c.Through.String(), c.Ingress.String(), c.Without.String(),
			c.Plain.String(), c.PlainOff.String(),
		})
	}
	err := writeTable(w, []column{
		{"trace of", false},
		{"Trace-Type", false},
		{"XDP", true},
		{"XDP, header of another form", true},
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
	if err := r.writeTransit(w); err != nil {
		return err
	}
	if err := r.writeThroughput(w); err != nil {
		return err
	}
	return r.writePaper(w)
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

// sent says how packets leave.
func (p *IOAMTransfers) sent() string {
	if p.Offload {
		return "bursts"
	}
	return "single packets"
}

func (r *IOAMReport) writeThroughput(w io.Writer) error {
	t := r.Throughput
	fmt.Fprintf(w, "\nThroughput of the chain: TCP over IPv6 with MTU %d, all nodes on one CPU, %d rounds of %d MiB in\n"+
		"bursts or %d MiB in single packets in each mode, in turns. Gbit/s are those of a second of CPU time. Bursts have one trace for\n"+
		"all their segments. Ratios: median, what it is with 95 %% confidence, lowest and highest round\n\n", t.MTU, t.Rounds, sliceBytes[true]>>20, sliceBytes[false]>>20)
	var rows [][]string
	for _, p := range t.Points {
		rows = append(rows, []string{p.Figure, p.Mode, p.sent(), p.Rate.String(), p.Over, p.Ratio.sure(p.Sure)})
	}
	if err := writeTable(w, []column{
		{"figure", false}, {"mode", false}, {"sent as", false}, {"Gbit/s", true}, {"compared with", false}, {"ratio", true},
	}, rows); err != nil {
		return err
	}
	if err := r.writeShares(w); err != nil {
		return err
	}
	fmt.Fprint(w, "\nTime in the programs of each node that a packet with a trace takes more, in ns; acknowledgements included\n\n")
	rows = nil
	for _, n := range t.Nodes {
		rows = append(rows, []string{n.Node, n.Role, n.Added.String()})
	}
	return writeTable(w, []column{{"node", false}, {"role", false}, {"ns added", true}}, rows)
}

// writeShares says whose the cost of a trace in each packet is.
func (r *IOAMReport) writeShares(w io.Writer) error {
	fmt.Fprint(w, "\nWhose the cost of a trace in each packet is: throughput lost. Linux alone: the sender's socket puts the same option into packets,\n"+
		"and no program runs; compared with no agent. Others are compared with IOAM registered\n\n")
	var rows [][]string
	for _, offload := range []bool{true, false} {
		var row []string
		for _, mode := range []string{modeSocket, modeFilled, modeAll} {
			p := r.Throughput.point(mode, offload)
			if p == nil {
				return fmt.Errorf("%s was not measured", mode)
			}
			if row == nil {
				row = []string{p.sent()}
			}
			row = append(row, fmt.Sprintf("%s %% [%s–%s]", number(100*(1-p.Ratio.Median)), number(100*(1-p.Sure.To)), number(100*(1-p.Sure.From))))
		}
		rows = append(rows, row)
	}
	return writeTable(w, []column{
		{"sent as", false}, {"Linux alone", true}, {"and nodes fill and remove it", true}, {"alpha inserts it, nodes fill and remove it", true},
	}, rows)
}

// writePaper writes the figures of the first implementation next to those of this run.
func (r *IOAMReport) writePaper(w io.Writer) error {
	p, rows := r.Paper, [][]string{}
	row := func(what, theirs, mode string) {
		ours := ""
		for _, offload := range []bool{false, true} {
			if point := r.Throughput.point(mode, offload); point != nil {
				base := r.Throughput.point(point.Over, offload)
				ours += fmt.Sprintf("%s → %s Gbit/s (%+.1f %%, %s) ",
					number(base.Rate.Median), number(point.Rate.Median), 100*(point.Ratio.Median-1), point.sent())
			}
		}
		rows = append(rows, []string{what, theirs, strings.TrimSpace(ours)})
	}
	change := func(v [2]float64) float64 { return 100 * (v[1]/v[0] - 1) }
	row("IOAM registered, no traces", fmt.Sprintf("%.2f → %.2f Gbit/s (%+.1f %%)", p.Registered[0], p.Registered[1], change(p.Registered)), modeRegistered)
	row("a trace in 1 % of the packets", fmt.Sprintf("%+.1f %%", -p.One), modeOne)
	row("a trace in each packet (later work)", fmt.Sprintf("%.3f → %.3f Mpps (%+.1f %%)", p.Inline[0], p.Inline[1], change(p.Inline)), modeAll)
	fmt.Fprint(w, "\nAlongside the figures of the first implementation in Linux, which are of other machines\n\n")
	return writeTable(w, []column{{"", false}, {"paper", true}, {"this run", true}}, rows)
}

// WritePlots draws the throughput over the share of packets with a trace, options and namespaces.
func (r *IOAMReport) WritePlots(dir string) error {
	var charts []chart
	for _, f := range []struct{ figure, title, x string }{
		{figureInjection, "Throughput of the chain with traces in some packets", "% of the packets"},
		{figureOptions, "Throughput of the chain with options in each packet", "options"},
		{figureNamespaces, "Throughput of the chain with traces of several namespaces", "namespaces"},
		{figureSize, "Throughput of the chain with options of several sizes in each burst", "bytes of the Hop-by-Hop header"},
	} {
		c := chart{
			file: "ioam-" + f.figure, title: f.title, x: f.x, linear: f.figure != figureInjection, y: "% of the throughput without traces",
		}
		for _, offload := range []bool{false, true} {
			s := series{}
			for _, p := range r.Throughput.Points {
				if p.Figure == f.figure && p.Offload == offload {
					s.name = p.sent()
					s.x, s.y = append(s.x, p.Value), append(s.y, p.Ratio.times(100))
				}
			}
			if s.x != nil {
				c.series = append(c.series, s)
			}
		}
		charts = append(charts, c)
	}
	return writeCharts(dir, charts)
}

// times is a spread in another unit.
func (s Spread) times(f float64) Spread {
	return Spread{Median: f * s.Median, Q1: f * s.Q1, Q3: f * s.Q3, Low: f * s.Low, High: f * s.High}
}
