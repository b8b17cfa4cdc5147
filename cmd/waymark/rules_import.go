package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/gate/rules/nft"
	"github.com/waymark-net/waymark/internal/term"
)

func newRulesImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Translate block lists, and chains and sets of nftables, to packet rules",
	}
	cmd.AddCommand(newRulesImportListCommand(), newRulesImportNftCommand())
	return cmd
}

func newRulesImportListCommand() *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use:   "list FILE",
		Short: "Translate a block list to a set",
		Long: `List reads a block list: addresses, prefixes and ranges such as 192.0.2.1-192.0.2.9, one
per line, with comments behind # or ; (FireHOL netset, Spamhaus DROP as text or JSON
lines), or the output of ipset save, with timeouts. It prints a set without members that
others contain. FILE - is stdin. A rule file can also name the list:
  set blocked from "/etc/waymark/drop.txt"`,
		Example: `  waymark rules import list --set blocked drop.txt
  ipset save blocked | waymark rules import list --set blocked -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return importList(name, args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&name, "set", "imported", "`name` of the set")
	return cmd
}

func importList(set, file string, stdin io.Reader, stdout io.Writer) error {
	text, err := readText(file, stdin)
	if err != nil {
		return fmt.Errorf("read the block list: %w", err)
	}
	members, errs := rules.ReadList(file, strings.NewReader(text), time.Now())
	if errs != nil {
		return command.UsageError{Err: errs}
	}
	if len(members) == 0 {
		return command.UsageErrorf("%s: the block list has no address", file)
	}
	if !rules.ValidName(set) {
		return command.UsageErrorf("--set %s: write letters, digits, - and _", set)
	}
	_, err = fmt.Fprintln(stdout, &rules.Set{Name: set, Prefixes: members})
	return err
}

func newRulesImportNftCommand() *cobra.Command {
	chain := ""
	cmd := &cobra.Command{
		Use:   "nft FILE",
		Short: "Translate a chain or sets of nftables to rules",
		Long: `Nft reads what nft list ruleset prints, and translates one chain, the sets that it names
and its policy; or all sets of a text without chains, as nft list set prints it. It knows
addresses, ports, protocols, ICMP types, TCP flags, length, DSCP, VLAN and interfaces with
accept, drop, counter and limit rate over. What has no equivalent, such as connection
tracking, verdict maps and jumps, is reported with its line, and is a comment in the output;
the exit code is then 1. Examine these lines before you use the rules: behind a policy of
drop, a missing rule drops packets. FILE - is stdin.`,
		Example: `  nft list ruleset | waymark rules import nft -
  nft list set inet filter blocked | waymark rules import nft -
  waymark rules import nft --chain filter/input ruleset.nft`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return importNft(chain, args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&chain, "chain", "", "name of the `chain`, or table/chain (default: the only one at a hook for incoming packets)")
	return cmd
}

func importNft(chain, file string, stdin io.Reader, stdout, stderr io.Writer) error {
	text, err := readText(file, stdin)
	if err != nil {
		return fmt.Errorf("read the rule set of nftables: %w", err)
	}
	translated, missing, err := nft.Translate(text, chain, time.Now())
	if err != nil {
		return command.UsageErrorf("%s: %w", file, err)
	}
	if _, err := io.WriteString(stdout, translated); err != nil {
		return err
	}
	if len(missing) == 0 {
		return nil
	}
	for _, m := range missing {
		if _, err := fmt.Fprintf(stderr, "waymark: %s: %s\n", file, m); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %s without an equivalent: they are comments in the output", file, term.Number(uint64(len(missing)), "lines"))
}
