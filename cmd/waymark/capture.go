package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/flow"
	gatecore "github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/term"
)

// captureCommand is one capture.
type captureCommand struct {
	agent                         agentFlag
	out                           outputFlag
	file, iface                   string
	count                         uint64
	snap                          uint32
	dropped, sampled, passed, all bool

	filter *rules.Ruleset // one rule, whose conditions packets have; nil: all
	text   string         // of the conditions

	captured, missed uint64
}

func newCaptureCommand() *cobra.Command {
	c := &captureCommand{}
	cmd := &cobra.Command{
		Use:   "capture [CONDITIONS]",
		Short: "Capture packets at the gate, with verdict and rule",
		Long: `Capture shows packets at the gate of the running agent, or writes them to a pcapng file,
which Wireshark and tshark open. Each packet has its verdict (epb_verdict) and, as a comment,
the rule, the reason, and what the network card knew of it.

Without arguments these are the packets that rules drop, and those that rules with the action
sample name. CONDITIONS are those of a rule, such as udp dst port 53; then they are all
packets for which they hold: while the capture runs, the rule sample CONDITIONS stands in
front of all others. --all has every packet that meets the rules, so before their verdict;
--passed those that go on, so after it. Other packets than those wanted are dropped from the
capture by this command, not in the kernel.

Only packets of the interfaces in gate.interfaces are captured, as they arrive, at most
gate.capture_rate per second. How many were not captured is reported at the end, and in the
file. Only root and the user of the agent may capture. A reader that is too slow misses packets.`,
		Example: `  waymark capture
  waymark capture --dropped -w dropped.pcapng -c 1000
  waymark capture udp dst port 53 -w - | wireshark -k -i -`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.parse(strings.Join(args, " ")); err != nil {
				return err
			}
			return c.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&c.file, "write", "w", "", "write a pcapng `FILE`; - is stdout")
	flags.StringVarP(&c.iface, "iface", "i", "", "only packets that arrive on `IFACE`")
	flags.Uint64VarP(&c.count, "count", "c", 0, "end after `N` packets; 0: when interrupted")
	flags.Uint32VarP(&c.snap, "snaplen", "s", gatecore.MaxSnap, "capture the first `BYTES` of each packet")
	flags.BoolVar(&c.dropped, "dropped", false, "only packets that rules drop")
	flags.BoolVar(&c.sampled, "sampled", false, "only packets that rules sample")
	flags.BoolVar(&c.passed, "passed", false, "only packets that go on")
	flags.BoolVar(&c.all, "all", false, "all packets that meet the rules")
	cmd.MarkFlagsMutuallyExclusive("dropped", "sampled", "passed", "all")
	c.out.register(cmd, outputTable, outputJSONL)
	cmd.MarkFlagsMutuallyExclusive("write", "output")
	c.agent.register(cmd)
	return cmd
}

// parse reads the conditions as those of a rule.
func (c *captureCommand) parse(text string) error {
	if c.snap == 0 || c.snap > gatecore.MaxSnap {
		return command.UsageErrorf("capture: --snaplen %d: want 1 to %d", c.snap, gatecore.MaxSnap)
	}
	if text == "" {
		return nil
	}
	rs, _, err := rules.Parse("conditions", "sample "+text, rules.Options{})
	if err != nil {
		return command.UsageError{Err: fmt.Errorf("capture: %w", err)}
	}
	if len(rs.Rules) != 1 || rs.Rules[0].DryRun || !rs.Rules[0].Until.IsZero() {
		return command.UsageErrorf("capture: %q: want conditions only, such as udp dst port 53", text)
	}
	c.filter, c.text = rs, text
	return nil
}

// path is the stream that has what is wanted.
func (c *captureCommand) path() string {
	switch {
	case c.dropped:
		return gate.DroppedPath
	case c.sampled, c.isByRule():
		return gate.SampledPath
	case c.passed, c.all:
		return gate.AllPath
	}
	return gate.NotablePath
}

// isByRule: the kernel finds the packets, by a rule that is there while the capture runs.
func (c *captureCommand) isByRule() bool {
	return c.filter != nil && !c.dropped && !c.sampled && !c.passed && !c.all
}

// wants reports whether a packet of the stream is wanted.
func (c *captureCommand) wants(p *gate.Captured) bool {
	if c.iface != "" && p.Iface != c.iface || c.passed && p.Verdict != "pass" {
		return false
	}
	if c.filter == nil {
		return true
	}
	return c.filter.Matches(&c.filter.Rules[0].Match, packetOf(p), time.Now())
}

// packetOf is what rules see of a captured packet.
func packetOf(p *gate.Captured) *rules.Packet {
	q := rules.ReadEthernet(frameOf(p))
	if p.NoLink {
		q = rules.ReadIP(p.Data)
	}
	q.Iface = p.Iface
	return q
}

// errEnough ends a capture.
var errEnough = errors.New("enough")

func (c *captureCommand) run(cmd *cobra.Command) (err error) {
	ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	before, err := c.totals(ctx)
	if err != nil {
		return err
	}
	out, err := c.open(ctx, cmd.OutOrStdout())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	if c.isByRule() {
		remove, err := c.addRule(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = remove() }() // it ends by itself, too
	}
	err = c.agent.client().Stream(ctx, c.path(), func(event json.RawMessage) error { return c.take(event, out) })
	if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
		return err
	}
	return c.finish(cmd, out, before)
}

