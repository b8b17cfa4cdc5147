package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/rules"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/term"
)

// dryExplain shows what would become of packets, by a dry run in the kernel.
type dryExplain struct {
	path  string // of the page that answers
	iface string
	hex   bool
	write string
	agent agentFlag
	out   outputFlag
}

// newExplainCommand is explain below the verb of a stage.
func newExplainCommand(verb string, x *stage.Explainer) *cobra.Command {
	e := &dryExplain{path: x.Path}
	cmd := &cobra.Command{
		Use: "explain IFACE PACKET", Short: x.Short, Example: x.Example,
		Long: x.Long + `
PACKET is one of
  a description with the words of rules: src 192.0.2.1 dst 198.51.100.2 tcp dst port 443 syn
  bytes in hexadecimal, of an Ethernet frame or an IP packet
  a capture: a pcap or pcapng file, or - for stdin
IP packets are sent to the address of the interface. A description needs src, dst and a
protocol; TTL is 64, length 60 bytes. Of a capture it shows how many packets would go
where. Packet rules that would drop a packet before are named.
Only root and the agent's user may ask.`,
		Args: cobra.MinimumNArgs(2),
		RunE: e.run,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault // a capture
			}
			return completeInterfaces(cmd, args, typed)
		},
	}
	cmd.Flags().BoolVar(&e.hex, "hex", false, "also print the packet as it would leave, in hexadecimal")
	cmd.Flags().StringVar(&e.write, "write", "", "also write packets as they would leave to a pcapng `file`")
	e.agent.register(cmd)
	e.out.register(cmd, outputTable, outputJSON)
	return cmd
}

func (e *dryExplain) run(cmd *cobra.Command, args []string) (err error) {
	e.iface = args[0]
	frames, skipped, err := triedPackets(args[1:], cmd.InOrStdin())
	if err != nil {
		return err
	}
	if len(frames) == 0 {
		return fmt.Errorf("%s has no packets of Ethernet or IP", args[1])
	}
	all, err := e.ask(cmd.Context(), frames)
	if err != nil {
		return err
	}
	if e.write != "" {
		if err := writeLeaving(e.write, e.iface, all.Packets); err != nil {
			return err
		}
	}
	before, err := newRulesBefore(cmd.Context(), &e.agent, e.iface)
	if err != nil {
		return err
	}
	if e.out.format == outputJSON {
		return writeRulesJSON(cmd.OutOrStdout(), before.json(all))
	}
	if len(all.Packets) > 1 || isCapture(args[1:]) {
		return before.writeSum(cmd.OutOrStdout(), all, skipped)
	}
	return before.writeOne(cmd.OutOrStdout(), &all.Packets[0], e.hex)
}

// ask asks the agent, in questions that it takes.
func (e *dryExplain) ask(ctx context.Context, frames []stage.TriedPacket) (*stage.Answer, error) {
	all := &stage.Answer{Iface: e.iface}
	for part := range slices.Chunk(frames, stage.MostTried) {
		var a stage.Answer
		if err := e.agent.client().Set(ctx, e.path, stage.Question{Iface: e.iface, Packets: part}, &a); err != nil {
			return nil, err
		}
		all.Packets = append(all.Packets, a.Packets...)
	}
	return all, nil
}

// ownMAC is where described packets come from: an address that no vendor gives.
var ownMAC = []byte{2, 0, 0, 0, 0, 1}

// linkOf is a link header in front of an IP packet.
func linkOf(ip []byte) []byte {
	kind := []byte{0x08, 0x00}
	if len(ip) > 0 && ip[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return slices.Concat(make([]byte, 6), ownMAC, kind, ip)
}

// triedPackets are those that a user describes, or names a file of. skipped have another link type.
func triedPackets(args []string, stdin io.Reader) (frames []stage.TriedPacket, skipped int, err error) {
	text := strings.Join(args, " ")
	if isCapture(args) {
		return capturedPackets(text, stdin)
	}
	if data, isIP, ok := rules.HexBytes(text); ok {
		if isIP {
			data = linkOf(data)
		}
		return []stage.TriedPacket{{Data: data, ToInterface: isIP}}, 0, nil
	}
	p, err := rules.ParsePacket(text)
	if err != nil {
		return nil, 0, command.UsageError{Err: err}
	}
	frame, err := p.Frame()
	if err != nil {
		return nil, 0, command.UsageError{Err: err}
	}
	copy(frame[6:], ownMAC)
	return []stage.TriedPacket{{Data: frame, ToInterface: true}}, 0, nil
}

func capturedPackets(name string, stdin io.Reader) (frames []stage.TriedPacket, skipped int, err error) {
	r, closeFile, err := openCapture(name, stdin)
	if err != nil {
		return nil, 0, err
	}
	defer closeFile()
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return frames, skipped, nil
		}
		if err != nil {
			return nil, 0, captureError(name, err)
		}
		data := make([]byte, f.Length) // what the capture lacks is 0
		copy(data, f.Data)
		switch {
		case f.Link == capfile.LinkEthernet:
			frames = append(frames, stage.TriedPacket{Data: data})
		case f.Link.IP():
			frames = append(frames, stage.TriedPacket{Data: linkOf(data), ToInterface: true})
		default:
			skipped++
		}
	}
}

