package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/filter"
)

const (
	maxRate uint64 = 1 << 40
	// largestPacket is the least burst of a limit in bytes unless it is written.
	largestPacket = 65535

	defaultBits4, defaultBits6 = 24, 64
)

// limit reads a rate, a burst and what has a bucket.
func (p *parser) limit(r *ruleText) (err *Error) {
	r.Limit = &Limit{}
	if err = p.rate(r.Limit); err != nil {
		return err
	}
	r.Limit.Burst = r.Limit.defaultBurst()
	if p.accept("burst") {
		if err = p.burst(r.Limit); err != nil {
			return err
		}
	}
	if p.accept("per") {
		return p.per(r)
	}
	return nil
}

// defaultBurst is what a second brings, and a packet of any length.
func (l *Limit) defaultBurst() uint64 {
	if l.Bytes {
		return max(l.Rate, largestPacket)
	}
	return l.Rate
}

// rate reads 10000/s, 10k packets/s, 5MB/s or 5000000 bytes/s.
func (p *parser) rate(l *Limit) *Error {
	const want = "a rate, such as 10000/s, 5MB/s or 5000000 bytes/s"
	t := p.next()
	text := strings.ToLower(t.text)
	if !strings.Contains(text, "/") && p.tok().kind == tokenWord && strings.Contains(p.tok().text, "/") {
		unit := p.next()
		t.to = unit.to
		text += strings.ToLower(unit.text)
	}
	number, per, ok := strings.Cut(text, "/")
	number = strings.TrimSuffix(number, "packets")
	if n, isBytes := strings.CutSuffix(number, "bytes"); isBytes {
		number = n + "b"
	}
	n, bad := filter.Scaled(number, true)
	switch {
	case t.kind != tokenWord || !ok:
		return p.fail(t, "expected %s", want)
	case per != "s" && per != "sec" && per != "second":
		return p.fail(t, "rates are per second: write %s", want)
	case strings.HasSuffix(number, "bit"):
		return p.fail(t, "write bytes instead of bits, such as 5MB/s for 40 Mbit/s")
	case bad != nil || n == 0 || n > maxRate:
		return p.fail(t, "expected %s; the rate is from 1 to %d", want, maxRate)
	}
	l.Rate, l.Bytes = n, strings.HasSuffix(number, "b")
	return nil
}

func (p *parser) burst(l *Limit) *Error {
	t := p.next()
	n, bad := filter.Scaled(t.text, l.Bytes)
	if t.kind != tokenWord || bad != nil || n == 0 || n > maxRate {
		if l.Bytes {
			return p.fail(t, "expected a number of bytes after burst, such as burst 64KB")
		}
		return p.fail(t, "expected a number of packets after burst, such as burst 500")
	}
	l.Burst = n
	if !p.accept("packets") {
		p.accept("bytes")
	}
	return nil
}

// per reads rule, src, src/24 (IPv4 by the prefix of 24 bits, IPv6 by that of 64) or src/24/64.
func (p *parser) per(r *ruleText) *Error {
	t := p.next()
	parts := strings.Split(strings.ToLower(t.text), "/")
	switch {
	case t.is("rule"):
		return nil
	case t.is("src"):
		r.Limit.Per = PerSource
		return nil
	case parts[0] != "src" || len(parts) > 3:
		return p.fail(t, "expected per rule, per src, or per src/24/64: the lengths of the prefixes of IPv4 and IPv6")
	}
	r.Limit.Per, r.Limit.Bits4, r.Limit.Bits6 = PerSourcePrefix, defaultBits4, defaultBits6
	bits := []*uint8{&r.Limit.Bits4, &r.Limit.Bits6}
	limits := []uint64{32, 128}
	for i, text := range parts[1:] {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil || n == 0 || n > limits[i] {
			if i == 0 && n > 32 {
				return p.fail(t, "IPv4 has 32 bits: write the lengths of both, such as per src/24/%s", text)
			}
			return p.fail(t, "expected a length from 1 to %d, such as per src/24/64", limits[i])
		}
		*bits[i] = uint8(n)
	}
	return nil
}

func (l *Limit) text() string {
	unit, burstUnit := "/s", ""
	if l.Bytes {
		unit, burstUnit = " bytes/s", " bytes"
	}
	text := fmt.Sprintf("%d%s", l.Rate, unit)
	if l.Burst != l.defaultBurst() {
		text += fmt.Sprintf(" burst %d%s", l.Burst, burstUnit)
	}
	switch l.Per {
	case PerSource:
		text += " per src"
	case PerSourcePrefix:
		text += fmt.Sprintf(" per src/%d/%d", l.Bits4, l.Bits6)
	}
	return text
}

// maxDetected is a rate that can be counted in a window.
const maxDetected uint64 = 1 << 31

// detect reads a rate, and which sources have it together.
func (p *parser) detect(r *ruleText) *Error {
	t := p.tok()
	if err := p.limit(r); err != nil {
		return err
	}
	l := r.Limit
	switch {
	case l.Rate > maxDetected:
		return p.fail(t, "the rate is from 10 to %d", maxDetected)
	case l.Rate < 10:
		return p.fail(t, "so few packets are no flood: the rate is at least 10/s")
	case l.Burst != l.defaultBurst():
		return p.fail(t, "a rate that is watched has no burst: leave it out")
	case l.Per == PerRule:
		l.Per = PerSource
	}
	return nil
}
