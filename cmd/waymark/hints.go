package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/hints"
	"github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

func newHintsCommand() *cobra.Command {
	var agent agentFlag
	var out outputFlag
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "hints [IFACE]",
		Short: "Show what network cards know of a packet before XDP programs see it",
		Long: `Hints lists, for each interface, which facts about a received packet its driver offers
XDP programs: the receive time, the hash, and the VLAN tag that the card took out of the
frame. INSTEAD is what serves programs where the driver has none.

What is offered need not be there. Where a running agent reads hints, it counts the packets
that have them. --for counts on other interfaces: it attaches a program at XDP for that time,
to interfaces that have none and whose driver offers a hint. Some drivers set up their queues
again for that, which takes the link down for a moment.`,
		Example: `  waymark hints
  sudo waymark hints eth0 --for 3s
  waymark hints eth0 -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeInterfaces,
		RunE: func(cmd *cobra.Command, args []string) error {
			devices, err := examineHints(args)
			if err != nil {
				return err
			}
			addAgentRates(cmd.Context(), &agent, devices)
			if interval > 0 {
				if err := hints.Measure(cmd.Context(), devices, interval); err != nil {
					return err
				}
			}
			return printHints(cmd.OutOrStdout(), devices, out.format)
		},
	}
	command.DurationVar(cmd.Flags(), &interval, "for", 0, "count packets by their hints for a `TIME`, such as 3s")
	agent.register(cmd)
	out.register(cmd, outputTable, outputJSON)
	return cmd
}

// examineHints looks at the interface that is named, or at all.
func examineHints(args []string) ([]*hints.Device, error) {
	if len(args) == 0 {
		return hints.ExamineAll()
	}
	d, err := hints.Examine(args[0])
	if err != nil {
		return nil, interfaceError("hints", args[0], err)
	}
	return []*hints.Device{d}, nil
}

// addAgentRates adds what a running agent counted, if there is one.
func addAgentRates(ctx context.Context, agent *agentFlag, devices []*hints.Device) {
	status, err := agent.client().Status(ctx)
	if err != nil {
		return
	}
	own := service.StatusOf(&status)
	if own == nil {
		return
	}
	for _, i := range own.Interfaces {
		for _, d := range devices {
			if i.Netns != "" || i.Iface != d.Name || i.IfIndex != d.IfIndex {
				continue
			}
			for _, h := range i.Hints {
				d.SetRate(h.Kind, *h.Rate)
				d.RatesOf = "agent"
			}
		}
	}
}

// hintsReport is the JSON of waymark hints.
type hintsReport struct {
	Interfaces []*hints.Device `json:"interfaces"`
}

func printHints(w io.Writer, devices []*hints.Device, format string) error {
	if format == outputJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		r := &hintsReport{Interfaces: devices}
		obs.FillLists(r)
		return enc.Encode(r)
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "IFACE"},
		{Title: "DRIVER"},
		{Title: "XDP"},
		{Title: "HINT"},
		{Title: "OFFERED"},
		{Title: "PACKETS", Right: true},
		{Title: "PRESENT", Right: true},
		{Title: "INSTEAD", Least: 20},
	}}
	for _, d := range devices {
		name, driver, xdp := d.Name, d.Driver, xdpState(d)
		for _, h := range d.Hints {
			packets, present := "-", "-"
			if h.Rate != nil {
				packets = term.Count(h.Rate.Present + h.Rate.Absent)
				present = term.Percent(h.Rate.Share())
			}
			t.Add(name, driver, xdp, h.Kind.String(), offered(d, h), packets, present, h.Instead)
			name, driver, xdp = "", "", ""
		}
	}
	if err := t.Write(w, term.Width(w)); err != nil {
		return err
	}
	for _, d := range devices {
		if d.NotMeasured == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s was not measured: %s\n", d.Name, d.NotMeasured); err != nil {
			return err
		}
	}
	return nil
}

// offered is whether a driver has a hint, and from where.
func offered(d *hints.Device, h hints.Hint) string {
	switch {
	case !d.Reported:
		return "unknown"
	case h.Offered:
		return "by the " + h.Source
	}
	return "no"
}

// xdpState is what runs at XDP of an interface, or could.
func xdpState(d *hints.Device) string {
	switch p := d.Program; {
	case p != nil && p.Name != "":
		return p.Mode + ": " + p.Name
	case p != nil:
		return p.Mode
	case d.Native:
		return "no program"
	case !d.Reported:
		return "unknown"
	}
	return "generic only"
}

// xdpNote is where packet rules of an interface would run, and why, for doctor.
func xdpNote(d *hints.Device) string {
	switch p := d.Program; {
	case p != nil && p.Name == "":
		return fmt.Sprintf("XDP: a program (id %d, %s); whose it is can be seen by root only", p.ID, p.Mode)
	case p != nil && strings.HasPrefix(p.Name, "waymark"):
		return fmt.Sprintf("XDP: %s (id %d, %s)", p.Name, p.ID, p.Mode)
	case p != nil:
		return fmt.Sprintf("XDP: another program (%s, id %d, %s), which is left alone: packet rules run at tc", p.Name, p.ID, p.Mode)
	case d.Native && d.Driver == "veth":
		return "XDP: free: packet rules run at tc, and in the driver with gate.mode native"
	case d.Native:
		return "XDP: free: packet rules run in the driver"
	case !d.Reported:
		return "XDP: free; whether the driver runs programs is not reported (Linux 6.3 does): the agent tries, and waymark status shows the hook"
	}
	return "XDP: the driver runs no programs: packet rules run at tc, and behind the driver with gate.mode generic"
}

// hintNotes is the same in short, for doctor.
func hintNotes(d *hints.Device) []string {
	if !d.Reported {
		return []string{"hints of the driver: unknown: " + hints.ErrNotReported.Error()}
	}
	var have, computed []string
	for _, h := range d.Hints {
		if h.Offered {
			have = append(have, fmt.Sprintf("%s (%s)", h.Kind, h.Source))
		} else {
			computed = append(computed, h.Kind.String())
		}
	}
	var notes []string
	if len(have) > 0 {
		notes = append(notes, "hints at XDP: "+strings.Join(have, ", ")+"; how often they are there: waymark hints "+d.Name+" --for 3s")
	}
	if len(computed) > 0 {
		notes = append(notes, "no hint of the driver, computed: "+strings.Join(computed, ", "))
	}
	return notes
}
