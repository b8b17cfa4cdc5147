package bench

import (
	"fmt"
	"io"
	"strings"
)

// slides are the figures that the first XDP drop test is known by: how many times as many packets as iptables it drops.
const slides = "The slides that XDP is known by, on one core of another machine: XDP drops 2.9 times as many packets as iptables, and 5.7 times with the compiler for BPF."

// filters say what the programs of xdp-filter do, and Waymark's.
var filters = []string{
	dropFilterAll + ": without a choice of features. It looks up both addresses of Ethernet, both of IPv4 or IPv6, and then the port of the destination, and counts by verdict and by port.",
	dropFilterUDP + ": compiled for ports of UDP alone. It looks up the port of the destination, and counts the same.",
	"waymark: the same program for all rules. It decides by all rules, and counts by rule, interface and flow; a packet like the one before is only compared with that.",
}

// WriteText writes the report as a text with tables.
func (r *DropReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	if len(r.Budgets) > 0 {
		fmt.Fprint(w, "Budgets: medians\n\n")
		if err := writeBudgets(w, r.Budgets); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "UDP datagrams to a port that a rule drops: %d rounds of %d packets for each way, in turns, on one processor.\n"+
		"Median (lowest–highest of the rounds). Receiving is the time of a packet less that of sending it to an interface that is down.\n\n",
		r.Rounds, r.Packets)
	var rows [][]string
	var slowest float64
	for _, c := range r.Measured {
		if c.Way != dropSending && c.Way != dropNone {
			slowest = max(slowest, c.Total.Median)
		}
	}
	for _, c := range r.Measured {
		row := []string{c.Way, c.Total.String(), "", "", number(c.Rate), "", "not counted"}
		if c.Way != dropSending {
			row[2] = c.Receive.String()
			if c.Ratio.Median != 0 { // nftables was there
				row[3] = c.Ratio.String()
			}
			row[5] = number(slowest/c.Total.Median) + " ×"
		}
		switch {
		case c.Way == dropSending, c.Way == dropNone:
			row[6] = ""
		case c.Counts:
			row[6] = "all"
		}
		rows = append(rows, row)
	}
	err := writeTable(w, []column{
		{"dropped by", false},
		{"ns per packet", true},
		{"receiving, ns", true},
		{"receiving ÷ nftables", true},
		{"million packets/s", true},
		{"rate ÷ the slowest", true},
		{"dropped, by its counter", false},
	}, rows)
	if err != nil {
		return err
	}
	for _, a := range r.Absent {
		fmt.Fprintf(w, "\nnot measured: %s: %s\n", a.Probe, a.Why)
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(filters, "\n"))
	_, err = fmt.Fprintf(w, "\n%s\nOn veth, frames reach native XDP as they were sent, without DMA, and no memory for them is allocated or mapped: what a driver of a network card "+
		"spends before XDP is missing here, for all ways alike.\n", slides)
	return err
}

// WritePlots draws a bar for each way.
func (r *DropReport) WritePlots(dir string) error {
	b := bars{file: "drop", title: "Receiving and dropping a packet", x: "ns per packet"}
	for _, c := range r.Measured {
		if c.Way != dropSending {
			b.names, b.values = append(b.names, c.Way), append(b.values, c.Receive)
		}
	}
	return b.write(dir)
}
