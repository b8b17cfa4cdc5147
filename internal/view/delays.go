package view

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// DelayColumns are the columns for rows of marked flows: keys, delays, what went
// wrong on the way, and a verdict. Columns of anomalies that no row had are left
// out, unless their titles are among keep.
func (m Merging) DelayColumns(rows []api.Row, keep []string) []Column {
	keys := m.keyColumns()
	for i := range keys {
		if keys[i].Title == "PROTO" && m.has("sport") {
			keys[i] = keys[i].unless(1) // ports say enough
		}
	}
	sums, verdict := delayColumns[:len(delayColumns)-1], delayColumns[len(delayColumns)-1]
	return shownColumns(append(m.withSort(append(keys, sums...)), verdict), rows, keep)
}

var delayColumns = []Column{
	mark("delays", func(p *flow.PDM) string { return term.Count(max(p.Server.Count, p.Network.Count)) }).unless(3),
	quantile("server", serverOf, 0.5),
	quantile("pdm.server.p90_ns", serverOf, 0.9).unless(8),
	quantile("pdm.server.p99_ns", serverOf, 0.99).unless(5),
	quantile("pdm.server.max_ns", serverOf, 1).unless(7),
	quantile("network", networkOf, 0.5),
	quantile("pdm.network.p90_ns", networkOf, 0.9).unless(8),
	quantile("pdm.network.p99_ns", networkOf, 0.99).unless(5),
	quantile("pdm.network.min_ns", networkOf, 0).unless(7),
	mark("loss", LossText).unless(2), // a verdict has what matters of it
	anomaly("pdm.reordered", func(p *flow.PDM) uint64 { return p.Reordered }).unless(4),
	anomaly("pdm.duplicates", func(p *flow.PDM) uint64 { return p.Duplicates }).unless(4),
	anomaly("pdm.suspicious", func(p *flow.PDM) uint64 { return p.Suspicious }).unless(4),
	{Name: "verdict", Column: term.Column{Title: "VERDICT", Least: 18}, cell: Merging.Verdict, brief: Merging.briefVerdict, enough: 22},
}

// unless is the column, left out before those of a lower rank where the terminal
// is narrow.
func (c Column) unless(rank int) Column {
	c.dispensable = rank
	return c
}

func serverOf(p *flow.PDM) *flow.Delays { return &p.Server }

func networkOf(p *flow.PDM) *flow.Delays { return &p.Network }

// mark is a column of what PDM reported.
func mark(name string, cell func(*flow.PDM) string) Column {
	return sum(name, func(w *api.Row) string {
		if w.PDM == nil {
			return "-"
		}
		return cell(w.PDM)
	}, nil)
}

func quantile(name string, of func(*flow.PDM) *flow.Delays, q float64) Column {
	return mark(name, func(p *flow.PDM) string { return Delay(of(p), q) })
}

func anomaly(name string, of func(*flow.PDM) uint64) Column {
	c := mark(name, func(p *flow.PDM) string { return term.Count(of(p)) })
	c.shown = func(w *api.Row) bool { return w.PDM != nil && of(w.PDM) > 0 }
	return c
}

// Delay is a quantile as text; - where nothing was measured. A round trip may
// well be shorter than clocks resolve.
func Delay(d *flow.Delays, q float64) string {
	if d.Count == 0 {
		return "-"
	}
	if v := d.Quantile(q); v > 0 {
		return term.Duration(v)
	}
	return "0"
}

// Loss is the share of the peer's packets that did not come.
func Loss(p *flow.PDM) float64 {
	if p.Lost <= 0 {
		return 0
	}
	return float64(p.Lost) / float64(p.Received+uint64(p.Lost))
}

// LossText is - where nothing came that could report it.
func LossText(p *flow.PDM) string {
	if p.Received == 0 && p.Lost <= 0 {
		return "-"
	}
	return term.Percent(Loss(p))
}

// What a verdict takes for much.
const (
	mostOf   = 0.6  // of a median: it lies there
	muchLoss = 0.01 // of all packets
	farTail  = 3    // times the median
)

// Verdict says in words where the time goes: at the other end, in the network or
// in both. By medians; when the slowest lose their time elsewhere, it says so,
// too.
func (m Merging) Verdict(w *api.Row) string {
	p := w.PDM
	switch {
	case p == nil:
		return "not marked"
	case p.Server.Count == 0 && p.Network.Count == 0 && p.Received == 0:
		if m.fold == query.FoldNone {
			return "sent: see the other direction"
		}
		return "no marks from the peer"
	case p.Server.Count == 0 && p.Network.Count == 0:
		return "no request and answer" + lossText(p)
	}
	peer := m.peerName(w)
	server, network := p.Server.Quantile(0.5), p.Network.Quantile(0.5)
	text := whose(peer, server, network)
	if who, slow := worst(peer, p); who != "" {
		text += ", at worst " + who + " " + term.Duration(slow)
	}
	return text + lossText(p)
}

