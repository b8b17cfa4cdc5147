package flow

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"
)

const (
	maxUint8  = math.MaxUint8
	maxUint16 = math.MaxUint16
	maxUint32 = math.MaxUint32
	maxInt64  = math.MaxInt64
	maxUint64 = math.MaxUint64
)

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}

func appendUint[T unsigned](b []byte, v T) []byte {
	if v < 10 { // as most are
		return append(b, '0'+byte(v))
	}
	return strconv.AppendUint(b, uint64(v), 10)
}

func parseUint[T unsigned](s string, to *T) error {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return err
	}
	if v > uint64(^T(0)) {
		return fmt.Errorf("%d is more than %d", v, ^T(0))
	}
	*to = T(v)
	return nil
}

func parseDuration(s string, to *time.Duration) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return err
	}
	if v < 0 {
		return fmt.Errorf("duration %d is negative", v)
	}
	*to = time.Duration(v)
	return nil
}

func parseFamily(s string) (uint8, error) {
	switch s {
	case "4":
		return 4, nil
	case "6":
		return 6, nil
	}
	return 0, fmt.Errorf("family %s: want 4 or 6", s)
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("address %s has a zone", s)
	}
	return a, err
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, err
	}
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return time.Time{}, fmt.Errorf("time %s is outside the years 0 to 9999 in UTC", s)
	}
	return t, nil
}

// appendTime writes RFC 3339 in UTC with nine decimals, in a tenth of the time
// of time.AppendFormat. The date is Hinnant's civil-from-days.
func appendTime(b []byte, t time.Time) []byte {
	const (
		day       = 24 * 60 * 60
		year0     = 719468 // days from 0000-03-01 to 1970-01-01
		eraDays   = 146097 // days in 400 years
		firstUnix = -62135596800
		lastUnix  = 253402300799
	)
	sec := t.Unix()
	if sec < firstUnix || sec > lastUnix {
		return t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z")
	}
	days := (sec - firstUnix) / day
	rest := uint32(sec - firstUnix - days*day)

	z := days + firstUnix/day + year0
	era := z / eraDays
	doe := z - era*eraDays
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d := doy - (153*mp+2)/5 + 1
	m := mp + 3
	y := yoe + era*400
	if m > 12 {
		m -= 12
		y++
	}

	hour, minute, second := rest/3600, rest/60%60, rest%60
	ns := uint32(t.Nanosecond())
	return append(b,
		digit(y, 1000), digit(y, 100), digit(y, 10), digit(y, 1), '-',
		digit(m, 10), digit(m, 1), '-',
		digit(d, 10), digit(d, 1), 'T',
		digit(hour, 10), digit(hour, 1), ':',
		digit(minute, 10), digit(minute, 1), ':',
		digit(second, 10), digit(second, 1), '.',
		digit(ns, 100_000_000), digit(ns, 10_000_000), digit(ns, 1_000_000),
		digit(ns, 100_000), digit(ns, 10_000), digit(ns, 1000),
		digit(ns, 100), digit(ns, 10), digit(ns, 1), 'Z')
}

// digit is the decimal digit of v at the given power of ten.
func digit[T int64 | uint32](v, power T) byte { return '0' + byte(v/power%10) }
