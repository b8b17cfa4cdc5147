package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/view"
)

func newDelaysCommand() *cobra.Command {
	f := &flowsCommand{answers: answers{verb: "delays", columns: view.Merging.DelayColumns, extras: view.Merging.DelayExtras}}
	cmd := &cobra.Command{
		Use:   "delays [FILTER]",
		Short: "Show network time and server time of flows that carry PDM",
		Long: `Delays shows recent flows that carry PDM (RFC 8250), from the running agent: the time
that the peer took to answer (SERVER), the network round trip without that time
(NETWORK), and which of the two dominates. The times come from marks that both ends
insert into their IPv6 packets: median, 90th and 99th percentile. Loss, reordering and
duplicates come from the sequence numbers of the marks.

A row is a session of this host with a peer. --by groups rows: peer/64 by network,
peer_service by port of other hosts, local_service by port of this host, or any key of
flows --by. A narrow terminal omits percentiles and counts; --wide shows them. If the
peer began the conversation, the verdict calls it a client, and SERVER is the time
between an answer and its next request. If the initiator is unknown, ports decide.

Packets are marked only if the configuration of both ends names them:

` + term.Indent(delaysExamples(), "  ") + `
Filters are those of waymark flows; 'server > 40ms', 'network_p99 > 100ms' and
'lost > 0' select slow flows and flows with loss.`,
		Example: `  waymark delays
  waymark delays --by peer/64 --sort network
  waymark delays --by peer_service --since 5m
  waymark delays 'server > 100ms' --follow
  waymark delays -o jsonl | jq '{src, verdict}'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.runDelays(cmd, args) },
	}
	f.register(cmd, "session", "delay")
	return cmd
}

// delaysExamples are the least of a configuration that gives delays.
func delaysExamples() (all string) {
	for _, k := range list.Kinds() {
		if k.NoDelays != nil {
			all += k.Example
		}
	}
	return all
}

func (f *flowsCommand) runDelays(cmd *cobra.Command, args []string) error {
	if err := f.check(cmd, args); err != nil {
		return err
	}
	f.request.Filter = onlyMarked(f.request.Filter)
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	client := f.agent.client()
	if f.request.Follow {
		if err := f.explain(cmd, stderr, ""); err != nil {
			return err
		}
		return f.follow(cmd, func(a api.Answer) error {
			f.judge(&a)
			return f.print(stdout, stderr, a)
		})
	}
	answer, err := client.Flows(cmd.Context(), f.request)
	if err != nil {
		return err
	}
	f.judge(&answer)
	if len(answer.Rows) > 0 || f.out.format != outputTable {
		return f.print(stdout, stderr, answer)
	}
	if err := warn(stderr, answer); err != nil {
		return err
	}
	return f.explain(cmd, stderr, "no marked flow is remembered that is asked for: widen the filter or --since")
}

// onlyMarked is the user's filter, of marked flows.
func onlyMarked(filter string) string {
	if strings.TrimSpace(filter) == "" {
		return "pdm"
	}
	return "(" + filter + ") and pdm"
}

// judge puts loss and verdict into the JSON of each row.
func (f *flowsCommand) judge(a *api.Answer) {
	by, err := query.ParseBy(f.request.By)
	if err != nil {
		return // check came before
	}
	m := view.NewMerging(by)
	for i := range a.Rows {
		w := &a.Rows[i]
		for _, x := range f.extras(m, w) {
			value := []byte(x.Text)
			if !x.Number {
				value, _ = json.Marshal(x.Text) // of a string there is no error
			}
			if x.Text != "" && len(w.JSON) > 0 {
				w.JSON = fmt.Appendf(w.JSON[:len(w.JSON)-1], `,%q:%s}`, x.Name, value)
			}
		}
	}
}

// explain says why there are no rows; where marking itself is in order, it says
// otherwise.
func (f *flowsCommand) explain(cmd *cobra.Command, stderr io.Writer, otherwise string) error {
	status, err := f.agent.client().Status(cmd.Context())
	if err != nil {
		return err
	}
	text := ""
	for _, k := range list.Kinds() {
		if text == "" && k.NoDelays != nil {
			text = k.NoDelays(&status)
		}
	}
	if text == "" {
		text = otherwise
	}
	if text != "" {
		_, err = fmt.Fprintln(stderr, text)
	}
	return err
}
