package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/gate/rules"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/term"
)

func newRulesExplainCommand() *cobra.Command {
	e := &rulesExplain{}
	cmd := &cobra.Command{
		Use:   "explain PACKET",
		Short: "Show which rule decides about a packet, or about those of a capture",
		Long: `Explain applies the rules and bans of the running agent to a packet, or the rules of a file
(--rules), and shows each rule that matches and what becomes of the packet. PACKET is one of
  a description with the words of rules: src 192.0.2.1 tcp dst port 443 syn
  bytes in hexadecimal, of an Ethernet frame or an IP packet
  a capture: a pcap or pcapng file, or - for stdin
Of a capture it shows how many packets each rule counted and decided about; limits use
the times in the file. A description leaves the rest unknown, and conditions about what
is not known do not hold; such a packet has 60 bytes. No packet exceeds a limit unless
it is of a capture.`,
		Example: `  waymark rules explain src 192.0.2.1 udp dst port 53
  waymark rules explain --rules /etc/waymark/rules src 192.0.2.1 dst 198.51.100.2 tcp dst port 443 syn
  waymark rules explain --rules /etc/waymark/rules trace.pcapng`,
		Args: cobra.MinimumNArgs(1),
		RunE: e.run,
	}
	cmd.Flags().StringVar(&e.file, "rules", "", "rule `file`; empty: what is in effect in the running agent")
	e.agent.register(cmd)
	e.out.register(cmd, outputTable, outputJSON)
	return cmd
}

type rulesExplain struct {
	file  string
	agent agentFlag
	out   outputFlag
}

func (e *rulesExplain) run(cmd *cobra.Command, args []string) error {
	text := strings.Join(args, " ")
	if isCapture(args) {
		return e.capture(cmd, text)
	}
	packet, isHex := rules.ParseHex(text)
	if !isHex {
		var err error
		if packet, err = rules.ParsePacket(text); err != nil {
			return command.UsageError{Err: err}
		}
	}
	x, err := e.explainer(cmd)
	if err != nil {
		return err
	}
	ban := x.ban(packet)
	if ban != nil && e.out.format == outputJSON {
		return writeRulesJSON(cmd.OutOrStdout(), decisionJSON{Verdict: "drop", Ban: ban, Matched: []ruleJSON{}, FlowRecord: true})
	}
	if ban != nil {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "drop: %s is banned, %s; the packet meets no rule\n", ban.Prefix, untilText(ban.Until))
		return err
	}
	d := x.rules.Decide(packet, rules.State{Now: time.Now()})
	if e.out.format == outputJSON {
		return writeRulesJSON(cmd.OutOrStdout(), decisionOf(d))
	}
	return x.writeDecision(cmd.OutOrStdout(), packet, d)
}

// isCapture reports whether arguments that are a packet name a file of packets.
func isCapture(args []string) bool {
	return len(args) == 1 && (args[0] == "-" || command.IsFile(args[0]))
}

// explainer is that of the file, or of the agent.
func (e *rulesExplain) explainer(cmd *cobra.Command) (*explainer, error) {
	if e.file == "" {
		return newLiveExplainer(cmd.Context(), &e.agent)
	}
	rs, _, err := readRules(e.file, nil)
	return &explainer{rules: rs}, err
}

type decisionJSON struct {
	Verdict    string     `json:"verdict"`
	Ban        *gate.Ban  `json:"ban,omitempty"` // because of which the packet meets no rule
	Rule       *ruleJSON  `json:"rule"`          // that decided; null: none
	Matched    []ruleJSON `json:"matched"`
	FlowRecord bool       `json:"flow_record"`
}

func decisionOf(d rules.Decision) decisionJSON {
	answer := decisionJSON{Verdict: d.Verdict.String(), Matched: []ruleJSON{}, FlowRecord: !d.NoFlow}
	if d.Rule != nil {
		r := ruleOf(d.Rule)
		answer.Rule = &r
	}
	for _, r := range d.Counted {
		answer.Matched = append(answer.Matched, ruleOf(r))
	}
	return answer
}

func (x *explainer) writeDecision(w io.Writer, p *rules.Packet, d rules.Decision) error {
	line := "pass: no rule decides about the packet"
	switch {
	case p.Family == 0:
		line = "pass: rules apply to IP packets only"
	case d.Rule != nil:
		line = fmt.Sprintf("%s: decided by %s", d.Verdict, x.name(d.Rule))
	}
	if d.NoFlow {
		line += "; no flow record"
	}
	if _, err := fmt.Fprintln(w, line); err != nil || len(d.Counted) == 0 {
		return err
	}
	t := &term.Table{Columns: []term.Column{{Title: x.title(), Right: true}, {Title: "EFFECT"}, {Title: "RULE", Least: 30}}}
	for _, r := range d.Counted {
		t.Add(x.number(r), effect(r, d), r.Text)
	}
	return t.Write(w, term.Width(w))
}

