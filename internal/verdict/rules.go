package verdict

import "math"

// rule is how verdicts of one kind are found.
type rule struct {
	kind Kind
	// For the reference page: what is read, from which value on it is a verdict (with the keys of
	// the section why), and what it says.
	inputs, threshold, says string
	what                    string // Matter.Count is of these

	base float64 // least score
	// explains are the kinds that follow from one of this kind about the same hosts or place.
	explains []Kind
	flows    bool // a filter of flows applies
	judge    func(w *window, f *finding) error
}

// rules are all of them: the causes first.
var rules = []rule{
	{
		kind: AgentLosses, base: 35, judge: judgeAgent, what: "parts of the agent",
		inputs:    "the agent's own counters; coverage and hooks at this moment",
		threshold: "`agent_losses` packets or records of one part for one reason; less `coverage` than that; an interface that is not counted",
		says:      "which part of the agent lost how much, and why",
	},
	{
		kind: GateDrops, base: 40, judge: judgeGate, what: "packets that rules of the gate dropped", explains: []Kind{Unanswered, PathLoss, Retransmissions},
		inputs:    "counters of the gate's rules",
		threshold: "`gate_drops` packets of one rule",
		says:      "which rule drops how many packets a second, and where",
	},
	{
		kind: LinkFull, base: 50, judge: judgeLinks, what: "directions of links whose speed is known", flows: true, explains: []Kind{PathDelay, PathLoss, Retransmissions},
		inputs:    "bytes of flow records by interface; speed of the driver of a physical interface, or `interfaces[].speed`",
		threshold: "`link_use` of the speed",
		says:      "which link is full, and which flow has the largest part in it",
	},
	{
		kind: PathLoss, base: 55, judge: judgeLoss, what: "hops and paths that report loss", flows: true, explains: []Kind{PathLoss, Unanswered, Retransmissions},
		inputs:    "counts of the same flow at several interfaces, in order of decreasing hop limit; at the analyzer, at several hosts; sequence numbers of PDM and IOAM",
		threshold: "`path_loss` of the packets, and at least 5 of them; between hosts, only packets that were certainly lost, however flows are divided in time",
		says:      "between which interfaces, or on the path to which host, packets are lost. A path whose sequence numbers show loss is narrowed down to the hop where counts miss most of it",
	},
	{
		kind: ServerSlow, base: 50, judge: judgeServers, what: "services whose server delay PDM reports", flows: true,
		inputs:    "server delays and round trips of PDM, by server and port",
		threshold: "median of `server_delay`, `share` of server and network together, and `unusual` times the median before, where there is one",
		says:      "which server takes most of the time of its service",
	},
	{
		kind: PathDelay, base: 50, judge: judgeDelay, what: "hops and paths whose delay is known", flows: true, explains: []Kind{PathDelay},
		inputs:    "transit and link delays of IOAM; first packets of new flows at several interfaces, or at the analyzer at several hosts; round trips of PDM; else TCP handshakes",
		threshold: "`path_delay`, and `unusual` times as much as before, where that is known, else `share` of the whole path. A handshake alone gives no verdict without a time before. Between hosts, the least delay that their clocks leave possible, or half of what packets of both directions take together",
		says:      "which hop, or the path to which host, adds how much delay",
	},
	{
		kind: Unanswered, base: 60, judge: judgeUnanswered, what: "services that were sent a SYN", flows: true, explains: []Kind{Retransmissions},
		inputs:    "connections with two SYN or more, and without ACK; the kernel's account of open connections of this host in which segments were sent again",
		threshold: "`unanswered` of the connections to the service, and at least 3 SYN; or half of the open connections after 3 timeouts, and no new one that was answered for a second. Of connections that come from elsewhere only those to services that have answered somebody",
		says:      "which service does not answer whom",
	},
	{
		kind: Retransmissions, base: 40, judge: judgeRetransmissions, what: "TCP segments that hosts sent",
		inputs:    "the kernel's counters of each network namespace (RetransSegs, OutSegs); its account of each open connection",
		threshold: "`retransmissions` of the segments, and at least 10 of them",
		says:      "how much is sent again, and by which connection most of it",
	},
}

// Points that a verdict has beyond the base of its rule: for by how much it exceeds the threshold,
// and for how much it concerns.
const (
	perDoubling = 6.0
	mostExcess  = 24.0
	perTenfold  = 3.0
	mostWeight  = 12.0
)

// score ranks verdicts of all kinds.
func (r *rule) score(v *Verdict) float64 {
	excess := 0.0
	if v.Threshold > 0 && v.Value > v.Threshold {
		excess = min(mostExcess, perDoubling*math.Log2(v.Value/v.Threshold))
	}
	return math.Round(10*(r.base+excess+min(mostWeight, perTenfold*math.Log10(float64(max(v.Samples, 1)))))) / 10
}

// RuleDoc describes a rule for the reference page.
type RuleDoc struct {
	Kind                    Kind
	Inputs, Threshold, Says string
	Base                    float64
	Explains                []Kind
}

// RuleDocs describes all rules.
func RuleDocs() (docs []RuleDoc) {
	for _, r := range rules {
		docs = append(docs, RuleDoc{r.kind, r.inputs, r.threshold, r.says, r.base, r.explains})
	}
	return docs
}

func ruleOf(kind Kind) *rule {
	for i := range rules {
		if rules[i].kind == kind {
			return &rules[i]
		}
	}
	return nil
}

// Ranking explains the order of verdicts, for the reference page.
const Ranking = `The score of a verdict is the base of its kind, 6 points for each time that the value is twice the threshold (at most 24), and 3 for
each power of ten of samples: delays, packets, connections or records (at most 12). ` + "`high`" + ` is a score of 70 or more, ` + "`medium`" + ` of 50 or more.
The highest come first, at most three of a kind and seven in all; the others are counted.

A verdict that another one accounts for is a consequence of that one, and no verdict: the kinds below, about a host or an interface in
common. A hop accounts for the paths that cross it. Drops of the gate account for as many lost packets, twice at most, whoever
sent them; loss accounts for connections without an answer only where half of the packets are lost.

At the analyzer, a link between hosts, or a host that forwards, accounts for what single hosts report of paths that cross it.`
