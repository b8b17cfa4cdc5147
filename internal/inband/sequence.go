package inband

// Arrival says how the number of a packet follows those before it.
type Arrival uint8

// The arrivals. Only packets that came in order of number tell of delays.
const (
	First     Arrival = iota // of this sender
	InOrder                  // the next number
	Gap                      // numbers are missing before it
	Restart                  // the sender began anew at another number
	Reordered                // a number that was missing, or one before the first
	Duplicate                // a number that came before
	Copy                     // the same number in another segment of one GSO burst
	Late                     // too old to tell reordered from duplicate
	Wild                     // a number out of all order, perhaps a restart
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

// Ordered tells whether the packet is the newest of its sender.
func (a Arrival) Ordered() bool { return a <= Restart }

const (
	// Window is how far back a number is remembered: the bits of a word.
	Window = 64
	// MaxGap is how many numbers may be missing, or how late one may come, before
	// it is taken for a restart rather than loss.
	MaxGap = 1024
)

// SequenceCounts counts packets of one sender by arrival.
type SequenceCounts struct {
	Packets    uint64 // all
	Lost       uint64 // missing so far; less again when one comes late
	Reordered  uint64
	Duplicates uint64
	Copies     uint64 // further segments of a GSO burst, which share its number
	Late       uint64
	Wild       uint64
	Restarts   uint64
}

// Sequence follows the packet sequence numbers of one sender, which start at
// random and wrap from 65535 to 0. The zero value has seen nothing.
type Sequence struct {
	SequenceCounts
	seen      uint64 // bit i: highest − i came
	highest   uint16
	span      uint8  // bits of seen that mean something: 0 before the first packet
	suspect   bool   // the packet before was Wild, and wildNext follows it
	wildNext  uint16 // valid when suspect
	firstWord uint32 // word of the packet that had highest first
}

// Highest is the newest number, and ok is false before the first packet.
func (s *Sequence) Highest() (psn uint16, ok bool) { return s.highest, s.span != 0 }

// Observe takes the next packet. word tells segments of one GSO burst from
// duplicates: the four octets at offset 4 of the transport header (TCP: sequence
// number; UDP: length and checksum; ICMPv6: identifier and number). fresh says
// that the sender had sent nothing before (pdm.Option.IsFirst).
func (s *Sequence) Observe(psn uint16, word uint32, fresh bool) Arrival {
	s.Packets++
	if s.span == 0 {
		s.begin(psn, word)
		return First
	}
	d := int16(psn - s.highest)
	switch {
	case d == 1:
		s.advance(psn, word, 1)
		return InOrder
	case d == 0:
		if word != s.firstWord {
			s.Copies++
			return Copy
		}
		s.Duplicates++
		return Duplicate
	case d < 0 && d > -Window:
		return s.behind(uint8(-d))
	case fresh:
		return s.restart(psn, word)
	case d > 0 && d <= MaxGap:
		s.Lost += uint64(d - 1)
		s.advance(psn, word, uint16(d))
		return Gap
	case d < 0 && d >= -MaxGap:
		s.Late++
		return Late
	case s.suspect && psn == s.wildNext:
		return s.restart(psn, word)
	}
	// Two in a row make a restart; one alone may be anybody's.
	s.Wild++
	s.suspect, s.wildNext = true, psn+1
	return Wild
}

func (s *Sequence) begin(psn uint16, word uint32) {
	s.highest, s.firstWord = psn, word
	s.seen, s.span, s.suspect = 1, 1, false
}

func (s *Sequence) restart(psn uint16, word uint32) Arrival {
	s.begin(psn, word)
	s.Restarts++
	return Restart
}

func (s *Sequence) advance(psn uint16, word uint32, d uint16) {
	s.highest, s.firstWord, s.suspect = psn, word, false
	if d >= Window {
		s.seen, s.span = 1, Window
		return
	}
	s.seen = s.seen<<d | 1
	s.span = uint8(min(uint16(s.span)+d, Window))
}

// behind takes a packet d numbers, fewer than Window, before the highest.
func (s *Sequence) behind(d uint8) Arrival {
	bit := uint64(1) << d
	if s.seen&bit != 0 {
		if s.Copies > 0 { // of a sender that marks bursts: a segment that was overtaken
			s.Copies++
			return Copy
		}
		s.Duplicates++
		return Duplicate
	}
	s.seen |= bit
	s.Reordered++
	if d < s.span {
		s.Lost--
	} else {
		// Before the first: now those between are missing.
		s.Lost += uint64(d - s.span)
		s.span = d + 1
	}
	return Reordered
}
