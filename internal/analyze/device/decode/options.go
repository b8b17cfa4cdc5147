package decode

import (
	"strings"
	"unicode/utf8"
)

// sampling is what fields say of it.
type sampling struct{ every, taken, passed, size, population, probability float64 }

// rate is one in how many packets was counted; 0: it does not say.
func (s *sampling) rate() float64 {
	switch {
	case s.probability > 0 && s.probability <= 1:
		return 1 / s.probability
	case s.taken > 0:
		return (s.taken + s.passed) / s.taken
	case s.size > 0 && s.population >= s.size:
		return s.population / s.size
	}
	return s.every
}

// mostRate is a rate beyond which none is taken for one.
const mostRate = 1 << 24

// rate is the one to use, where a header or a record says one (0: none).
func (s *Session) rate(said float64) float64 {
	switch {
	case s.fixed > 0:
		return s.fixed
	case said >= 1 && said <= mostRate:
		return said
	}
	return max(s.usual, 1)
}

// rateOf is that of a record.
func (s *Session) rateOf(r *record) float64 {
	said := r.sampling.rate()
	if known, ok := s.samplers[r.sampler]; ok && said == 0 && r.sampler != 0 {
		said = known
	}
	return s.rate(said)
}

// option takes a record that is about the device.
func (s *Session) option(r *record, out Output) {
	if r.boot > 0 && r.boot < latest*1000 {
		s.boot = r.boot
	}
	if rate := r.sampling.rate(); rate >= 1 && rate <= mostRate {
		if r.sampler == 0 || len(s.samplers) == 0 || len(s.samplers) == 1 && s.samplers[r.sampler] != 0 {
			s.usual = rate // of records that name no sampler, if there is one
		}
		if _, known := s.samplers[r.sampler]; r.sampler != 0 && (known || len(s.samplers) < mostSamplers) {
			s.samplers[r.sampler] = rate
		}
		out.Sampled(s.rate(rate))
	}
	for _, text := range r.text {
		if name := readable(text); name != "" && r.in != 0 {
			out.Interface(r.in, name)
			break
		}
	}
}

// readable is a text of a device as the name of an interface; empty: it is none.
func readable(text string) string {
	text = strings.TrimRight(text, "\x00 ")
	if len(text) > 64 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }) {
		return ""
	}
	return text
}

// finish hands on a record of a flow.
func (s *Session) finish(r *record, h *Header, out Output) {
	r.address()
	for _, c := range []*half{&r.forward, &r.reverse} {
		c.first.absolute(h, s.boot)
		c.last.absolute(h, s.boot)
		if c.Packets == 0 && c.Bytes == 0 {
			c.counted = false
		}
	}
	if r.reverse.first.at == 0 {
		r.reverse.first, r.reverse.last = r.forward.first, r.forward.last
	}
	rate := s.rateOf(r)
	out.Sampled(rate)
	s.emit(r, h, rate, out)
}

// address chooses those of the version of IP that the record is of.
func (r *record) address() {
	none := [2][16]byte{v4(zero[:]), v4(zero[:])}
	four := r.has4 && r.version != 6 && (r.version == 4 || !r.has6 || r.v4 != none)
	six := r.has6 && !four && r.version != 4
	r.hasAddresses = four || six
	switch {
	case six:
		r.key.IPv6, r.key.Src, r.key.Dst = true, r.v6[0], r.v6[1]
	case four:
		r.key.Src, r.key.Dst = r.v4[0], r.v4[1]
		for _, a := range []*[16]byte{&r.key.Src, &r.key.Dst} {
			if *a == ([16]byte{}) { // one of both is missing
				*a = none[0]
			}
		}
	default:
		r.key.IPv6 = r.version == 6
	}
}

var zero [4]byte
