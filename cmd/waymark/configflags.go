package main

import (
	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
)

// configFlags are the flags of verbs that need the whole configuration of an agent.
type configFlags struct{ command.Configuration }

// agentKeys are keys that only an agent has.
var agentKeys = []command.KeyFlag{
	{Name: "interface", Short: "i", Key: "interfaces", Usage: "attach to interface `IFACE`: a name or a glob; IFACE:ingress or IFACE:egress for one direction; may be repeated"},
	{Name: "exclude", Key: "exclude", Usage: "do not attach to interface `IFACE`, a name or a glob; may be repeated"},
	{Name: "netns", Key: "netns", Usage: "also attach in network namespace `NAME`; all: in every one; may be repeated"},
	{Name: "probe", Key: "probe", Usage: "count packets with `PROBE`: auto, ebpf or afpacket"},
}

func (c *configFlags) register(cmd *cobra.Command) {
	c.Register(cmd, agentKeys...)
	_ = cmd.RegisterFlagCompletionFunc("interface", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return present(), noFiles
	})
	_ = cmd.RegisterFlagCompletionFunc("netns", completeNamespaces)
}
