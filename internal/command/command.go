// Package command is what the command lines of all programs have in common: how a line is run, what is said about mistakes
// in it, exit codes, flags of the configuration, logging and messages to systemd. Input: a tree of commands, arguments.
// Output: an exit code. Callers: cmd/waymark, and internal/analyze/verbs for cmd/waymark-analyze.
package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Execute runs one command line of a tree that Finish has completed, and returns its exit code. An error is printed here,
// once, and nowhere else.
func Execute(root *cobra.Command, started *bool, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if isCompletion(args) {
		plainUsage(root)
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return ExitOK
	}
	if !*started {
		// The verb never ran: cobra refused a flag or an argument.
		err = UsageErrorf("%w; see %s --help", clarify(cmd, args, err), cmd.CommandPath())
	}
	if !errors.Is(err, ErrReported) {
		fmt.Fprintf(stderr, "waymark: %v\n", err)
	}
	return ExitCode(err)
}

// Finish gives the command and every one below it what all have in common: arguments only where a command names them, an
// error for an unknown verb, and the note that a verb was reached, which started is.
func Finish(root *cobra.Command, version func() string) (started *bool) {
	started = new(bool)
	finish(root, started, version)
	return started
}

func finish(c *cobra.Command, started *bool, version func() string) {
	for _, sub := range c.Commands() {
		finish(sub, started, version)
	}
	if !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(cmd *cobra.Command, args []string) error { return runGroup(cmd, args, version) }
		return
	}
	if c.Args == nil {
		c.Args = cobra.NoArgs
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	c.Args = arguments(c.Args)
	if inner := c.RunE; inner != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return inner(cmd, args)
		}
	}
}

// runGroup answers for a command that only holds others. The root shows its
// help; the rest want a verb.
func runGroup(cmd *cobra.Command, args []string, text func() string) error {
	if len(args) == 0 {
		if cmd.HasParent() {
			return fmt.Errorf("%s: missing command: write %s and one of %s", verbOf(cmd), cmd.CommandPath(), strings.Join(Verbs(cmd), ", "))
		}
		// Not cobra's own --version: with its templates the linker keeps every
		// method of every type, 3.4 MB.
		if version, err := cmd.Flags().GetBool("version"); err != nil || !version {
			return errors.Join(err, cmd.Help())
		}
		_, err := io.WriteString(cmd.OutOrStdout(), text())
		return err
	}
	return UnknownCommand(cmd, args)
}

// isCompletion reports whether a shell asks for completions.
func isCompletion(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// plainUsage takes away the backticks that name the argument of a flag: they are
// shown with the flag's description otherwise.
func plainUsage(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, sub := range cmd.Commands() {
		plainUsage(sub)
	}
}
