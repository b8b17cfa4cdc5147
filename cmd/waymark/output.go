package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output formats of -o. Each verb offers some of them.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputJSONL = "jsonl"
	outputCSV   = "csv"
)

// outputFlag is -o, --output of a verb.
type outputFlag struct {
	format  string
	allowed []string
}

// register adds the flag; the first of the formats is the default.
func (o *outputFlag) register(cmd *cobra.Command, formats ...string) {
	o.format, o.allowed = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", "output format: "+strings.Join(formats, ", "))
	// The only error is a flag that does not exist, and it was made above.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Set implements pflag.Value.
func (o *outputFlag) Set(s string) error {
	if !slices.Contains(o.allowed, s) {
		return fmt.Errorf("want one of %s", strings.Join(o.allowed, ", "))
	}
	o.format = s
	return nil
}

// String implements pflag.Value.
func (o *outputFlag) String() string { return o.format }

// Type implements pflag.Value.
func (o *outputFlag) Type() string { return "format" }