// take takes one packet.
func (c *captureCommand) take(event json.RawMessage, out captureOutput) error {
	var p gate.Captured
	if err := json.Unmarshal(event, &p); err != nil {
		return err
	}
	c.missed += p.Missed
	if !c.wants(&p) {
		return nil
	}
	p.Data = p.Data[:min(len(p.Data), int(c.snap))]
	if err := out.write(&p); err != nil {
		return err
	}
	if c.captured++; c.captured == c.count {
		return errEnough
	}
	return nil
}

// addRule has the kernel sample what is wanted; an hour later at the latest the rule is gone.
func (c *captureCommand) addRule(ctx context.Context) (remove func() error, err error) {
	var done gate.Changed
	client := c.agent.client()
	if err := client.Set(ctx, gate.RulesPath, gate.Change{Add: "sample " + c.text + " for 1h\n", First: true}, &done); err != nil {
		return nil, err
	}
	return func() error {
		var change gate.Change
		for _, r := range done.Added {
			change.Delete = append(change.Delete, r.ID)
		}
		return client.Set(context.WithoutCancel(ctx), gate.RulesPath, change, &done)
	}, nil
}

// totals are what was captured so far, by anybody.
func (c *captureCommand) totals(ctx context.Context) (gatecore.Captures, error) {
	var list gate.Rules
	err := c.agent.client().Page(ctx, gate.RulesPath, &list)
	return list.Captures, err
}

// finish reports what was not captured.
func (c *captureCommand) finish(cmd *cobra.Command, out captureOutput, before gatecore.Captures) error {
	after, err := c.totals(context.WithoutCancel(cmd.Context()))
	if err != nil {
		after = before // the agent is gone: what it lost is not known
	}
	limited, full := after.Limited-before.Limited, after.Full-before.Full
	if err := out.finish(limited + full + c.missed); err != nil {
		return err
	}
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "%s captured\n", term.Number(c.captured, "packets"))
	for _, lost := range []struct {
		n   uint64
		why string
	}{
		{limited, "beyond gate.capture_rate"},
		{full, "found the ring of the kernel full"},
		{c.missed, "came faster than this command reads"},
	} {
		if lost.n > 0 {
			fmt.Fprintf(w, "%s not captured: %s\n", term.Number(lost.n, "packets"), lost.why)
		}
	}
	return nil
}

// captureOutput is where packets go.
type captureOutput interface {
	write(*gate.Captured) error
	finish(lost uint64) error // the end of a capture that did not fail
	close() error
}

// open opens the output.
func (c *captureCommand) open(ctx context.Context, stdout io.Writer) (captureOutput, error) {
	switch c.file {
	case "":
		if c.out.format == outputJSONL {
			return captureLines{func(p *gate.Captured) error { return json.NewEncoder(stdout).Encode(p) }}, nil
		}
		return captureLines{func(p *gate.Captured) error {
			_, err := fmt.Fprintln(stdout, captureLine(p))
			return err
		}}, nil
	case "-":
		if term.IsTerminal(stdout) {
			return nil, command.UsageErrorf("capture: -w - would write a pcapng file to the terminal: name a file, or pipe it")
		}
		return newCaptureFile(ctx, c, nopCloser{stdout})
	}
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return newCaptureFile(ctx, c, f)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// captureLines writes a line for each packet.
type captureLines struct{ line func(*gate.Captured) error }

func (l captureLines) write(p *gate.Captured) error { return l.line(p) }
func (captureLines) finish(uint64) error            { return nil }
func (captureLines) close() error                   { return nil }

// packetText is what rules see of a packet, in a few words.
func packetText(p *rules.Packet) string {
	if !p.Src.IsValid() {
		return "not IP, or damaged"
	}
	src, dst, proto := p.Src.String(), p.Dst.String(), "ip"
	if p.HasPorts {
		src, dst = netip.AddrPortFrom(p.Src, p.Sport).String(), netip.AddrPortFrom(p.Dst, p.Dport).String()
	}
	if p.HasProto {
		proto = flow.ProtoName(p.Proto)
	}
	text := fmt.Sprintf("%s %s > %s len %d", proto, src, dst, p.Length)
	if p.HasTCPFlags {
		text += " " + flow.TCPFlagNames(uint16(p.TCPFlags))
	}
	if p.HasICMPType {
		text += fmt.Sprintf(" type %d", p.ICMPType)
	}
	if p.Fragment {
		text += " fragment"
	}
	return text
}

// captureLine is a packet in one line.
func captureLine(p *gate.Captured) string {
	line := fmt.Sprintf("%s %s %s %s", p.Time.Local().Format("15:04:05.000000"), p.Iface, p.Verdict, packetText(packetOf(p)))
	for _, r := range []struct {
		name string
		rule *gate.CaptureRef
	}{{"", p.Rule}, {"sampled by ", p.Sampled}} {
		if r.rule != nil {
			line += fmt.Sprintf("  [%s%d: %s]", r.name, r.rule.ID, r.rule.Text)
		}
	}
	return line
}
