package inband

import "github.com/waymark-net/waymark/wire/pdm"

// Suspicion says why a packet is kept out of the averages.
type Suspicion uint8

// The suspicions.
const (
	NotSuspicious  Suspicion = iota
	ImpossibleTime           // a delta longer than the time that passed
	ImpossiblePSN            // a number out of all order, or an answer to a packet that was never sent
)

var suspicionNames = [...]string{"", "impossible_time", "impossible_psn"}

// String is empty for a packet that is not suspicious.
func (s Suspicion) String() string {
	if int(s) < len(suspicionNames) {
		return suspicionNames[s]
	}
	return "unknown"
}

// driftShift bounds how far two clocks may run apart: 2^-10, which is both ends
// slewed at the 500 ppm that NTP may, in opposite directions. It covers the 2^-15
// that scaling drops, too.
const driftShift = 10

// rest is the part of whole that is left when part is taken away: a round trip
// without the delay at its far end. A part that is longer by no more than clocks
// drift, and by slack nanoseconds, leaves 0; a longer one is impossible.
func rest(whole, part, slack uint64) (ns uint64, ok bool) {
	if part <= whole {
		return whole - part, true
	}
	return 0, part-whole <= whole>>driftShift+slack
}

// dtlr returns the option's DTLR in nanoseconds; false when it is 292 years or more.
func dtlr(o pdm.Option) (uint64, bool) { return pdm.Nanoseconds(o.DeltaTLR, o.ScaleDTLR) }

func dtls(o pdm.Option) (uint64, bool) { return pdm.Nanoseconds(o.DeltaTLS, o.ScaleDTLS) }

// follows reports whether no packet of the sender is missing directly before this
// one. Behind a missing packet it may not be the first of an answer, and its
// DTLR then counts the time since that one, too.
func follows(a Arrival, o pdm.Option) bool {
	return a == InOrder || (a == First || a == Restart) && o.IsFirst()
}
