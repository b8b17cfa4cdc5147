package ioam

import (
	"fmt"
	"time"
)

// TimeFormat is how a node writes times (RFC 9197 section 5). It is not on the wire:
// the operator of a domain chooses it. Linux writes POSIX.
type TimeFormat uint8

// The formats.
const (
	PTP   TimeFormat = iota // seconds since 1970 TAI and nanoseconds
	NTP                     // seconds since 1900 and 2⁻³² seconds
	POSIX                   // seconds since 1970 UTC and microseconds
)

var formatNames = [...]string{PTP: "ptp", NTP: "ntp", POSIX: "posix"}

// String is the name in lower case.
func (f TimeFormat) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return fmt.Sprintf("time format %d", uint8(f))
}

// ParseTimeFormat is the reverse of String. It fails with [ErrRange].
func ParseTimeFormat(s string) (TimeFormat, error) {
	for i, name := range formatNames {
		if s == name {
			return TimeFormat(i), nil
		}
	}
	return 0, fmt.Errorf("%w: time format %q is not ptp, ntp or posix", ErrRange, s)
}

const (
	taiOffset = 37         // TAI − UTC in seconds since 2017
	ntpOffset = 2208988800 // from 1900 to 1970 in seconds
	era       = int64(1) << 32
)

// Split returns the two fields of a time.
func (f TimeFormat) Split(t time.Time) (seconds, fraction uint32) {
	s, ns := t.Unix(), uint64(t.Nanosecond())
	switch f {
	case PTP:
		return uint32(s + taiOffset), uint32(ns)
	case NTP:
		return uint32(s + ntpOffset), uint32(ns << 32 / uint64(time.Second))
	}
	return uint32(s), uint32(ns / uint64(time.Microsecond))
}

// Join returns the time of two fields. Seconds wrap every 136 years: the time nearest
// to near is meant. ok is false where a field is not available or the fraction is not
// one of this format.
func (f TimeFormat) Join(seconds, fraction uint32, near time.Time) (t time.Time, ok bool) {
	offset, ns := int64(0), uint64(fraction)
	limit := uint64(time.Second)
	switch f {
	case PTP:
		offset = taiOffset
	case NTP:
		// Rounded up, so that Join returns what Split was given.
		offset, ns = ntpOffset, (ns*uint64(time.Second)+1<<32-1)>>32
		limit++
	default:
		ns *= uint64(time.Microsecond)
	}
	if ns >= limit || seconds == Unavailable32 && fraction == Unavailable32 {
		return time.Time{}, false
	}
	s := int64(seconds) - offset
	s += (near.Unix() - s + era/2) >> 32 << 32
	return time.Unix(s, int64(ns)).UTC(), true
}

// DelayOverflow is the transit delay of a packet that stayed for 2³¹ ns or longer (RFC
// 9197 section 4.4.2.5).
const DelayOverflow = 1 << 31

// Delay returns the transit delay; ok is false where it is not available or too long.
func (h *Hop) Delay() (d time.Duration, ok bool) {
	if !h.Type.Has(TransitDelay) || h.TransitDelay&DelayOverflow != 0 {
		return 0, false
	}
	return time.Duration(h.TransitDelay), true
}

// Time returns when the node received the packet; ok is false where the trace lacks
// one of the two fields, and as [TimeFormat.Join] says.
func (h *Hop) Time(f TimeFormat, near time.Time) (t time.Time, ok bool) {
	if !h.Type.Has(TimestampSeconds | TimestampFraction) {
		return time.Time{}, false
	}
	return f.Join(h.Seconds, h.Fraction, near)
}