// writeLeaving writes packets as they would leave.
func writeLeaving(name, iface string, packets []stage.Explained) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write packets: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	ng, err := capfile.NewWriter(file, "waymark "+readVersion().Version)
	if err != nil {
		return err
	}
	ifaces := map[string]int{}
	for i := range packets {
		x := &packets[i]
		if x.Leaves == nil {
			continue
		}
		data, err := hex.DecodeString(x.Leaves.Frame)
		if err != nil {
			return fmt.Errorf("read the agent's answer: %w", err)
		}
		out := cmp.Or(x.Decisions[len(x.Decisions)-1].Out, iface)
		n, known := ifaces[out]
		if !known {
			if n, err = ng.Add(capfile.Interface{Name: out, Link: capfile.LinkEthernet, Snap: 65535}); err != nil {
				return err
			}
			ifaces[out] = n
		}
		if err := ng.Write(&capfile.Packet{Frame: capfile.Frame{Number: i + 1, Time: time.Now(), Link: capfile.LinkEthernet, Iface: n, Data: data, Length: len(data)}}); err != nil {
			return err
		}
	}
	return nil
}

// rulesBefore are packet rules that packets of the interface meet before; nil rules: there are none.
type rulesBefore struct {
	*explainer
	iface string
}

func newRulesBefore(ctx context.Context, agent *agentFlag, iface string) (*rulesBefore, error) {
	s, err := agent.client().Status(ctx)
	if err != nil {
		return nil, err
	}
	g := gate.StatusOf(&s)
	if g == nil || !slices.ContainsFunc(g.Interfaces, func(i gate.Interface) bool {
		return (i.Name == iface || obs.Place(i.Netns, i.Name) == iface) && strings.HasPrefix(i.Hook, "xdp")
	}) {
		return &rulesBefore{iface: iface}, nil
	}
	x, err := newLiveExplainer(ctx, agent)
	return &rulesBefore{x, iface}, err
}

// drops says which rule or ban drops a packet; empty: none does.
func (b *rulesBefore) drops(x *stage.Explained, iface string) string {
	if b.explainer == nil {
		return ""
	}
	frame, err := hex.DecodeString(x.Sent)
	if err != nil {
		return ""
	}
	p := rules.ReadEthernet(frame)
	p.Iface = iface
	if ban := b.ban(p); ban != nil {
		return fmt.Sprintf("%s is banned, %s", ban.Prefix, untilText(ban.Until))
	}
	if d := b.rules.Decide(p, rules.State{Now: time.Now()}); d.Verdict != rules.VerdictPass && d.Rule != nil {
		return fmt.Sprintf("%s decides: %s", b.name(d.Rule), d.Rule.Text)
	}
	return ""
}

type explainedJSON struct {
	stage.Explained
	RulesBefore string `json:"rules_before,omitempty"` // what drops or answers the packet before
}

func (b *rulesBefore) json(a *stage.Answer) any {
	out := struct {
		Iface   string          `json:"iface"`
		Packets []explainedJSON `json:"packets"`
	}{Iface: a.Iface}
	for _, x := range a.Packets {
		out.Packets = append(out.Packets, explainedJSON{x, b.drops(&x, a.Iface)})
	}
	return out
}

