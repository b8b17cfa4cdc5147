package pdm

// State is what one host keeps of one 5-tuple, seen from itself: source and
// destination of a received packet are swapped to find it. Times are
// nanoseconds of one monotonic clock. A new State needs a random PSN; State is
// not safe for concurrent use.
type State struct {
	PSN   uint16 // number of the next packet to send
	PSNLR uint16 // number of the packet last received
	TLS   uint64 // when the last packet was sent
	TLR   uint64 // when the last packet was received

	Sent     bool // TLS is set
	Received bool // PSNLR and TLR are set; PSNLR 0 is a number like any other
	Fresh    bool // something was received since the last packet was sent
}

// Send returns the option for a packet sent now and notes that it was sent.
//
// DTLS has two branches, and the examples of RFC 8250 need both: how long the
// answer took to come when something came since the previous packet, and else
// how long ago the previous packet was sent.
func (s *State) Send(now uint64) Option {
	o := Option{PSNTP: s.PSN}
	if s.Received {
		o.PSNLR = s.PSNLR
		o.DeltaTLR, o.ScaleDTLR = Scale(since(now, s.TLR))
	}
	if s.Sent {
		until := now
		if s.Fresh {
			until = s.TLR
		}
		o.DeltaTLS, o.ScaleDTLS = Scale(since(until, s.TLS))
	}
	s.PSN++
	s.TLS, s.Sent, s.Fresh = now, true, false
	return o
}

// Receive notes that a packet with option o came in now.
func (s *State) Receive(o Option, now uint64) {
	s.PSNLR, s.TLR = o.PSNTP, now
	s.Received, s.Fresh = true, true
}

// LastSent is the number of the packet last sent. It means nothing before Sent.
func (s *State) LastSent() uint16 { return s.PSN - 1 }

// since is 0 where a second CPU read the clock later but came first.
func since(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}
