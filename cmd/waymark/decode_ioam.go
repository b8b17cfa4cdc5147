package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waymark-net/waymark/internal/inband/offline"
	"github.com/waymark-net/waymark/wire/ioam"
)

// optionRows are the IOAM options of a packet.
func (s decodeShow) optionRows(p *offline.Packet) []optionRow {
	rows := make([]optionRow, len(p.IOAM))
	for i := range p.IOAM {
		rows[i] = optionRow{p, &p.IOAM[i], s.format}
	}
	return rows
}

// appendIOAM appends the options of a packet as a JSON array.
func (s decodeShow) appendIOAM(b []byte, p *offline.Packet) []byte {
	b = append(b, '[')
	for i, o := range s.optionRows(p) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendObject(b, "", optionColumns, o)
		if _, ok := o.Body.(*ioam.Trace); !ok {
			continue
		}
		b = append(b[:len(b)-1], `,"hops":[`...)
		for j, h := range o.hops() {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendObject(b, "", hopColumns, h)
		}
		b = append(b, ']', '}')
	}
	return append(b, ']')
}

// hopCSV is a row of the table of IOAM options: one per hop, or one for an option that
// has none.
type hopCSV struct {
	packet packetRow
	option *optionRow
	hop    *hopRow
}

var hopCSVColumns = func() (cols []column[hopCSV]) {
	for _, c := range endColumns {
		cols = append(cols, column[hopCSV]{c.name, func(r hopCSV) any { return c.value(r.packet) }})
	}
	for _, c := range optionColumns {
		cols = append(cols, column[hopCSV]{c.name, func(r hopCSV) any {
			if r.option == nil {
				return nil
			}
			return c.value(*r.option)
		}})
	}
	for _, c := range hopColumns {
		cols = append(cols, column[hopCSV]{c.name, func(r hopCSV) any {
			if r.hop == nil {
				return nil
			}
			return c.value(*r.hop)
		}})
	}
	return append(cols, column[hopCSV]{errorColumn.name, func(r hopCSV) any { return errorColumn.value(r.packet) }})
}()

// hopRows are the rows of a packet.
func (s decodeShow) hopRows(r packetRow) (rows []hopCSV) {
	for _, o := range s.optionRows(r.Packet) {
		hops := o.hops()
		for i := range hops {
			rows = append(rows, hopCSV{r, &o, &hops[i]})
		}
		if len(hops) == 0 {
			rows = append(rows, hopCSV{r, &o, nil})
		}
	}
	if len(rows) == 0 {
		rows = append(rows, hopCSV{packet: r})
	}
	return rows
}

// writeIOAM writes a packet's options for people: a line per option, with the hops of
// a trace as a table.
func (s decodeShow) writeIOAM(w *bytes.Buffer, p *offline.Packet) {
	at := timeValue(p.Time)
	if at == nil {
		at = "-"
	}
	fmt.Fprintf(w, "%6d  %v  %s %s > %s\n", p.Frame, at, protoName(p.Proto), p.Src, p.Dst)
	for _, o := range s.optionRows(p) {
		fmt.Fprintf(w, "        %s\n", optionText(o))
		var problems ioam.Problems
		if errors.As(o.Err, &problems) {
			for _, e := range problems {
				fmt.Fprintf(w, "        %v\n", e)
			}
		}
		writeHops(w, o.hops())
	}
	if p.IOAMErr != nil {
		fmt.Fprintf(w, "        %v\n", p.IOAMErr)
	}
}

// optionText describes an option but for its hops.
func optionText(o optionRow) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if k, ok := o.Kind(); ok {
		add("%v", k)
	} else {
		add("IOAM option of %d bytes", len(o.Raw))
	}
	if id, ok := o.Namespace(); ok {
		add("namespace %d", id)
	}
	switch b := o.Body.(type) {
	case *ioam.Trace:
		add("Trace-Type %v", b.Type)
		add("%d bytes free", 4*int(b.Remaining))
		if b.Flags != 0 {
			add("%v", b.Flags)
		}
	case *ioam.POT:
		add("PktID %016x", b.PktID)
		add("Cumulative %016x", b.Cumulative)
	case *ioam.DEX:
		add("Trace-Type %v", b.Type)
	}
	for _, c := range optionColumns {
		switch c.name {
		case "flow_id", "sequence", "sent":
			if v := c.value(o); v != nil {
				add("%s %v", strings.ReplaceAll(c.name, "_id", ""), v)
			}
		}
	}
	return strings.Join(parts, ", ")
}

// writeHops writes the columns in which a hop has a value.
func writeHops(out *bytes.Buffer, hops []hopRow) {
	if len(hops) == 0 {
		return
	}
	var cols []column[hopRow]
	for _, c := range hopColumns {
		if (c.name == "seconds" || c.name == "fraction") && hops[0].hasTime {
			continue // they are the time
		}
		for _, h := range hops {
			if c.value(h) != nil {
				cols = append(cols, c)
				break
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(cell func(column[hopRow]) string) {
		cells := make([]string, len(cols))
		for i, c := range cols {
			cells[i] = cell(c)
		}
		fmt.Fprintf(w, "        %s\n", strings.Join(cells, "\t"))
	}
	line(func(c column[hopRow]) string { return strings.ToUpper(strings.TrimSuffix(c.name, "_ns")) })
	for _, h := range hops {
		line(func(c column[hopRow]) string {
			switch v := c.value(h).(type) {
			case nil:
				return "-"
			case int64:
				return durationText(time.Duration(v))
			default:
				return fmt.Sprint(v)
			}
		})
	}
	w.Flush() // to a buffer
}
