// Command waymark is the agent and everything a user asks of it: one file per
// verb, each a newXxxCommand that parses flags and calls a package of internal/.
// Input: arguments, WAYMARK_… variables and configuration files. Output: data on
// stdout, logs and progress on stderr, and an exit code from exit.go.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/stage/list"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root, started := newRootCommand()
	return command.Execute(root, started, args, stdin, stdout, stderr)
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
		newPointsCommand(),
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
	return root, command.Finish(root, versionText)
}