// writeOne shows what would become of a packet.
func (b *rulesBefore) writeOne(w io.Writer, x *stage.Explained, withHex bool) error {
	if rule := b.drops(x, b.iface); rule != "" {
		if _, err := fmt.Fprintf(w, "packet rules end its way before: %s\nwithout them:\n", rule); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(w, headline(x)); err != nil {
		return err
	}
	t := &term.Table{Columns: []term.Column{{Title: "STAGE"}, {Title: "RESULT"}, {Title: "TO"}, {Title: "REASON", Least: 12}}}
	for i := range x.Decisions {
		d := &x.Decisions[i]
		t.Add(d.Stage, d.Result, d.To, d.Doc)
	}
	if err := term.Section(w, t); err != nil {
		return err
	}
	t = &term.Table{Columns: []term.Column{{Title: "PACKET"}, {Title: "", Least: 12}}}
	for _, d := range details(x) {
		t.Add(d[0], d[1])
	}
	if err := term.Section(w, t); err != nil || !withHex || x.Leaves == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", x.Leaves.Frame)
	return err
}

// last is the decision of the stage that takes a packet; nil: no stage is there.
func last(x *stage.Explained) *datapath.Decision {
	if len(x.Decisions) == 0 {
		return &datapath.Decision{To: x.To}
	}
	return &x.Decisions[len(x.Decisions)-1]
}

func headline(x *stage.Explained) string {
	d := last(x)
	switch x.To {
	case "interface":
		return fmt.Sprintf("the packet leaves by %s to %s", d.Out, d.NextHop)
	case "backend":
		return fmt.Sprintf("the packet leaves by %s to backend %s of %s", d.Out, d.Backend, d.Service)
	case "client":
		return "the client gets an answer: " + d.Doc
	case "dropped":
		return "the packet is dropped: " + d.Doc
	}
	return "the packet goes to the kernel"
}

var choiceText = map[string]string{
	"connection_known": "the connection is known", "maglev": "the connection is new here: by the Maglev table", "connection_id": "by the connection ID",
}

// details are what is known of how a packet would leave.
func details(x *stage.Explained) (all [][2]string) {
	add := func(what, text string) {
		if text != "" {
			all = append(all, [2]string{what, text})
		}
	}
	d := last(x)
	add("service", d.Service)
	add("backend", d.Backend)
	add("chosen", choiceText[d.Choice])
	add("forwarding", d.Forwarding)
	add("output interface", d.Out)
	if d.NextHop.IsValid() {
		add("next hop", d.NextHop.String())
	}
	if l := x.Leaves; l != nil {
		add("link addresses", l.Source+" to "+l.Destination)
		if l.VLAN > 0 {
			add("VLAN", strconv.Itoa(int(l.VLAN)))
		}
		if l.From.IsValid() {
			add("IP addresses", fmt.Sprintf("%s to %s", l.From, l.To))
			add("TTL", strconv.Itoa(int(l.TTL)))
		}
		add("length", fmt.Sprintf("%d bytes", len(l.Frame)/2))
	}
	if d.MTU > 0 {
		add("MTU", strconv.Itoa(int(d.MTU)))
	}
	if d.Refresh {
		add("refresh", "the next packet to this neighbour goes to the kernel, so that it asks whether the neighbour is still there")
	}
	return all
}

// writeSum shows how many packets would go where.
func (b *rulesBefore) writeSum(w io.Writer, a *stage.Answer, skipped int) error {
	type group struct{ stage, result, to, where, doc string }
	counts, order, ruled := map[group]uint64{}, []group{}, uint64(0)
	for i := range a.Packets {
		x := &a.Packets[i]
		if b.drops(x, a.Iface) != "" {
			ruled++
			continue
		}
		d := last(x)
		g := group{d.Stage, d.Result, x.To, cmp.Or(d.Backend, d.Out), d.Doc}
		if counts[g]++; counts[g] == 1 {
			order = append(order, g)
		}
	}
	text := term.Number(uint64(len(a.Packets)), "packets")
	if ruled > 0 {
		text += fmt.Sprintf("; packet rules end the way of %s before", term.Count(ruled))
	}
	if skipped > 0 {
		text += fmt.Sprintf("; %s of an unknown link type skipped", term.Count(uint64(skipped)))
	}
	if _, err := fmt.Fprintln(w, text); err != nil {
		return err
	}
	slices.SortStableFunc(order, func(a, b group) int { return cmp.Compare(counts[b], counts[a]) })
	t := &term.Table{Columns: []term.Column{
		{Title: "PACKETS", Right: true}, {Title: "STAGE"}, {Title: "RESULT"}, {Title: "TO"}, {Title: "WHERE"}, {Title: "REASON", Least: 12},
	}}
	for _, g := range order {
		t.Add(term.Count(counts[g]), g.stage, g.result, g.to, g.where, g.doc)
	}
	return term.Section(w, t)
}
