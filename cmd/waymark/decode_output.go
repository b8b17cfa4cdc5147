package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/offline"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/pdm"
)

// decodePrinter writes packets as they are decoded, so that a live capture can
// be followed, and the rest at the end. The caller flushes the writer.
type decodePrinter interface {
	packet(p *offline.Packet, o inband.Observation) error
	end(t *offline.Table, sum offline.Totals) error
}

// decodeShow is what is shown of a capture.
type decodeShow struct {
	packets, ioam, flows bool
	format               ioam.TimeFormat
}

// wants reports whether a packet is shown with its PDM or with its IOAM options. One
// whose extension headers are malformed is shown with either.
func (s decodeShow) wants(p *offline.Packet) (packet, options bool) {
	broken := packetRow{Packet: p}.unreadable() != nil
	return s.packets && (!p.Unmarked() || broken), s.ioam && (len(p.IOAM) > 0 || broken && !s.packets)
}

func newDecodePrinter(w *bufio.Writer, format string, show decodeShow) decodePrinter {
	switch format {
	case outputJSON:
		return &decodeJSON{w: w, show: show}
	case outputJSONL:
		return &decodeJSONL{w: w, show: show}
	case outputCSV:
		return newDecodeCSV(w, show)
	}
	return &decodeTable{w: w, show: show}
}

// appendPacket appends a packet as a JSON object.
func (s decodeShow) appendPacket(b []byte, kind string, p *offline.Packet, o inband.Observation) []byte {
	row := packetRow{p, o}
	cols := packetColumns
	if !s.packets || p.Unmarked() {
		cols = append(slices.Clip(endColumns), errorColumn)
	}
	b = appendObject(b, kind, cols, row)
	if _, options := s.wants(p); options && len(p.IOAM) > 0 {
		b = append(b[:len(b)-1], `,"ioam":`...)
		b = append(s.appendIOAM(b, p), '}')
	}
	return b
}

// appendObject appends a row as a JSON object; kind is its type, empty for none.
func appendObject[T any](b []byte, kind string, cols []column[T], row T) []byte {
	b = append(b, '{')
	if kind != "" {
		b = appendMember(b, "type", kind)
	}
	object := ""
	for _, c := range cols {
		v := c.value(row)
		if v == nil {
			continue
		}
		inner, key := (&flow.Field{Name: c.name}).Inside()
		b = flow.Reopen(b, object, inner)
		object = inner
		b = appendMember(b, key, v)
	}
	return append(flow.Reopen(b, object, ""), '}')
}

func appendMember(b []byte, name string, v any) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(append(append(b, '"'), name...), '"', ':')
	return appendValue(b, v)
}

// appendValue knows the types that columns have. Their strings, made here from
// numbers, names and errors, need no more than Go's quoting.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return strconv.AppendQuote(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case protocol:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint8:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint32:
		return strconv.AppendUint(b, uint64(v), 10)
	case bool:
		return strconv.AppendBool(b, v)
	case uint16:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	}
	panic(fmt.Sprintf("a column of type %T", v))
}

// decodeJSON writes one document: {"packets":[…],"flows":[…],"totals":{…}}.
type decodeJSON struct {
	w       *bufio.Writer
	show    decodeShow
	written int // packets so far
	line    []byte
}

func (d *decodeJSON) packet(p *offline.Packet, o inband.Observation) error {
	lead := ",\n"
	if d.written == 0 {
		lead = "{\"packets\":[\n"
	}
	d.written++
	d.line = d.show.appendPacket(append(d.line[:0], lead...), "", p, o)
	_, err := d.w.Write(d.line)
	return err
}

func (d *decodeJSON) end(t *offline.Table, sum offline.Totals) error {
	switch {
	case d.written > 0:
		fmt.Fprint(d.w, "],\n")
	case d.show.packets || d.show.ioam:
		fmt.Fprint(d.w, "{\"packets\":[],\n")
	default:
		fmt.Fprint(d.w, "{")
	}
	if d.show.flows {
		fmt.Fprint(d.w, "\"flows\":[\n")
		for i, c := range t.Conversations() {
			if i > 0 {
				fmt.Fprint(d.w, ",\n")
			}
			d.w.Write(appendObject(d.line[:0], "", flowColumns, c))
		}
		fmt.Fprint(d.w, "],\n")
	}
	d.line = appendObject(append(d.line[:0], "\"totals\":"...), "", totalColumns, sum)
	_, err := d.w.Write(append(d.line, '}', '\n'))
	return err // of any write before, too
}

