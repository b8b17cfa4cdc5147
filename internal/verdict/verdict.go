// Package verdict says why the network is slow or broken, in at most seven sentences. Input: the
// flow records of a time range and of the time before it, and counters of the agent and its
// stages (Ledger). Output: an Answer: verdicts with their evidence, worst first, and what was
// examined. Callers: the API (waymark why, /api/v1/why); the agent fills the Ledger.
//
// An Examiner gathers facts of two windows: the whole range, and its newest intervals, so that a
// fault of a few seconds ago shows. The rules (rules.go) judge each window; what one verdict
// accounts for is a consequence of it and no verdict (rank.go).
package verdict

import (
	"net/netip"
	"time"
)

// Kind is what is wrong.
type Kind string

// The kinds of verdicts.
const (
	ServerSlow      Kind = "server_slow"
	PathDelay       Kind = "path_delay"
	PathLoss        Kind = "path_loss"
	LinkFull        Kind = "link_full"
	Unanswered      Kind = "unanswered"
	Retransmissions Kind = "retransmissions"
	GateDrops       Kind = "gate_drops"
	AgentLosses     Kind = "agent_losses"
)

// Most is how many verdicts an answer has.
const Most = 7

// Answer is what was found in a time range.
type Answer struct {
	Host     string    `json:"host"`
	From     time.Time `json:"from,omitzero"` // what was examined; both absent: no interval has ended in the range
	To       time.Time `json:"to,omitzero"`
	Usual    time.Time `json:"usual_from,omitzero"` // long delays were compared with those since then; absent: there was none, or nothing is known of before
	Filter   string    `json:"filter,omitempty"`
	Verdicts []Verdict `json:"verdicts"` // worst first
	More     int       `json:"more"`     // verdicts beyond the first seven
	Summary  string    `json:"summary"`  // in one sentence
	Examined []Matter  `json:"examined"` // by every rule
}

// Matter is what one rule looked at.
type Matter struct {
	Kind  Kind   `json:"kind"`
	Count uint64 `json:"count"`
	What  string `json:"what"`           // that many of what
	Note  string `json:"note,omitempty"` // what could not be examined, and why
}

// Verdict is one thing that is wrong, with its evidence.
type Verdict struct {
	Kind     Kind      `json:"kind"`
	Severity Severity  `json:"severity"`
	Score    float64   `json:"score"` // what verdicts are ranked by
	Text     string    `json:"text"`  // one sentence
	From     time.Time `json:"from"`  // when it was measured
	To       time.Time `json:"to"`

	Measure   string  `json:"measure"`         // what value is
	Unit      string  `json:"unit"`            // of value, threshold and usual: s, share or packets
	Value     float64 `json:"value"`           //
	Threshold float64 `json:"threshold"`       // from which on it is a verdict
	Usual     float64 `json:"usual,omitempty"` // before; absent: not known
	Samples   uint64  `json:"samples"`         // delays, packets, connections or records that value is made of

	Where    Where    `json:"where"`
	Flow     *Flow    `json:"flow,omitempty"`     // the service, or the flow with the largest part in it
	Others   int      `json:"others,omitempty"`   // further ones of the kind that are not listed
	Evidence []string `json:"evidence,omitempty"` // further numbers, as text
	Command  string   `json:"command,omitempty"`  // shows the rows
	// Consequences are what else was found and follows from it.
	Consequences []Consequence `json:"consequences,omitempty"`

	scope scope
}

// packets is the unit of sums.
const packets = "packets"

// Consequence is a verdict that another one accounts for.
type Consequence struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

// Where is the place of what is wrong. What has no meaning for it is absent.
type Where struct {
	Host      string     `json:"host,omitempty"` // of an analyzer, which has several
	Netns     string     `json:"netns,omitempty"`
	Iface     string     `json:"iface,omitempty"`
	Direction string     `json:"direction,omitempty"`
	ToHost    string     `json:"to_host,omitempty"` // of an analyzer, of a hop: where packets are seen next
	ToNetns   string     `json:"to_netns,omitempty"`
	ToIface   string     `json:"to_iface,omitempty"`
	Src       netip.Addr `json:"src,omitzero"` // of a path
	Dst       netip.Addr `json:"dst,omitzero"`
	Path      string     `json:"path,omitempty"` // of IOAM, as waymark paths names it
	Nodes     string     `json:"nodes,omitempty"`
	Hop       int        `json:"hop,omitempty"`
	Link      bool       `json:"link,omitempty"` // behind the hop, not in it
	Rule      uint32     `json:"rule,omitempty"`
	RuleText  string     `json:"rule_text,omitempty"`
	Part      string     `json:"part,omitempty"` // of the agent
	Reason    string     `json:"reason,omitempty"`
}

// Flow names a flow, or a service: then without source port.
type Flow struct {
	Proto   string     `json:"proto"`
	Src     netip.Addr `json:"src,omitzero"`
	SrcPort uint16     `json:"sport,omitempty"`
	Dst     netip.Addr `json:"dst"`
	DstPort uint16     `json:"dport,omitempty"`
}

// Severity is the score in a word.
type Severity string

// Severities, and the scores from which on they are given.
const (
	High   Severity = "high"
	Medium Severity = "medium"
	Low    Severity = "low"

	highScore   = 70
	mediumScore = 50
)

func severityOf(score float64) Severity {
	switch {
	case score >= highScore:
		return High
	case score >= mediumScore:
		return Medium
	}
	return Low
}

// scope is what a verdict is about, to find out whether another one accounts for it.
type scope struct {
	id        string              // equal in both windows for the same thing
	addresses map[netip.Addr]bool // of the flows concerned
	places    map[[2]string]bool  // namespace and interface
	located   bool                // the place is a hop, not a whole path
	between   bool                // it was found by what several hosts counted
	following int                 // verdicts of single hosts that follow from it
	lost      uint64              // packets that drops elsewhere may account for
	dropped   uint64              // packets that were dropped, whoever sent them
	loss      float64             // share of the packets that has to be lost to account for it
}

func addresses(list ...netip.Addr) map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	for _, a := range list {
		if a.IsValid() {
			set[a] = true
		}
	}
	return set
}
