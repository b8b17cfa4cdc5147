// Package decode reads what routers and switches send of flows: NetFlow 5 and 9, IPFIX (RFC 7011) and sFlow 5. Input: datagrams of
// one sender, who may be anybody. Output: deltas of flows, and names of interfaces. Caller: package device.
//
// Nothing in a datagram decides how much memory or time it takes: templates, records that wait for one, samplers and interfaces are
// bounded by session, and each record takes at least one byte of the datagram.
package decode

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

var be = binary.BigEndian

// Protocol of a datagram.
type Protocol uint8

// Protocols, by the order of Names.
const (
	NetFlow5 Protocol = iota
	NetFlow9
	IPFIX
	SFlow
)

// Names are those of the configuration.
var Names = [...]string{"netflow5", "netflow9", "ipfix", "sflow"}

func (p Protocol) String() string { return Names[p] }

// Unit is what sequence numbers of a protocol count.
func (p Protocol) Unit() string {
	if p == NetFlow5 || p == IPFIX {
		return "records"
	}
	return "datagrams"
}

// Header is what says whose a datagram is, and which of them.
type Header struct {
	Protocol  Protocol
	Domain    uint32 // observation domain, source id, engine or sub-agent
	Sequence  uint32
	Exported  time.Time     // by the clock of the device; zero: sFlow does not say
	Uptime    time.Duration // of the device
	HasUptime bool

	count int // NetFlow 5: records; sFlow: samples
	body  []byte
}

// Output takes what a datagram brings.
type Output interface {
	// Flow gets counts of a flow, with the numbers of both interfaces; that where it was counted comes first. d is not kept.
	Flow(d *flow.Delta, iface, other uint32)
	// Interface gets the name of one.
	Interface(index uint32, name string)
	// Sampled gets the rate that the counts of the next records are multiplied by; 1: every packet is counted.
	Sampled(n float64)
	// Count counts what is in no flow.
	Count(why Reason, n uint64)
}

// Reason is why something is in no flow.
type Reason string

// Reasons. Not all are losses: a device also reports what is no flow.
const (
	Malformed   Reason = "malformed"     // datagrams, of which the rest is not read
	NoTemplate  Reason = "no_template"   // sets of records whose template did not come in time
	Templates   Reason = "templates"     // templates beyond the bounds
	NoCounters  Reason = "no_counters"   // records without packets and bytes
	NoFlow      Reason = "no_flow"       // samples of packets that are not IP, or whose headers are not whole
	OtherSample Reason = "other_samples" // samples of counters, and others that are not of packets
	DeviceDrops Reason = "device_drops"  // samples that the device says it had to drop
)

// Peek reads the header of a datagram.
func Peek(b []byte) (h Header, err error) {
	if len(b) < 4 {
		return h, fmt.Errorf("%d bytes are no datagram of flows", len(b))
	}
	switch version := be.Uint16(b); {
	case version == 5:
		return peek5(b)
	case version == 9:
		return peek9(b)
	case version == 10:
		return peekIPFIX(b)
	case be.Uint32(b) == 5:
		return peekSFlow(b)
	default:
		return h, fmt.Errorf("version %d: neither NetFlow 5 or 9, nor IPFIX, nor sFlow 5", version)
	}
}

func short(protocol Protocol, n, least int) error {
	return fmt.Errorf("%s: %d bytes, at least %d are needed", protocol, n, least)
}

func peek9(b []byte) (h Header, err error) {
	const head = 20
	if len(b) < head {
		return h, short(NetFlow9, len(b), head)
	}
	return Header{
		Protocol: NetFlow9, Domain: be.Uint32(b[16:]), Sequence: be.Uint32(b[12:]), Exported: time.Unix(int64(be.Uint32(b[8:])), 0),
		Uptime: time.Duration(be.Uint32(b[4:])) * time.Millisecond, HasUptime: true, body: b[head:],
	}, nil
}

func peekIPFIX(b []byte) (h Header, err error) {
	const head = 16
	length := int(be.Uint16(b[2:]))
	if len(b) < head || length < head || length > len(b) {
		return h, fmt.Errorf("ipfix: a message of %d bytes in a datagram of %d", length, len(b))
	}
	return Header{
		Protocol: IPFIX, Domain: be.Uint32(b[12:]), Sequence: be.Uint32(b[8:]), Exported: time.Unix(int64(be.Uint32(b[4:])), 0), body: b[head:length],
	}, nil
}

// Decode hands on what a datagram brings. It returns how many units of the sequence number the datagram has; known is false where that
// cannot be said, because a template is missing.
func (s *Session) Decode(h *Header, now time.Time, out Output) (units uint32, known bool) {
	switch h.Protocol {
	case NetFlow5:
		s.netflow5(h, out)
		return uint32(h.count), true
	case SFlow:
		if !s.sflow(h, now, out) {
			out.Count(Malformed, 1)
		}
		return 1, true
	}
	units, known = s.sets(h, now, out)
	if h.Protocol == NetFlow9 {
		return 1, true
	}
	return units, known
}
