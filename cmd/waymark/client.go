package main

import (
	"cmp"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
)

// socketVariable sets the socket for the agent and for those who ask it.
const socketVariable = "WAYMARK_API_SOCKET"

// defaultSocket is read once for the help of all verbs.
var defaultSocket = sync.OnceValue(func() string { return config.Default().API.Socket })

// agentFlag is --socket of the verbs that ask a running agent.
type agentFlag struct{ socket string }

func (a *agentFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", "",
		"`PATH` of the agent's unix socket (default: "+socketVariable+", else "+defaultSocket()+")")
}

func (a *agentFlag) client() *api.Client { return api.NewClient(a.path()) }

func (a *agentFlag) path() string {
	return cmp.Or(a.socket, os.Getenv(socketVariable), defaultSocket())
}
