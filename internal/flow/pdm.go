package flow

import "github.com/waymark-net/waymark/internal/inband"

// PDM is what the marks of RFC 8250 told about a flow in an interval. Times are
// measured where answers arrive, so they stand with the half of a conversation
// that is received; what was marked stands with the half that is sent.
type PDM struct {
	Sent     uint64 // packets marked here
	Received uint64 // marked packets read here

	// From the peer's packet sequence numbers.
	Lost       int64 // below 0 when packets came late that had been taken for lost
	Reordered  uint64
	Duplicates uint64

	Suspicious uint64 // impossible times or numbers, kept out of the delays
	Discarded  uint64 // in order, but no answer to the packet sent last

	Server  inband.Histogram // at the peer, from a request to its answer
	Network inband.Histogram // round trips without the time at the peer
}

// Add adds what another interval, or another processor, told of the same flow.
func (p *PDM) Add(o *PDM) {
	p.Sent += o.Sent
	p.Received += o.Received
	p.Lost += o.Lost
	p.Reordered += o.Reordered
	p.Duplicates += o.Duplicates
	p.Suspicious += o.Suspicious
	p.Discarded += o.Discarded
	p.Server.Merge(&o.Server)
	p.Network.Merge(&o.Network)
}
