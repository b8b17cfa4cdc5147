package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

func newRulesImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Translate block lists to sets of packet rules",
	}
	cmd.AddCommand(newRulesImportListCommand())
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
		return usageError{errs}
	}
	if len(members) == 0 {
		return usageErrorf("%s: the block list has no address", file)
	}
	if !rules.ValidName(set) {
		return usageErrorf("--set %s: write letters, digits, - and _", set)
	}
	_, err = fmt.Fprintln(stdout, &rules.Set{Name: set, Prefixes: members})
	return err
}