// decodeJSONL writes an object a line, which says what it is.
type decodeJSONL struct {
	w    io.Writer
	show decodeShow
	line []byte
}

func (d *decodeJSONL) packet(p *offline.Packet, o inband.Observation) error {
	d.line = append(d.show.appendPacket(d.line[:0], "packet", p, o), '\n')
	_, err := d.w.Write(d.line)
	return err
}

func (d *decodeJSONL) end(t *offline.Table, sum offline.Totals) error {
	if d.show.flows {
		for _, c := range t.Conversations() {
			if err := writeLine(d, "flow", flowColumns, c); err != nil {
				return err
			}
		}
	}
	return writeLine(d, "totals", totalColumns, sum)
}

func writeLine[T any](d *decodeJSONL, kind string, cols []column[T], row T) error {
	d.line = append(appendObject(d.line[:0], kind, cols, row), '\n')
	_, err := d.w.Write(d.line)
	return err
}

// decodeCSV writes one of the three tables.
type decodeCSV struct {
	w    *csv.Writer
	show decodeShow
}

func newDecodeCSV(w io.Writer, show decodeShow) *decodeCSV {
	d := &decodeCSV{csv.NewWriter(w), show}
	switch {
	case show.flows:
		writeNames(d.w, flowColumns)
	case show.ioam:
		writeNames(d.w, hopCSVColumns)
	default:
		writeNames(d.w, packetColumns)
	}
	return d
}

func (d *decodeCSV) packet(p *offline.Packet, o inband.Observation) error {
	if !d.show.ioam {
		return writeValues(d.w, packetColumns, packetRow{p, o})
	}
	for _, r := range d.show.hopRows(packetRow{p, o}) {
		if err := writeValues(d.w, hopCSVColumns, r); err != nil {
			return err
		}
	}
	return nil
}

func (d *decodeCSV) end(t *offline.Table, _ offline.Totals) error {
	if d.show.flows {
		for _, c := range t.Conversations() {
			if err := writeValues(d.w, flowColumns, c); err != nil {
				return err
			}
		}
	}
	d.w.Flush()
	return d.w.Error()
}

// writeNames leaves its error to the writer, which keeps it until the end.
func writeNames[T any](w *csv.Writer, cols []column[T]) {
	_ = w.Write(columnNames(cols))
}

func writeValues[T any](w *csv.Writer, cols []column[T], row T) error {
	values := make([]string, len(cols))
	for i, c := range cols {
		if v := c.value(row); v != nil {
			values[i] = fmt.Sprint(v)
		}
	}
	return w.Write(values)
}

// decodeTable is for people.
type decodeTable struct {
	w       *bufio.Writer
	show    decodeShow
	started bool // with the table of packets
	options bool // something of IOAM is written
	line    bytes.Buffer
}

const packetFormat = "%6v  %-30v  %5v  %5v  %12v  %12v  %9v  %9v  %v\n"

func (d *decodeTable) packet(p *offline.Packet, o inband.Observation) error {
	d.line.Reset()
	packet, options := d.show.wants(p)
	if packet {
		d.pdm(p, o)
	}
	if options {
		d.options = true
		d.show.writeIOAM(&d.line, p)
	}
	_, err := d.w.Write(d.line.Bytes())
	return err
}