// briefVerdict leaves out the times, which stand in columns of their own.
func (m Merging) briefVerdict(w *api.Row) string {
	p := w.PDM
	if p == nil || p.Server.Count == 0 && p.Network.Count == 0 {
		return m.Verdict(w)
	}
	peer := m.peerName(w)
	text, _, _ := strings.Cut(strings.ReplaceAll(whose(peer, p.Server.Quantile(0.5), p.Network.Quantile(0.5)), ":", ""), " ")
	if who, _ := worst(peer, p); who != "" {
		text += ", at worst " + who
	}
	return text + lossText(p)
}

// worst names what takes the time of the slowest requests, where that is not what
// takes it of the median; empty: it is.
func worst(peer string, p *flow.PDM) (who string, slow time.Duration) {
	server, network := p.Server.Quantile(0.5), p.Network.Quantile(0.5)
	slowServer, slowNetwork := p.Server.Quantile(0.99), p.Network.Quantile(0.99)
	switch {
	case server < network && slowServer > slowNetwork && slowServer > farTail*server:
		return peer, slowServer
	case server > network && slowServer < slowNetwork && slowNetwork > farTail*network:
		return "network", slowNetwork
	}
	return "", 0
}

// whose names what takes most of the time of a request.
func whose(peer string, server, network time.Duration) string {
	whole := server + network
	switch {
	case float64(server) >= mostOf*float64(whole):
		return peer + " " + term.Duration(server) + " of " + term.Duration(whole)
	case float64(network) >= mostOf*float64(whole):
		return "network " + term.Duration(network) + " of " + term.Duration(whole)
	}
	return "both: " + peer + " " + term.Duration(server) + ", network " + term.Duration(network)
}

func lossText(p *flow.PDM) string {
	if loss := Loss(p); loss >= muchLoss {
		return ", " + term.Percent(loss) + " lost"
	}
	return ""
}

// firstEphemeral is where Linux begins to give clients their ports.
const firstEphemeral = 32768

// peerName reports which part the peer plays: time between an answer and the next
// request is that of a client, and no server's fault. The peer is the source of
// what is received. Where the initiator is not known, ports decide.
func (m Merging) peerName(w *api.Row) string {
	if m.fold != query.FoldPeer && m.fold != query.FoldNone {
		return "peer"
	}
	var server bool
	switch peer, local := m.has("sport"), m.has("dport"); {
	case isICMP(w):
		server = true // it answers echoes
	case w.Initiator != flow.InitiatorUnknown:
		server = w.Initiator == flow.InitiatorDst
	case peer && local && w.SrcPort != w.DstPort:
		server = w.SrcPort < w.DstPort
	case peer:
		server = w.SrcPort < firstEphemeral && w.SrcPort != 0 // which a client's is
	case local:
		server = w.DstPort >= firstEphemeral || w.DstPort == 0
	default:
		return "peer"
	}
	if server {
		return "server"
	}
	return "client"
}

// foldTitles are the titles of keys where a fold says what the source is.
var foldTitles = map[query.Fold]map[string]string{
	query.FoldPeer:         {"SRC": "PEER", "SPORT": "PORT", "DST": "LOCAL", "DPORT": "LOCAL PORT"},
	query.FoldConversation: {"SRC": "CLIENT", "DST": "SERVER", "DPORT": "PORT"},
}

// Extra is a value of a row that its fields don't have, under the name that JSON
// and CSV give it.
type Extra struct {
	Name, Text string // no text: the row has no such value
	Number     bool
}

// DelayExtras are the loss and the verdict of a row.
func (m Merging) DelayExtras(w *api.Row) []Extra {
	loss := Extra{Name: "loss", Number: true}
	if w.PDM != nil && (w.PDM.Received > 0 || w.PDM.Lost > 0) {
		loss.Text = strconv.FormatFloat(Loss(w.PDM), 'g', 6, 64)
	}
	return []Extra{loss, {Name: "verdict", Text: m.Verdict(w)}}
}

func shownColumns(columns []Column, rows []api.Row, keep []string) []Column {
	return slices.DeleteFunc(columns, func(c Column) bool {
		return c.shown != nil && !slices.Contains(keep, c.Title) &&
			!slices.ContainsFunc(rows, func(w api.Row) bool { return c.shown(&w) })
	})
}
