package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/datapath"
	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/hints"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/suggest"
	"github.com/waymark-net/waymark/internal/topology"
)

func newDoctorCommand() *cobra.Command {
	var out outputFlag
	var file string
	cmd := &cobra.Command{
		Use:   "doctor [IFACE]",
		Short: "Report what works on this host, and how to fix the rest",
		Long: `Doctor checks privileges and kernel features and, if an interface is named, how the
probe would attach to it. The last line is the verdict. Doctor changes nothing.

Some checks need root; without it they are reported as unknown. Exit code 3 means that
the eBPF probe cannot run here, or that this is unknown.`,
		Example: `  sudo waymark doctor
  sudo waymark doctor eth0`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeInterfaces,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, _, err := configurationOf(cmd.Context(), file)
			if err != nil {
				return err
			}
			report := doctorReport{Kernel: kernelRelease(), Checks: append(kernel.Examine(), examineHeadroom(), examinePins(gateservice.Section.Of(&cfg).PinDir), examineAccess(cmd.Context()))}
			if len(args) == 1 {
				iface, err := examineInterface(args[0])
				if err != nil {
					return err
				}
				report.Interface = iface
			}
			report.MaxEntries = datapath.DefaultMaxEntries()
			report.Verdict = kernel.Judge(report.Checks, startLine(args))
			if err := report.print(cmd.OutOrStdout(), out.format); err != nil {
				return err
			}
			if s := report.Verdict.State; s == kernel.StateMissing || s == kernel.StateUnknown {
				return fmt.Errorf("%w: %w", command.ErrReported, kernel.ErrMissing)
			}
			return nil
		},
	}
	out.register(cmd, outputTable, outputJSON)
	cmd.Flags().StringVarP(&file, "config", "c", "", "look where the agent with the configuration in YAML `FILE` leaves packet rules; else that of the running agent, or "+packagedConfiguration)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	return cmd
}

type doctorReport struct {
	Kernel     string           `json:"kernel"`
	MaxEntries uint32           `json:"default_max_entries"`
	Checks     []kernel.Check   `json:"checks"`
	Interface  *interfaceReport `json:"interface,omitempty"`
	Verdict    kernel.Verdict   `json:"verdict"`
}

// startLine is how the agent is started here.
func startLine(ifaces []string) string {
	if len(ifaces) > 0 {
		return "waymark run -i " + ifaces[0]
	}
	if names, err := topology.DefaultRouteInterfaces(); err == nil && len(names) > 0 {
		return "waymark run" // counts on those
	}
	return "waymark run -i IFACE"
}

type interfaceReport struct {
	topology.Link
	Driver string   `json:"driver,omitempty"`
	Mode   string   `json:"mode"` // how the probe attaches to it
	Notes  []string `json:"notes,omitempty"`

	Hints *hints.Device `json:"hints"`
}

func examineInterface(name string) (*interfaceReport, error) {
	link, driver, err := topology.Inspect(name)
	if err != nil {
		return nil, interfaceError("doctor", name, err)
	}
	r := &interfaceReport{Link: link, Driver: driver, Mode: string(datapath.ModeTCX)}
	if !kernel.TCX.Has() {
		r.Mode = string(datapath.ModeClsact)
	}
	if !link.Ethernet() {
		r.Notes = append(r.Notes, "no link header: frames begin with the IP header")
	}
	if link.Kind == "physical" {
		r.Notes = append(r.Notes, "coverage compares packets on the wire with the NIC's counters")
	} else {
		r.Notes = append(r.Notes, "coverage compares frames: a virtual interface counts a GSO burst as one frame")
	}
	if !link.Up {
		r.Notes = append(r.Notes, "the interface is down: set it up with: ip link set "+name+" up")
	}
	device, err := hints.Examine(name)
	if err != nil {
		return nil, interfaceError("doctor", name, err)
	}
	r.Hints = device
	r.Notes = append(append(r.Notes, xdpNote(device)), hintNotes(device)...)
	r.Notes = append(r.Notes, chainNotes(link.IfIndex)...)
	return r, nil
}

// interfaceError reports an interface that cannot be examined, and the nearest
// one that there is.
func interfaceError(verb, name string, err error) error {
	var missing netlink.LinkNotFoundError
	if !errors.As(err, &missing) {
		return fmt.Errorf("%s: interface %s: %w", verb, name, err)
	}
	names := present()
	if near := suggest.Nearest(name, names); near != "" {
		return command.UsageErrorf("%s: no interface %s: did you mean %s?", verb, name, near)
	}
	return command.UsageErrorf("%s: no interface %s: the interfaces are %s", verb, name, strings.Join(names, ", "))
}

func (r *doctorReport) print(w io.Writer, format string) error {
	if format == outputJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		obs.FillLists(r)
		return enc.Encode(r)
	}
	fmt.Fprintf(w, "kernel %s; default size of the flow table: %d flows\n\n", r.Kernel, r.MaxEntries)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "CHECK\tSTATE\tSINCE\tFOR")
	for _, c := range r.Checks {
		if c.State == kernel.StateUnknown {
			fmt.Fprintf(t, "%s\t%s: %s\t%s\t%s\n", c.Name, c.State, c.Found, orDash(c.Since), c.Purpose)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Name, c.State, orDash(c.Since), c.Purpose)
		for _, detail := range []struct{ what, text string }{
			{"found", c.Found}, {"instead", c.Instead}, {"remedy", c.Remedy},
		} {
			if detail.text != "" {
				fmt.Fprintf(t, "\t\t\t  %s: %s\n", detail.what, detail.text)
			}
		}
	}
	if i := r.Interface; i != nil {
		fmt.Fprintf(t, "\nINTERFACE\tKIND\tDRIVER\tMTU\tPROBE\n%s\t%s\t%s\t%d\t%s\n", i.Name, i.Kind, orDash(i.Driver), i.MTU, i.Mode)
		for _, note := range i.Notes {
			fmt.Fprintf(t, "\t%s\n", note)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nVERDICT  %s\n", r.Verdict.Text)
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