// effect is what a rule that matched did to the packet.
func effect(r *rules.Rule, d rules.Decision) string {
	switch {
	case r == d.Rule:
		return "decides"
	case r.DryRun:
		return "counts (dry run)"
	case r.Action == rules.ActionLimit:
		return "within the limit"
	case r.Action == rules.ActionCount:
		return "counts"
	}
	return r.Action.String()
}

// capture applies the rules to each packet of a file.
func (e *rulesExplain) capture(cmd *cobra.Command, name string) error {
	x, err := e.explainer(cmd)
	if err != nil {
		return err
	}
	r, closeFile, err := openCapture(name, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer closeFile()
	sum := newRuleSums(x)
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return captureError(name, err)
		}
		sum.add(f, r.Interface(f.Iface))
	}
	if e.out.format == outputJSON {
		return writeRulesJSON(cmd.OutOrStdout(), sum.json())
	}
	return sum.write(cmd.OutOrStdout())
}

// ruleSums are what rules did with the packets of a capture.
type ruleSums struct {
	*explainer
	buckets          *rules.Buckets
	frames, skipped  uint64
	banned           uint64
	verdicts         [3]uint64
	counted, decided map[*rules.Rule]uint64
}

func newRuleSums(x *explainer) *ruleSums {
	return &ruleSums{explainer: x, buckets: rules.NewBuckets(), counted: map[*rules.Rule]uint64{}, decided: map[*rules.Rule]uint64{}}
}

func (s *ruleSums) add(f capfile.Frame, iface string) {
	var p *rules.Packet
	switch {
	case f.Link == capfile.LinkEthernet:
		p = rules.ReadEthernet(f.Data)
	case f.Link.IP():
		p = rules.ReadIP(f.Data)
	default:
		s.skipped++
		return
	}
	s.frames++
	p.Iface = iface
	if s.ban(p) != nil {
		s.banned++
		s.verdicts[rules.VerdictDrop]++
		return
	}
	d := s.rules.Decide(p, rules.State{Now: f.Time, Exceeds: func(r *rules.Rule, p *rules.Packet) bool {
		return s.buckets.Exceeds(r, p, f.Time)
	}})
	s.verdicts[d.Verdict]++
	for _, r := range d.Counted {
		s.counted[r]++
	}
	if d.Rule != nil {
		s.decided[d.Rule]++
	}
}

type ruleSumJSON struct {
	ruleJSON
	Packets uint64 `json:"packets"`
	Decided uint64 `json:"decided"`
}

func (s *ruleSums) json() any {
	list := []ruleSumJSON{}
	for _, r := range s.rules.Rules {
		list = append(list, ruleSumJSON{ruleOf(r), s.counted[r], s.decided[r]})
	}
	return struct {
		Frames    uint64        `json:"frames"`
		Skipped   uint64        `json:"unknown_link"`
		Passed    uint64        `json:"passed"`
		Dropped   uint64        `json:"dropped"`
		Banned    uint64        `json:"banned"` // of those that were dropped
		SynCookie uint64        `json:"syncookie"`
		Rules     []ruleSumJSON `json:"rules"`
	}{s.frames, s.skipped, s.verdicts[rules.VerdictPass], s.verdicts[rules.VerdictDrop], s.banned, s.verdicts[rules.VerdictSynCookie], list}
}

func (s *ruleSums) write(w io.Writer) error {
	text := fmt.Sprintf("%s: %s passed, %s dropped, %s to SYN cookies", term.Number(s.frames, "frames"),
		term.Count(s.verdicts[rules.VerdictPass]), term.Count(s.verdicts[rules.VerdictDrop]), term.Count(s.verdicts[rules.VerdictSynCookie]))
	if s.banned > 0 {
		text += fmt.Sprintf("; bans dropped %s", term.Count(s.banned))
	}
	if s.skipped > 0 {
		text += fmt.Sprintf("; %s of an unknown link type skipped", term.Count(s.skipped))
	}
	if _, err := fmt.Fprintln(w, text); err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{
		{Title: s.title(), Right: true}, {Title: "PACKETS", Right: true}, {Title: "DECIDED", Right: true}, {Title: "RULE", Least: 30},
	}}
	for _, r := range s.rules.Rules {
		t.Add(s.number(r), term.Count(s.counted[r]), term.Count(s.decided[r]), r.Text)
	}
	return t.Write(w, term.Width(w))
}
