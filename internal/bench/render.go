package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// column is one of a table: Markdown that is readable as plain text too.
type column struct {
	title string
	right bool
}

// writeTable pads cells to the width of their column.
func writeTable(w io.Writer, columns []column, rows [][]string) error {
	width := make([]int, len(columns))
	for i, c := range columns {
		width[i] = len([]rune(c.title))
		for _, row := range rows {
			width[i] = max(width[i], len([]rune(row[i])))
		}
	}
	var b strings.Builder
	line := func(cell func(i int) string) {
		for i := range columns {
			b.WriteString("| " + cell(i) + " ")
		}
		b.WriteString("|\n")
	}
	pad := func(i int, text string) string {
		space := strings.Repeat(" ", width[i]-len([]rune(text)))
		if columns[i].right {
			return space + text
		}
		return text + space
	}
	line(func(i int) string { return pad(i, columns[i].title) })
	line(func(i int) string {
		if columns[i].right {
			return strings.Repeat("-", width[i]-1) + ":"
		}
		return strings.Repeat("-", width[i])
	})
	for _, row := range rows {
		line(func(i int) string { return pad(i, row[i]) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// String is the median, and the smallest and largest value in parentheses.
func (s Spread) String() string {
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Low), number(s.High))
}

// number has as many digits as say something.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// WriteText describes the run.
func (r *Run) WriteText(w io.Writer) error {
	m := r.Machine
	quick := ""
	if r.Quick {
		quick = ", a quick run"
	}
	_, err := fmt.Fprintf(w, "waymark %s, %s; Linux %s, %d processors (%s), %d MiB, %s; load before the run %.1f; %.0f s%s\n\n",
		r.Version, r.Started.UTC().Format("2006-01-02 15:04 MST"), m.Kernel, m.Processors, m.Processor, m.MemoryMiB, m.Go,
		m.Load, r.Seconds, quick)
	return err
}

// writeBudgets is a table of promises, kept or not.
func writeBudgets(w io.Writer, budgets []Budget) error {
	var rows [][]string
	for _, b := range budgets {
		verdict := "met"
		if !b.Met {
			verdict = "MISSED"
		}
		rows = append(rows, []string{b.Name, number(b.Limit) + " " + b.Unit, number(b.Value) + " " + b.Unit, verdict})
	}
	return writeTable(w, []column{{"what", false}, {"budget", true}, {"measured", true}, {"", false}}, rows)
}

// WriteText writes the report as a text with tables.
func (r *DatapathReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintln(w, "Budgets: the median for the worst sort of packet")
	fmt.Fprintln(w)
	if err := writeBudgets(w, r.Budgets); err != nil {
		return err
	}

	fmt.Fprintln(w, "\nProcessor time of a packet in ns over the empty program: median (lowest–highest of the rounds)")
	fmt.Fprintln(w)
	columns := []column{{"packet", false}, {"flows", true}}
	for _, c := range r.Points[0].Costs[1:] {
		columns = append(columns, column{c.Program, true})
	}
	columns = append(columns, column{"ingress ÷ HASH", true}, column{"a random read", true})
	var rows [][]string
	for _, p := range r.Points {
		row := []string{p.Packet, fmt.Sprint(p.Flows)}
		ratio := ""
		for _, c := range p.Costs[1:] {
			row = append(row, c.Over.String())
			if c.Program == costIngress {
				ratio = c.Ratio.String()
			}
		}
		rows = append(rows, append(row, ratio, p.Read.String()))
	}
	if err := writeTable(w, columns, rows); err != nil {
		return err
	}

	fmt.Fprintln(w, "\nPackets that take the long way through the parser, one flow")
	fmt.Fprintln(w)
	if err := writeCosts(w, "packet", r.Rare); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nFeatures that are off, compared with a build without them, and switched on; and a packet in no flow (IPv4/UDP, one flow)")
	fmt.Fprintln(w)
	if err := writeCosts(w, "program", r.Features); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nParse and hash, with the keys of the hash as operands of instructions and in memory (1000 flows)")
	fmt.Fprintln(w)
	if err := writeCosts(w, "program", r.Hash); err != nil {
		return err
	}
	d, e := r.Drain, r.Export
	exact := "every packet was there once"
	if !d.Exact {
		exact = "PACKETS WERE LOST OR COUNTED TWICE"
	}
	_, err := fmt.Fprintf(w, "\nDrain of %d flows from %d slots: %s ms, of it %s ms waiting for programs to end; %s.\n"+
		"A record, from the drain through the table of flows to IPFIX over UDP: %s µs in user space, %s µs in the kernel.\n",
		d.Flows, d.Entries, d.Milliseconds, d.Grace, exact, e.User, e.System)
	return err
}

func writeCosts(w io.Writer, what string, costs []Cost) error {
	columns := []column{{what, false}, {"ns over empty", true}, {"instructions", true}, {"bytes of machine code", true}}
	compared := slices.ContainsFunc(costs, func(c Cost) bool { return c.Added != nil })
	if compared {
		columns = append(columns, column{"ns added", true})
	}
	var rows [][]string
	for _, c := range costs {
		row := []string{c.Program, c.Over.String(), fmt.Sprint(c.Size.Instructions), fmt.Sprint(c.Size.Machine)}
		switch {
		case c.Added != nil:
			row = append(row, c.Added.String())
		case compared:
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	return writeTable(w, columns, rows)
}

// WriteText writes the report as a text with a table.
func (r *ProbesReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d rounds of %d packets (7 of one for each flow, where these are more), on a veth pair for each probe, in turns;\nthe agent drains its table every %s\n", r.Rounds, r.Packets, r.Scan)
	for _, a := range r.Absent {
		fmt.Fprintf(w, "not measured: %s: %s\n", a.Probe, a.Why)
	}
	fmt.Fprintln(w)
	var rows [][]string
	for _, c := range r.Measured {
		if c.Probe == none {
			rows = append(rows, []string{fmt.Sprint(c.Flows), "no probe", c.Total.String(), "", "", "", "", "", "", ""})
			continue
		}
		counted := "all"
		if !c.Exact {
			counted = fmt.Sprintf("%.2f %%", 100*c.share())
		}
		rows = append(rows, []string{
			fmt.Sprint(c.Flows), c.Probe, c.Total.String(), c.Over.String(), number(c.Process), number(c.Over.Median + c.Process),
			number(c.Memory), number(c.Kernel), fmt.Sprint(c.Records), counted,
		})
	}
	return writeTable(w, []column{
		{"flows", true},
		{"probe", false},
		{"kernel, ns a packet", true},
		{"over no probe", true},
		{"process, ns a packet", true},
		{"both", true},
		{"process, MiB", true},
		{"table, MiB", true},
		{"records", true},
		{"counted", true},
	}, rows)
}
