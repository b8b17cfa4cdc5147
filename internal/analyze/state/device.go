package state

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/waymark-net/waymark/internal/term"
)

func textReceiver(w io.Writer, r *Receiver) {
	fmt.Fprintf(w, "devices   send to udp %s: %s, %sB; %s dropped by the kernel", r.Listen, term.Number(r.Datagrams, "datagrams"), term.Count(r.Bytes), term.Count(r.KernelDropped))
	for _, reason := range sorted(r.Refused) {
		fmt.Fprintf(w, ", %s refused (%s)", term.Count(r.Refused[reason]), reason)
	}
	if r.LastRefused != "" {
		fmt.Fprintf(w, ", the latest from %s", r.LastRefused)
	}
	fmt.Fprintln(w)
}

// textDevices shows hosts without an agent.
func textDevices(w io.Writer, hosts []Host) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "\nDEVICE\tADDRESS\tPROTOCOL\tSAMPLING\tINTERFACES\tDATAGRAMS\tREPEATED\tRECORDS\tWAITING\tLOST\tNO FLOW"
	for i := range hosts {
		d := hosts[i].Device
		if d == nil {
			continue
		}
		if head != "" {
			fmt.Fprintln(t, head)
			head = ""
		}
		sampling := "1"
		if d.Sampling > 1 {
			sampling = fmt.Sprintf("1:%.4g", d.Sampling)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", hosts[i].Name, d.Address, strings.Join(d.Protocols, ","), sampling, d.Interfaces,
			d.Datagrams, d.Repeated, d.Records, d.Waiting, textCounts(d.Lost), textCounts(d.Dropped))
	}
	return t.Flush()
}

func textCounts(m map[string]uint64) string {
	var parts []string
	for _, name := range sorted(m) {
		parts = append(parts, fmt.Sprintf("%d %s", m[name], name))
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}
