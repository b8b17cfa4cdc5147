package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/topology"
)

func newRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore",
		Short: "Restore interface settings that a killed agent left reduced",
		Long: `An agent that marks packets reduces settings for MTU headroom: the IPv6 MTU,
gso_max_segs and MTUs of routes. Restore restores those that a killed agent left
reduced. It keeps settings that a running agent needs, and those that have been
changed since. Every agent does the same when it starts.`,
		Example: `  sudo waymark restore`,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
