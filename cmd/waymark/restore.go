package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/topology"
)

func newRestoreCommand() *cobra.Command {
	var pins bool
	var dir, file string
	c := &cobra.Command{
		Use:   "restore",
		Short: "Restore interface settings that a killed agent left reduced",
		Long: `An agent that marks packets reduces settings for MTU headroom: the IPv6 MTU,
gso_max_segs and MTUs of routes. Restore restores those that a killed agent left
reduced. It keeps settings that a running agent needs, and those that have been
changed since. Every agent does the same when it starts.

With --pins it instead takes off packet rules that an agent has left in effect
(gate.pin), which is not running any more. It looks for them in gate.pin_dir of
the configuration.`,
		Example: `  sudo waymark restore
  sudo waymark restore --pins`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pins {
				where := "directory " + dir
				if dir == "" {
					cfg, whose, err := configurationOf(cmd.Context(), file)
					if err != nil {
						return err
					}
					dir = gateservice.Section.Of(&cfg).PinDir
					where = fmt.Sprintf("directory %s (%s)", dir, whose)
				}
				return removePins(cmd.OutOrStdout(), dir, where)
			}
			k := headroom.New(headroom.Default(), headroom.Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
			restored, err := k.Recover()
			for _, r := range restored {
				fmt.Fprintln(cmd.OutOrStdout(), "restored", reductionText(r))
			}
			if err = errors.Join(err, k.Restore()); err != nil {
				return fmt.Errorf("restore: %w", err)
			}
			if len(restored) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to restore")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&pins, "pins", false, "take off packet rules that were left in effect")
	c.Flags().StringVar(&dir, "pin-dir", "", "`DIRECTORY` of the pins, instead of that of the configuration")
	c.Flags().StringVarP(&file, "config", "c", "", "look where the agent with the configuration in YAML `FILE` leaves packet rules; else that of the running agent, or "+packagedConfiguration)
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}

// pinDir is that of an agent without configuration.
func pinDir() string {
	cfg := config.Default()
	return gateservice.Section.Of(&cfg).PinDir
}

// removePins removes the pins of a directory. where: it, and who names it.
func removePins(out io.Writer, dir, where string) error {
	removed, err := datapath.RemovePins(dir)
	for _, what := range removed {
		fmt.Fprintln(out, "removed", what)
	}
	switch {
	case errors.Is(err, datapath.ErrPinsInUse):
		return fmt.Errorf("restore: %s: %w: stop the agent first", where, err)
	case err != nil:
		return fmt.Errorf("restore: %s: %w", where, err)
	case len(removed) == 0:
		fmt.Fprintln(out, "nothing to remove in", where)
	}
	return nil
}

// examinePins reports packet rules that are in effect without an agent.
func examinePins(dir string) kernel.Check {
	c := kernel.Check{Name: "pinned-rules", State: kernel.StateOK, Purpose: "no packet rules are in effect without an agent"}
	left, err := datapath.Pinned(dir)
	switch {
	case errors.Is(err, datapath.ErrPinsInUse): // an agent runs
	case errors.Is(err, fs.ErrPermission):
		c.State, c.Found, c.Remedy = kernel.StateDegraded, "unknown: "+dir+" can be checked by root only", "sudo waymark doctor"
	case err != nil:
		c.State, c.Found = kernel.StateDegraded, err.Error()
	case len(left) > 0:
		c.State, c.Found = kernel.StateDegraded, strings.Join(left, "; ")
		c.Remedy = "start an agent with gate.interfaces, or sudo waymark restore --pins"
		if dir != pinDir() {
			c.Remedy += " --pin-dir " + dir
		}
	}
	return c
}

// reductionText is "the IPv6 MTU of eth0 from 1484 to 1500".
func reductionText(r headroom.Reduction) string {
	setting := r.Setting
	if r.Route != "" {
		setting += " to " + r.Route
	}
	from := fmt.Sprint(r.From)
	if r.From == 0 {
		from = "that of the interface"
	}
	return fmt.Sprintf("the %s of %s from %d to %s", setting, r.Link, r.To, from)
}

// examineHeadroom reports settings that a killed agent left reduced.
func examineHeadroom() kernel.Check {
	c := kernel.Check{Name: "mtu-headroom", State: kernel.StateOK, Purpose: "interface settings that the agent reduces are restored"}
	left, err := headroom.Stale(headroom.DefaultFile)
	switch {
	case errors.Is(err, fs.ErrPermission):
		c.State, c.Found, c.Remedy = kernel.StateDegraded, "unknown: "+headroom.DefaultFile+" can be checked by root only", "sudo waymark doctor"
	case err != nil:
		c.State, c.Found = kernel.StateDegraded, err.Error()
	}
	for _, r := range left {
		if c.Found != "" {
			c.Found += "; "
		}
		c.Found += fmt.Sprintf("%s is left to be restored", reductionText(r))
		c.State, c.Remedy = kernel.StateDegraded, "sudo waymark restore, or start an agent"
	}
	return c
}

// chainNotes are the programs on an interface that may hide packets from the probe.
func chainNotes(ifindex uint32) (notes []string) {
	for _, direction := range []flow.Direction{flow.Ingress, flow.Egress} {
		names, err := datapath.Chain(int(ifindex), direction)
		if err != nil {
			return nil // no privilege: the checks say so
		}
		for i, name := range names {
			notes = append(notes, fmt.Sprintf("%s program %d: %s; when it ends the chain, later ones do not see the packet", direction, i+1, name))
		}
	}
	return notes
}
