package inband

import (
	"time"

	"github.com/waymark-net/waymark/wire/pdm"
)

// Arrival says how the number of a packet follows those before it.
type Arrival uint8

// The arrivals. Only packets that came in order of number tell of delays.
const (
	First     Arrival = iota // of this sender
	InOrder                  // the next number
	Gap                      // numbers are missing before it
	Restart                  // the sender restarted at another number
	Reordered                // a number that was missing, or one before the first
	Duplicate                // a number that came before
	Copy                     // the same number in another segment of one GSO burst
	Late                     // too old to tell reordered from duplicate; not believed
	Wild                     // not believed; perhaps a restart, or after long loss
)

var arrivalNames = [...]string{
	First: "first", InOrder: "in_order", Gap: "gap", Restart: "restart", Reordered: "reordered",
	Duplicate: "duplicate", Copy: "copy", Late: "late", Wild: "wild",
}

func (a Arrival) String() string {
	if int(a) < len(arrivalNames) {
		return arrivalNames[a]
	}
	return "unknown"
}

// Ordered reports whether the packet is the newest of its sender.
func (a Arrival) Ordered() bool { return a <= Restart }

// Believed reports whether the packet is one of the sender's. Others change nothing
// of what is established.
func (a Arrival) Believed() bool { return a < Late }

const (
	// Window is how far back a number is remembered: the bits of a word.
	Window = 64
	// MaxAhead is how far one packet alone moves a sequence on, and so one more
	// than the loss that it can report.
	MaxAhead = 64
	// MaxGap is how many numbers may be missing, or how late one may come, before
	// it is taken for a restart rather than loss.
	MaxGap = 1024
	// Proofs establish a sequence.
	Proofs = 4
	// Patience is how long a restart takes without proofs.
	Patience = uint64(10 * time.Second)

	echoSlack = 32   // the peer's packets may be reordered, and what they name
	echoFirst = 1024 // that may be on their way when the first answer comes
)

// SequenceCounts counts packets of one sender by arrival.
type SequenceCounts struct {
	Packets    uint64 // those that were believed
	Lost       uint64 // missing so far; less again when one comes late
	Reordered  uint64
	Duplicates uint64
	Copies     uint64 // further segments of a GSO burst, which share its number
	Late       uint64 // not believed
	Wild       uint64 // not believed
	Restarts   uint64
}

// Sent is what the receiver of a sequence sent to its sender.
type Sent struct {
	Last  uint16 // number of the newest packet
	Count uint32 // packets, from the first that the sender may name
}

// Received is a packet as a Sequence takes it.
type Received struct {
	Option pdm.Option
	// Word distinguishes segments of one GSO burst from duplicates: the four bytes at
	// offset 4 of the transport header (TCP: sequence number; UDP: length and
	// checksum; ICMPv6: identifier and number).
	Word uint32
	Sent Sent   // when it came
	Now  uint64 // ns
}

// Sequence follows the packet sequence numbers of one sender, which start at
// random and wrap from 65535 to 0. The zero value has seen nothing.
//
// Anybody who knows the 5-tuple can send a packet, but only somebody who sees the
// flow knows its numbers. So a packet is believed when it continues the sender's
// numbers and names one that the receiver sent: that is a proof. A packet that is
// not believed changes nothing but the candidate for a new sequence.
type Sequence struct {
	SequenceCounts
	seen      uint64 // bit i: highest − i came
	highest   uint16
	span      uint8  // bits of seen that mean something: 0 before the first packet
	burst     uint8  // numbers until the sender is no longer known to mark bursts
	firstWord uint32 // word of the packet that had highest first
	at        uint64 // when the newest believed packet came

	rounds    uint8  // proofs
	contested bool   // another sequence had a proof, too
	echoed    uint32 // packets sent up to the newest that the sender named
	proofSent uint32 // packets sent when the last proof came
	moved     uint32 // numbers that the highest has moved on by

	wild candidate
}

// Highest is the newest number, and ok is false before the first packet.
func (s *Sequence) Highest() (psn uint16, ok bool) { return s.highest, s.span != 0 }

// sent is this sequence as the one in the other direction needs it, when both are
// seen from outside. Packets that were overtaken may come before the first.
func (s *Sequence) sent() Sent {
	if s.span == 0 {
		return Sent{}
	}
	return Sent{Last: s.highest, Count: Window + s.moved}
}

