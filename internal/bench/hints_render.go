package bench

import (
	"fmt"
	"io"
)

// hintsPaper is what the paper on hints reports.
const hintsPaper = "The paper on hints of network cards for XDP, on a card that has them: deciding by a hint takes 3 times as many packets per second as parsing."

// hintsVeth says what veth cannot show.
const hintsVeth = `What veth shows: the cost of asking the driver, of computing what it has not, and of reading a packet or not. What it cannot
show: what a hint of hardware saves. veth has no receive time, and no hash of frames that never were sk_buffs, as here: the driver's answer is always
"none", and the program drops by that answer. The hash of other frames is computed in software, which takes longer than the hash in bpf/hints. No network card
puts frames into a cache here, or leaves them in memory: packets that were evicted are in the last cache of the machine.`

// WriteText writes the report as a text with tables.
func (r *HintsReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "What no driver knows, computed, by BPF_PROG_TEST_RUN over an empty program: ns per packet, median (lowest–highest of %d rounds)\n\n", r.Rounds)
	var rows [][]string
	for _, c := range r.Computed {
		rows = append(rows, []string{c.Name, c.NS.String()})
	}
	if r.Call != nil {
		rows = append(rows, []string{"the driver of veth, asked for a time it does not have", r.Call.String()})
	}
	if err := writeTable(w, []column{{"hint", false}, {"ns", true}}, rows); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nPackets that a program at XDP drops, on a veth pair for each, in turns: %d rounds of %d packets. Receiving is the time of a packet less that of\n"+
		"sending it; where another processor wrote it, the time of the thread that receives.\n\n", r.Rounds, r.Packets)
	if err := writeHintsDropped(w, "receiving, ns per packet", r.Dropped, true); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nThe time within these programs, by the clock at their begin and end: what reading a packet takes, wherever it is. The first row of each way is\n"+
		"the clock itself.\n\n")
	err := writeHintsDropped(w, "in the program, ns", r.Read, false)
	if err == nil {
		_, err = fmt.Fprintf(w, "\n%s\n\n%s\n", hintsPaper, hintsVeth)
	}
	return err
}

func writeHintsDropped(w io.Writer, value string, all []HintsDropped, rate bool) error {
	columns := []column{{"packets", false}, {"program", false}, {value, true}, {"over dropping unread", true}}
	if rate {
		columns = append(columns, column{"packets per second ÷ parsing", true})
	}
	var rows [][]string
	for _, d := range all {
		if d.Program == hintPrograms[hintAsked].name {
			continue
		}
		row := []string{d.Packets, d.Program, d.NS.String(), d.Over.String()}
		if rate {
			row = append(row, d.Rate.String())
		}
		rows = append(rows, row)
	}
	return writeTable(w, columns, rows)
}

// WritePlots draws what reading a packet takes, in the ways in which packets arrive.
func (r *HintsReport) WritePlots(dir string) error {
	c := chart{
		file: "hints", title: "Time within a program that drops a packet", y: "ns over dropping unread", linear: true,
		x: "1: in the cache   2: evicted   3: written by another processor",
	}
	for _, p := range hintPrograms[1:hintAsked] {
		s := series{name: p.name}
		for _, d := range r.Read {
			if d.Program == p.name {
				s.x, s.y = append(s.x, float64(len(s.x)+1)), append(s.y, d.Over)
			}
		}
		c.series = append(c.series, s)
	}
	return writeCharts(dir, []chart{c})
}
