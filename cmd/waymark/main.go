// Command waymark is the agent and everything a user asks of it: one file per
// verb, each a newXxxCommand that parses flags and calls a package of internal/.
// Input: arguments, WAYMARK_… variables and configuration files. Output: data on
// stdout, logs and progress on stderr, and an exit code from exit.go.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/waymark-net/waymark/internal/stage/list"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code. An error is printed
// here, once, and nowhere else.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root, started := newRootCommand()
	if isCompletion(args) {
		plainUsage(root)
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	if !*started {
		// The verb never ran: cobra refused a flag or an argument.
		err = usageErrorf("%w; see %s --help", clarify(cmd, args, err), cmd.CommandPath())
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintf(stderr, "waymark: %v\n", err)
	}
	return exitCode(err)
}

// newRootCommand builds the tree of verbs. started tells, after the run, whether
// a verb was reached.
func newRootCommand() (root *cobra.Command, started *bool) {
	root = &cobra.Command{
		Use:   "waymark",
		Short: "See every flow on this host: is it the network or the server?",
		Long: `Waymark counts every packet on the interfaces of a Linux host in the kernel, by
flow. It shows the flows on the command line, and exports them as IPFIX, OTLP, JSON
lines and Prometheus metrics, and to ClickHouse.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(
		newAnalyzeCommand(),
		newDecodeCommand(),
		newDoctorCommand(),
		newConfigCommand(),
		newConsoleCommand(),
		newDelaysCommand(),
		newFlowsCommand(),
		newHintsCommand(),
		newJoinCommand(),
		newLabCommand(),
		newRestoreCommand(),
		newRulesCommand(),
		newCaptureCommand(),
		newRunCommand(),
		newStatusCommand(),
		newTapCommand(),
		newTopCommand(),
		newTopologyCommand(),
		newVersionCommand(),
		newWhyCommand(),
	)
	for _, k := range list.Kinds() {
		for _, v := range k.Verbs {
			root.AddCommand(newStageCommand(v))
		}
	}
	root.SetHelpCommand(newHelpCommand())
	root.InitDefaultHelpCmd()
	root.Flags().BoolP("version", "V", false, "print the version and exit")
	root.InitDefaultCompletionCmd()
	started = new(bool)
	finish(root, started)
	return root, started
}

// finish gives every command below c what all have in common: arguments only
// where a command names them, an error for an unknown verb, and the note that a
// verb was reached.
func finish(c *cobra.Command, started *bool) {
	for _, sub := range c.Commands() {
		finish(sub, started)
	}
	if !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = runGroup
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
func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if cmd.HasParent() {
			return fmt.Errorf("%s: missing command: write %s and one of %s", verbOf(cmd), cmd.CommandPath(), strings.Join(verbs(cmd), ", "))
		}
		// Not cobra's own --version: with its templates the linker keeps every
		// method of every type, 3.4 MB.
		if version, err := cmd.Flags().GetBool("version"); err != nil || !version {
			return errors.Join(err, cmd.Help())
		}
		_, err := io.WriteString(cmd.OutOrStdout(), versionText())
		return err
	}
	return unknownCommand(cmd, args)
}
