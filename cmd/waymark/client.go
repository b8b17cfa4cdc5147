package main

import (
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

func (a *agentFlag) client() *api.Client {
	path := a.socket
	if path == "" {
		path = os.Getenv(socketVariable)
	}
	if path == "" {
		path = config.Default().API.Socket
	}
	return api.NewClient(path)
}
