package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
)

// socketVariable sets the socket for the agent and for those who ask it.
const socketVariable = "WAYMARK_API_SOCKET"

// agentFlag is --socket of the verbs that ask a running agent.
type agentFlag struct{ socket string }

func (a *agentFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", "",
		"`PATH` of the agent's unix socket (default: "+socketVariable+", else "+config.Default().API.Socket+")")
}

func (a *agentFlag) client() *api.Client { return api.NewClient(a.path()) }

func (a *agentFlag) path() string {
	return cmp.Or(a.socket, os.Getenv(socketVariable), config.Default().API.Socket)
}
