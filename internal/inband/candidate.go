package inband

// candidate is a sequence that may replace the one that is followed, because its
// sender began again or after long loss.
type candidate struct {
	since  uint64 // when its first packet came
	seen   uint64 // bit i: number next − 1 − i came
	count  uint32 // its packets; 0: there is none
	lost   uint32 // numbers missing between them
	sent   uint32 // packets sent when its last proof came
	first  uint16
	next   uint16 // the number that would follow
	rounds uint8  // its proofs
}

func beginCandidate(r *Received, named uint32) candidate {
	c := candidate{
		since: r.Now, seen: 1, count: 1, sent: r.Sent.Count,
		first: r.Option.PSNTP, next: r.Option.PSNTP + 1,
	}
	if named > 0 {
		c.rounds = 1
	}
	return c
}

// advance takes the next packet, ahead numbers beyond the one that would follow.
func (c *candidate) advance(r *Received, named uint32, ahead uint16) {
	c.count++
	c.lost += uint32(ahead)
	if ahead+1 < Window {
		c.seen = c.seen<<(ahead+1) | 1
	} else {
		c.seen = 1
	}
	c.next = r.Option.PSNTP + 1
	if c.rounds < Proofs && named > 0 && int32(named-c.sent) > 0 {
		c.rounds++
		c.sent = r.Sent.Count
	}
}

// behind takes the i-th number before the newest: overtaken, or again.
func (c *candidate) behind(i uint8) {
	bit := uint64(1) << i
	if c.seen&bit != 0 || uint16(i) > c.next-1-c.first {
		return
	}
	c.seen |= bit
	c.count++
	c.lost -= min(c.lost, 1)
}

// suspect takes a packet that is not believed: perhaps of the candidate, which may
// be proven by it.
func (s *Sequence) suspect(r *Received, named uint32) Arrival {
	c := &s.wild
	ahead := int16(r.Option.PSNTP - c.next)
	near := c.count > 0 && ahead >= -Window && ahead < MaxAhead
	switch {
	case s.rounds > 0 && named == 0:
		if near { // a wrong guess ends the candidate that it is for
			c.count = 0
		}
	case !near:
		*c = beginCandidate(r, named)
	case ahead < 0:
		c.behind(uint8(-ahead - 1))
	default:
		c.advance(r, named, uint16(ahead))
		if s.proven(r.Now) {
			return s.replace(r, named)
		}
	}
	if d := int16(r.Option.PSNTP - s.highest); d < 0 && d >= -MaxGap {
		s.Late++
		return Late
	}
	s.Wild++
	return Wild
}

// missing are the numbers between the sequence and the candidate, if that is the
// same after loss.
func (s *Sequence) missing() uint16 {
	if d := s.wild.first - s.highest; d > MaxAhead && d <= MaxGap {
		return d - 1
	}
	return 0
}

// proven reports whether the candidate is the sender. Without proofs, as when the
// receiver sends nothing, time stands for them: who guesses what a candidate needs
// has one guess in that time, since a wrong one ends it.
func (s *Sequence) proven(now uint64) bool {
	c := &s.wild
	switch {
	case c.rounds == Proofs:
		return true
	case c.count < Proofs:
		return false
	case s.rounds == 0: // nor has what it replaces
		return true
	}
	wait := Patience
	if s.missing() > 0 {
		// Loss lasts some time: so long must what follows be there.
		wait = min(wait, c.since-min(c.since, s.at))
	}
	return now >= c.since && now-c.since >= wait
}

// replace makes the candidate the sequence.
func (s *Sequence) replace(r *Received, named uint32) Arrival {
	c, gap := s.wild, s.missing()
	psn := r.Option.PSNTP
	s.Packets += uint64(c.count)
	s.Lost += uint64(c.lost) + uint64(gap)
	if gap > 0 {
		s.advance(psn, r.Word, max(Window, psn-s.highest))
		s.prove(named, r.Sent.Count)
		s.wild.count = 0
		s.seen = c.seen
		return Gap
	}
	s.begin(psn, r.Word)
	s.span = uint8(min(psn-c.first, Window-1)) + 1
	s.seen = c.seen
	s.contested = false
	s.Restarts++
	s.rounds, s.echoed, s.proofSent = c.rounds, named, c.sent
	return Restart
}