// pdm adds a row of the table of packets.
func (d *decodeTable) pdm(p *offline.Packet, o inband.Observation) {
	if !d.started {
		d.started = true
		fmt.Fprintf(&d.line, packetFormat, "FRAME", "TIME", "PSNTP", "PSNLR", "DTLR", "DTLS", "RAW DTLR", "RAW DTLS", "FLOW")
	}
	at := timeValue(p.Time)
	if at == nil {
		at = "-"
	}
	name := fmt.Sprintf("%s %s > %s", protoName(p.Proto), p.Src, p.Dst)
	if p.Err != nil {
		err := packetRow{Packet: p}.unreadable()
		fmt.Fprintf(&d.line, packetFormat, p.Frame, at, "-", "-", "-", "-", "-", "-", fmt.Sprintf("%s: %v", name, err))
	} else {
		fmt.Fprintf(&d.line, packetFormat, p.Frame, at, p.Option.PSNTP, p.Option.PSNLR,
			deltaText(p.Option.DeltaTLR, p.Option.ScaleDTLR), deltaText(p.Option.DeltaTLS, p.Option.ScaleDTLS),
			rawText(p.Option.DeltaTLR, p.Option.ScaleDTLR), rawText(p.Option.DeltaTLS, p.Option.ScaleDTLS),
			name+noteText(o))
	}
}

// noteText names what is unusual about a packet.
func noteText(o inband.Observation) string {
	var note string
	if o.Arrival != inband.First && o.Arrival != inband.InOrder {
		note = ", " + o.Arrival.String()
	}
	if o.Suspicion != inband.NotSuspicious {
		note += ", " + o.Suspicion.String()
	}
	return note
}

func (d *decodeTable) end(t *offline.Table, sum offline.Totals) error {
	w := d.w
	if d.started || d.options {
		fmt.Fprintln(w)
	}
	if d.show.flows && len(t.Conversations()) > 0 {
		writeFlowTable(w, t)
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s, %s, %s with PDM", term.Number(sum.Frames, "frames"), term.Number(sum.Packets, "IPv6 packets"), term.Count(sum.Marked))
	if sum.Version2 > 0 {
		fmt.Fprintf(w, ", %d with PDMv2 (not supported)", sum.Version2)
	}
	if sum.Malformed > 0 {
		fmt.Fprintf(w, ", %d malformed", sum.Malformed)
	}
	if sum.IOAM > 0 {
		fmt.Fprintf(w, ", %d with IOAM", sum.IOAM)
	}
	if sum.IOAMMalformed > 0 {
		fmt.Fprintf(w, " (%d with problems)", sum.IOAMMalformed)
	}
	_, err := fmt.Fprintln(w)
	return err // of any write before, too
}

// writeFlowTable has medians; JSON and CSV have the rest. Counts are those of
// the client's packets and of the server's.
func writeFlowTable(out io.Writer, t *offline.Table) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROTO\tSRC\tDST\tSERVER\tNETWORK\tTO_CLIENT\tTO_SERVER\tRECEIVED\tLOST\tREORDERED\tDUPLICATES\tSUSPICIOUS")
	for _, c := range t.Conversations() {
		f, client, server := c.Flow(), c.Client(), c.Server()
		pair := func(a, b uint64) string { return fmt.Sprintf("%d/%d", a, b) }
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", protoName(f.Proto), f.Src, f.Dst,
			medianText(&server.Host), medianText(&client.Network), medianText(&client.Path), medianText(&server.Path),
			pair(client.Packets, server.Packets), pair(client.Lost, server.Lost), pair(client.Reordered, server.Reordered),
			pair(client.Duplicates, server.Duplicates), pair(client.Suspicious, server.Suspicious))
	}
	w.Flush() // to a buffer, which keeps errors until it is flushed
}

func medianText(h *inband.Histogram) string {
	if h.Count == 0 {
		return "-"
	}
	return durationText(h.Quantile(0.5))
}

func deltaText(delta uint16, scale uint8) string {
	d, ok := pdm.Duration(delta, scale)
	if !ok {
		return ">292y"
	}
	return durationText(d)
}

// rawText is the delta as it is on the wire, and its scale.
func rawText(delta uint16, scale uint8) string { return fmt.Sprintf("%04X<<%d", delta, scale) }

// durationText rounds to five digits, which is what 16 bits hold.
func durationText(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 100_000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func columnNames[T any](cols []column[T]) []string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.name
	}
	return names
}
