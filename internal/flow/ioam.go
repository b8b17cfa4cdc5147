package flow

import "fmt"

// IOAM is what IOAM options (RFC 9197) reported of a flow in an interval, where they end. It
// stands with the half of a conversation that is received.
type IOAM struct {
	IOAMPath

	Packets uint64 // with a trace
	Changes uint64 // of the path

	// From edge-to-edge sequence numbers, which the flows between two hosts share: loss counts
	// with the flow whose packet showed it.
	Received   uint64 // packets with a number that is believed; a GSO burst counts as one
	Lost       int64  // what comes after its loss was reported offsets the next loss
	Reordered  uint64
	Duplicates uint64

	Delay    Delays // from the first node to the last, without buckets
	Relative bool   // the clocks of these do not agree: there is no delay
}

// IOAMPath is a path that traces showed.
type IOAMPath struct {
	ID        IOAMPathID // 0: no trace, only edge-to-edge options
	Namespace uint16
	Hops      uint8
	Nodes     string // their ids, from the encapsulating node on: 1-2-3
}

// IOAMPathID is the number of a path: equal hops have an equal one, on every host.
type IOAMPathID uint64

// String has twelve hexadecimal digits; none: no path.
func (id IOAMPathID) String() string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf("%012x", uint64(id))
}

// Add adds what a later interval, or another processor, reported of the same flow.
func (p *IOAM) Add(o *IOAM) {
	if o.ID != 0 {
		p.IOAMPath = o.IOAMPath
	}
	p.AddSums(o)
}

// AddSums is Add of what does not depend on the path.
func (p *IOAM) AddSums(o *IOAM) {
	for _, of := range IOAMCounters {
		*of(p) += *of(o)
	}
	p.Lost += o.Lost
	p.Delay.Merge(&o.Delay)
	p.Relative = p.Relative || o.Relative
}

// Agree keeps of a path what another one of the same row has in common with first.
func (p *IOAMPath) Agree(first, other *IOAMPath) {
	if first.ID != other.ID {
		p.ID = 0
	}
	if first.Nodes != other.Nodes {
		p.Nodes = ""
	}
	if first.Namespace != other.Namespace || first.Hops != other.Hops {
		p.Namespace, p.Hops = 0, 0
	}
}

// Keep drops of a path what the agreement of another part of the row does not have.
func (p *IOAMPath) Keep(other *IOAMPath) {
	if other.ID == 0 {
		p.ID = 0
	}
	if other.Nodes == "" {
		p.Nodes = ""
	}
	if other.Hops == 0 {
		p.Namespace, p.Hops = 0, 0
	}
}

// Clone is a copy that shares no memory with p.
func (p *IOAM) Clone() *IOAM {
	own := *p
	return &own
}
