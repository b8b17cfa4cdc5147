package service

import (
	"io"

	"github.com/waymark-net/waymark/internal/export/prometheus"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/term"
)

// LoopbackStatus is what the node did with packets whose trace asks for a copy (RFC 9322), since the agent started. Of each
// there is a copy, or it is limited, lost or refused.
type LoopbackStatus struct {
	Every    uint32 `json:"every"`
	Rate     uint32 `json:"rate"`
	Looped   uint64 `json:"looped"`             // packets of which there is a copy
	Sent     uint64 `json:"sent"`               // copies that were sent to the source
	Unsent   uint64 `json:"unsent"`             // copies that the node could not send: not allowed, or no route
	Limited  uint64 `json:"limited"`            // packets that every and rate left out
	Lost     uint64 `json:"lost"`               // packets whose copy did not fit the ring
	Refused  uint64 `json:"refused"`            // packets with other fields in the trace, or a source that is no address to send to
	Returned uint64 `json:"returned"`           // copies of packets of this node that came back to it
	Disabled string `json:"disabled,omitempty"` // why no copy can be sent
}

// loopback gathers the section.
func (s *service) loopback(cfg *Config, stats *inbandioam.Stats, counts []inbandioam.Count) LoopbackStatus {
	l := LoopbackStatus{Every: cfg.Loopback.Every, Rate: cfg.Loopback.Rate, Looped: stats.Looped, Returned: stats.Returned}
	var err error
	if l.Sent, l.Unsent, err = s.node.CopiesSent(); err != nil {
		l.Disabled = err.Error()
	}
	for _, c := range counts {
		switch c.Reason {
		case "loopback_not_sampled", "loopback_rate":
			l.Limited += c.Packets
		case "loopback_lost":
			l.Lost += c.Packets
		case "loopback_type", "loopback_address":
			l.Refused += c.Packets
		}
	}
	return l
}

// write shows the counts; nothing where no packet asked for a copy.
func (l *LoopbackStatus) write(w io.Writer) error {
	if l.Looped+l.Limited+l.Lost+l.Refused+l.Returned == 0 {
		return nil
	}
	why := ""
	if l.Unsent > 0 && l.Disabled != "" {
		why = " (" + l.Disabled + ")"
	}
	return term.Heading(w, "IOAM loopback: %s copies sent, %s unsent%s, %s limited, %s lost, %s refused; %s came back",
		term.Count(l.Sent), term.Count(l.Unsent), why, term.Count(l.Limited), term.Count(l.Lost), term.Count(l.Refused), term.Count(l.Returned))
}

// loopbackMetrics have no reason: waymark_ioam_passed_options_total has.
var loopbackMetrics = []prometheus.Metric{
	counter("waymark_ioam_loopback_sent_copies_total", "Copies of traces that were sent back to the source of their packet (loopback).", func(n *Status) uint64 { return n.Loopback.Sent }),
	counter("waymark_ioam_loopback_unsent_copies_total", "Copies of traces that the node could not send: no route, or it lacks CAP_NET_RAW.", func(n *Status) uint64 { return n.Loopback.Unsent }),
	counter("waymark_ioam_loopback_limited_packets_total", "Packets whose trace asks for a copy, and that the limits of loopback left out.", func(n *Status) uint64 { return n.Loopback.Limited }),
	counter("waymark_ioam_loopback_lost_packets_total", "Packets whose trace asks for a copy, which was lost.", func(n *Status) uint64 { return n.Loopback.Lost }),
	counter("waymark_ioam_loopback_refused_packets_total", "Packets whose trace asks for a copy that is not allowed: with other fields, or to a source that is no address to send to.", func(n *Status) uint64 { return n.Loopback.Refused }),
	counter("waymark_ioam_loopback_returned_copies_total", "Copies of traces that this node inserted, and that came back to it.", func(n *Status) uint64 { return n.Loopback.Returned }),
}