// Contested reports whether two sequences have proofs, and neither enough of them.
func (s *Sequence) Contested() bool { return s.contested }

// Forget restarts with the next packet. Whoever sent nothing for the lifetime
// of a flow's state has forgotten the flow.
func (s *Sequence) Forget() { s.span, s.contested = 0, false }

// named is which packet of the receiver the option names, 1 being the first; 0
// where it names none, or one that it can't.
func (s *Sequence) named(r *Received) uint32 {
	behind := uint32(r.Sent.Last - r.Option.PSNLR)
	reach := uint32(echoFirst)
	if s.rounds > 0 {
		reach = r.Sent.Count - s.echoed + echoSlack
	}
	if !r.Option.HasReceived() || behind >= r.Sent.Count || behind >= reach {
		return 0
	}
	return r.Sent.Count - behind
}

// Observe takes the next packet.
func (s *Sequence) Observe(r Received) Arrival {
	a := s.observe(&r, s.named(&r))
	if a.Believed() {
		s.at = r.Now
	}
	return a
}

func (s *Sequence) observe(r *Received, named uint32) Arrival {
	psn := r.Option.PSNTP
	d := int16(psn - s.highest)
	switch {
	case s.span == 0:
		s.begin(psn, r.Word)
		s.prove(named, r.Sent.Count)
		s.Packets++
		return First
	case d > -Window && d <= MaxAhead:
		// What the sender sent before it had received anything may be overtaken.
		early := d < 0 && s.rounds < Proofs && !r.Option.HasReceived()
		if named > 0 || s.rounds == 0 || early {
			s.prove(named, r.Sent.Count)
			return s.near(psn, r.Word, d)
		}
	case named > 0 && s.rounds < Proofs && (d < 0 || d > MaxGap):
		// Neither is established. Where both have proofs, neither is measured.
		s.contested = s.contested || s.rounds > 0
		s.begin(psn, r.Word)
		s.prove(named, r.Sent.Count)
		s.Packets++
		s.Restarts++
		return Restart
	}
	return s.suspect(r, named)
}

// prove notes what a believed packet names.
func (s *Sequence) prove(named, sent uint32) {
	if named == 0 {
		return
	}
	if s.rounds == 0 || int32(named-s.echoed) > 0 {
		s.echoed = named
	}
	// A proof names a packet that was not sent yet when the proof before came.
	if s.rounds == Proofs || s.rounds > 0 && int32(named-s.proofSent) <= 0 {
		return
	}
	s.proofSent = sent
	s.rounds++
	s.contested = s.contested && s.rounds < Proofs
}

func (s *Sequence) begin(psn uint16, word uint32) {
	s.highest, s.firstWord = psn, word
	s.seen, s.span, s.burst, s.rounds = 1, 1, 0, 0
	s.wild.count = 0
	s.moved++
}

func (s *Sequence) advance(psn uint16, word uint32, d uint16) {
	s.highest, s.firstWord = psn, word
	s.moved += uint32(d)
	s.burst -= uint8(min(d, uint16(s.burst)))
	if d >= Window {
		s.seen, s.span = 1, Window
		return
	}
	s.seen = s.seen<<d | 1
	s.span = uint8(min(uint16(s.span)+d, Window))
}

// near takes a believed packet.
func (s *Sequence) near(psn uint16, word uint32, d int16) Arrival {
	s.Packets++
	s.wild.count = 0
	switch {
	case d == 1:
		s.advance(psn, word, 1)
		return InOrder
	case d == 0 && word != s.firstWord:
		s.Copies++
		s.burst = Window
		return Copy
	case d == 0:
		s.Duplicates++
		return Duplicate
	case d < 0:
		return s.behind(uint8(-d))
	}
	s.Lost += uint64(d - 1)
	s.advance(psn, word, uint16(d))
	return Gap
}

// behind takes a packet d numbers, fewer than Window, before the highest.
func (s *Sequence) behind(d uint8) Arrival {
	bit := uint64(1) << d
	if s.seen&bit != 0 {
		if s.burst > 0 { // of a sender that marks bursts: a segment that was overtaken
			s.Copies++
			return Copy
		}
		s.Duplicates++
		return Duplicate
	}
	s.seen |= bit
	s.Reordered++
	if d < s.span {
		s.Lost -= min(s.Lost, 1)
	} else {
		// Before the first: now those between are missing.
		s.Lost += uint64(d - s.span)
		s.span = d + 1
	}
	return Reordered
}
