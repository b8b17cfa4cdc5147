package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/internal/verdict"
)

// whyCommand is waymark why.
type whyCommand struct {
	agent   agentFlag
	out     outputFlag
	request api.WhyRequest
}

func newWhyCommand() *cobra.Command {
	y := &whyCommand{}
	cmd := &cobra.Command{
		Use:   "why [FILTER]",
		Short: "Say what is slow or broken: the server, a hop, a link, a rule",
		Long: `Why says what is wrong in a time range, in at most seven sentences, worst first, each with
its numbers and the command that shows the rows:

  server_slow      a server takes most of the time of its service, and more than usual (PDM)
  path_delay       a hop or a path adds delay (IOAM, PDM, TCP handshakes)
  path_loss        a hop or a path loses packets (counts at several interfaces, PDM, IOAM)
  link_full        a link is near its speed, and the flow with the largest part in it
  unanswered       a service does not answer SYN
  retransmissions  a host sends TCP segments again
  gate_drops       a rule of the gate drops packets
  agent_losses     the agent itself lost packets or records

What follows from something else is shown below it. When nothing stands out, why says so and
lists what it examined. With a filter, only rules about flows apply. The thresholds are the
section why of the configuration.`,
		Example: `  waymark why
  waymark why --since 1h
  waymark why --since 14:00 --until 14:10 host 10.0.4.2
  waymark why -o jsonl | jq -r .text`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return y.run(cmd, args) },
	}
	y.out.register(cmd, outputTable, outputJSON, outputJSONL)
	flags := cmd.Flags()
	flags.StringVarP(&y.request.Filter, "filter", "f", "", "examine only flows that match the filter `EXPR`; --filter may be omitted")
	flags.StringVar(&y.request.Since, "since", "10m", "examine what was counted since `TIME`: 90s, 5m, 1d, 09:50, or a date and time")
	flags.StringVar(&y.request.Until, "until", "", "and until `TIME`, written likewise; now when omitted")
	y.agent.register(cmd)
	cmd.ValidArgsFunction = completeFilter
	return cmd
}

func (y *whyCommand) run(cmd *cobra.Command, args []string) (err error) {
	if y.request.Filter, err = filterOf(cmd, y.request.Filter, args); err != nil {
		return err
	}
	now := time.Now()
	if err := absoluteTimes("why", now, &y.request.Since, &y.request.Until); err != nil {
		return err
	}
	if _, _, err := y.request.Range(now); err != nil {
		return command.UsageErrorf("why: %w", err)
	}
	var a verdict.Answer
	if err := y.agent.client().Why(cmd.Context(), y.request, &a); err != nil {
		return err
	}
	return y.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), &a)
}

func (y *whyCommand) print(stdout, stderr io.Writer, a *verdict.Answer) error {
	enc := json.NewEncoder(stdout)
	switch y.out.format {
	case outputJSON:
		enc.SetIndent("", "  ")
		return enc.Encode(a)
	case outputJSONL:
		for i := range a.Verdicts {
			if err := enc.Encode(&a.Verdicts[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range a.Verdicts {
		if err := printVerdict(stdout, i+1, &a.Verdicts[i]); err != nil {
			return err
		}
	}
	if len(a.Verdicts) > 0 {
		_, err := fmt.Fprintln(stderr, a.Summary)
		return err
	}
	return printExamined(stdout, a)
}

// printVerdict writes a verdict: the sentence, and below it what supports it.
func printVerdict(w io.Writer, n int, v *verdict.Verdict) error {
	text := fmt.Sprintf("%d. %s, %s: %s.\n", n, v.Kind, v.Severity, term.Printable(v.Text))
	for _, e := range v.Evidence {
		text += "   " + term.Printable(e) + "\n"
	}
	for _, c := range v.Consequences {
		text += fmt.Sprintf("   from it follows %s: %s\n", c.Kind, term.Printable(c.Text))
	}
	if v.Others > 0 {
		text += fmt.Sprintf("   and %s like it\n", term.Number(uint64(v.Others), "more verdicts"))
	}
	if v.Command != "" {
		text += "   " + term.Printable(v.Command) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// printExamined says that nothing is wrong, and how that is known.
func printExamined(w io.Writer, a *verdict.Answer) error {
	if _, err := fmt.Fprintln(w, a.Summary); err != nil {
		return err
	}
	if len(a.Examined) == 0 {
		return nil
	}
	t := &term.Table{Columns: []term.Column{{Title: "RULE"}, {Title: "COUNT", Right: true}, {Title: "EXAMINED"}}}
	for _, m := range a.Examined {
		what := m.What
		if m.Note != "" {
			what += "; " + m.Note
		}
		t.Add(string(m.Kind), term.Count(m.Count), what)
	}
	return t.Write(w, 0)
}
