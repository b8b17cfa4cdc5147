package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/wire"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

func newLabCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Create a network of hosts on this machine from network namespaces",
		Long: `Lab creates hosts as network namespaces, connects them in a topology, and removes
them. Nothing outside these namespaces changes. Lab needs root.`,
		Example: `  waymark lab up chain
  waymark lab exec alpha -- ping -c 3 10.0.4.2
  waymark lab down`,
	}
	cmd.AddCommand(
		newLabUpCommand(), newLabDownCommand(), newLabListCommand(), newLabExecCommand(),
		newLabDemoCommand(), newLabExploreCommand(), newLabRelayCommand(),
	)
	return cmd
}

// labPrefix is --prefix of the verbs of lab.
func labPrefix(cmd *cobra.Command) *string {
	prefix := cmd.Flags().String("prefix", lab.DefaultPrefix, "prefix of the names of the network namespaces; labs with different prefixes coexist")
	_ = cmd.RegisterFlagCompletionFunc("prefix", completePrefixes)
	return prefix
}

func newLabUpCommand() *cobra.Command {
	about := ""
	for _, t := range lab.Topologies() {
		about += fmt.Sprintf("\n  %-6s %s", t, lab.About(t))
	}
	cfg := lab.Default()
	cmd := &cobra.Command{
		Use:       "up TOPOLOGY",
		Short:     "Create a lab",
		Long:      "Up creates a lab and prints its hosts. The topologies are:\n" + about,
		Example:   "  waymark lab up chain\n  waymark lab up chain --slow porthos=1ms\n  waymark lab up path --delay 20ms --loss-every 100",
		ValidArgs: lab.Topologies(),
		Args:      cobra.ExactArgs(1),
	}
	prefix := labPrefix(cmd)
	cmd.Flags().IntVar(&cfg.MTU, "mtu", cfg.MTU, "MTU of every link, in bytes")
	path := registerPathFlags(cmd)
	slow := registerSlowFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg.Topology, cfg.Prefix = args[0], *prefix
		_, err := path.config()
		if err != nil {
			return command.UsageErrorf("lab up: %w", err)
		}
		if cfg.Slow, err = slowHosts(*slow); err != nil {
			return command.UsageErrorf("lab up: %w", err)
		}
		if given := path.given(); cfg.Topology != "path" && len(given) > 0 {
			return command.UsageErrorf("lab up: --%s needs topology path: the links of %s do not delay or drop packets", given[0].Name, cfg.Topology)
		}
		l, err := lab.Up(cfg)
		if err != nil {
			return labError("up", err)
		}
		if cfg.Topology == "path" {
			if err := startRelay(l, path); err != nil {
				return labError("up", errors.Join(err, l.Down()))
			}
		}
		infos, err := lab.List()
		if err != nil {
			return labError("up", err)
		}
		return printLabs(cmd.OutOrStdout(), only(infos, cfg.Prefix))
	}
	return cmd
}

func newLabDownCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "down [TOPOLOGY]",
		Short: "Remove a lab",
		Long: `Down ends the processes on the hosts of a lab and removes its links, namespaces and
files. It also cleans up after a lab up that was killed. Without a lab it does nothing.`,
		ValidArgs: lab.Topologies(),
		Args:      cobra.MaximumNArgs(1),
	}
	prefix := labPrefix(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "remove every lab on this machine, with any prefix")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			if err := lab.CheckTopology(args[0]); err != nil {
				return labError("down", err)
			}
		}
		infos, err := lab.List()
		if err != nil {
			return labError("down", err)
		}
		prefixes := []string{*prefix}
		if all {
			prefixes = nil
			for _, i := range infos {
				prefixes = append(prefixes, i.Prefix)
			}
		} else if mine := only(infos, *prefix); len(args) == 1 && len(mine) == 1 && mine[0].Topology != "" && mine[0].Topology != args[0] {
			return labError("down", fmt.Errorf("the lab with prefix %q has topology %s, not %s: omit the topology to remove it anyway",
				*prefix, mine[0].Topology, args[0]))
		}
		var errs []error
		for _, p := range prefixes {
			errs = append(errs, lab.Down(p))
		}
		return labError("down", errors.Join(errs...))
	}
	return cmd
}

func newLabListCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the labs, with their hosts and addresses",
		RunE: func(cmd *cobra.Command, _ []string) error {
			infos, err := lab.List()
			if err != nil {
				return labError("list", err)
			}
			if out.format == outputJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				list := withStats(infos)
				obs.FillLists(&list)
				return enc.Encode(list)
			}
			return printLabs(cmd.OutOrStdout(), infos)
		},
	}
	out.register(cmd, outputTable, outputJSON)
	return cmd
}

func newLabExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exec [flags] HOST -- COMMAND [ARGUMENT]...",
		Short:   "Run a command on a host of a lab",
		Example: "  waymark lab exec alpha -- iperf3 -c 10.0.1.2",
		Args:    cobra.MinimumNArgs(2),

		ValidArgsFunction: completeHosts,
	}
	prefix := labPrefix(cmd)
	cmd.Flags().SetInterspersed(false) // what follows the host is the command's
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		l, err := lab.Open(*prefix)
		if err != nil {
			return labError("exec", err)
		}
		h, ok := l.Find(args[0])
		if !ok {
			var names []string
			for _, h := range l.Hosts() {
				names = append(names, h.Name)
			}
			return command.UsageErrorf("lab exec: unknown host %q: this lab has %s", args[0], strings.Join(names, ", "))
		}
		argv := args[1:]
		if argv[0] == "--" {
			argv = argv[1:]
		}
		if len(argv) == 0 {
			return command.UsageErrorf("lab exec: missing command: write it like: waymark lab exec %s -- ip address", h.Name)
		}
		return labError("exec", h.Exec(argv))
	}
	return cmd
}

// labError gives an error the exit code it deserves.
func labError(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lab.ErrConfig):
		return command.UsageErrorf("lab %s: %w", verb, err)
	}
	return fmt.Errorf("lab %s: %w", verb, err)
}

func only(infos []lab.Info, prefix string) []lab.Info {
	for _, i := range infos {
		if i.Prefix == prefix {
			return []lab.Info{i}
		}
	}
	return nil
}

// printLabs prints a line for each interface, and what relays did.
func printLabs(out io.Writer, infos []lab.Info) error {
	hosts := &term.Table{Columns: []term.Column{
		{Title: "HOST"}, {Title: "INTERFACE"}, {Title: "IPV4"}, {Title: "IPV6"}, {Title: "NETNS"}, {Title: "TOPOLOGY"}, {Title: "STATE"},
	}}
	for _, i := range infos {
		for _, h := range i.Hosts {
			for _, e := range h.Interfaces {
				hosts.Add(h.Name, e.Name, e.Addr4.String(), e.Addr6.String(), h.Netns, i.Topology, i.State)
			}
		}
		if len(i.Hosts) == 0 { // cut short before it said what it is
			hosts.Add("-", "-", "-", "-", i.Prefix+"*", "-", i.State)
		}
	}
	if err := hosts.Write(out, 0); err != nil {
		return err
	}
	return printRelays(out, withStats(infos))
}

// labWithStats is a lab and what its relay counted.
type labWithStats struct {
	lab.Info
	Wire *wire.Stats `json:"wire,omitempty"`
}

func withStats(infos []lab.Info) []labWithStats {
	all := []labWithStats{}
	for _, i := range infos {
		l := labWithStats{Info: i}
		if i.Relay != nil {
			// A relay that does not answer has ended: there is nothing to tell.
			if stats, err := lab.RelayStats(i.Prefix); err == nil {
				l.Wire = &stats
			}
		}
		all = append(all, l)
	}
	return all
}

func printRelays(out io.Writer, labs []labWithStats) error {
	t := &term.Table{Columns: []term.Column{
		{Title: "WIRE"},
		{Title: "FRAMES", Right: true},
		{Title: "DROPPED", Right: true},
		{Title: "DOUBLED", Right: true},
		{Title: "SWAPPED", Right: true},
		{Title: "LOST", Right: true},
		{Title: "LATE", Right: true},
	}}
	for _, l := range labs {
		if l.Wire == nil {
			continue
		}
		for _, way := range []struct {
			name string
			c    wire.Counts
		}{{"alpha to beta", l.Wire.AB}, {"beta to alpha", l.Wire.BA}} {
			n := func(v uint64) string { return strconv.FormatUint(v, 10) }
			t.Add(l.Prefix+" "+way.name, n(way.c.Frames), n(way.c.Dropped), n(way.c.Duplicated), n(way.c.Reordered), n(way.c.Lost()), term.Duration(way.c.LateMean))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return t.Write(out, 0)
}
