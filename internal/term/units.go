package term

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// SI writes a number with three digits and a letter for a power of 1000: 999,
// 1.00k, 12.3M.
func SI(v float64) string {
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	if v < 999.5 {
		return strconv.FormatFloat(v, 'f', decimals(v, v == math.Trunc(v)), 64)
	}
	const letters = "kMGTPE"
	unit := -1
	for v >= 999.5 && unit+1 < len(letters) {
		v /= 1000
		unit++
	}
	return strconv.FormatFloat(v, 'f', decimals(v, false), 64) + letters[unit:unit+1]
}

// decimals leaves three digits in all.
func decimals(v float64, whole bool) int {
	switch {
	case whole || v >= 99.95:
		return 0
	case v >= 9.995:
		return 1
	}
	return 2
}

// Count is SI of a whole number.
func Count(n uint64) string { return SI(float64(n)) }

// Rate is an amount over a time, per second; - where there is no time.
func Rate(amount float64, d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return SI(amount / d.Seconds())
}

// Duration writes a time with three digits: 412µs, 8.21ms, 1.50s, 2m5s, 3h12m,
// 4d3h. None is -.
func Duration(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"ns", 1}, {"µs", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}}
	switch {
	case d <= 0:
		return "-"
	case d < time.Minute-time.Second/20:
		for i, u := range units {
			v := float64(d) / float64(u.size)
			if v < 999.5 || i == len(units)-1 {
				return strconv.FormatFloat(v, 'f', decimals(v, v == math.Trunc(v)), 64) + u.name
			}
		}
	case d < time.Hour:
		d = d.Round(time.Second)
		return two(int(d/time.Minute), "m", int(d%time.Minute/time.Second), "s")
	case d < 24*time.Hour:
		d = d.Round(time.Minute)
		return two(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "m")
	}
	d = d.Round(time.Hour)
	return two(int(d/(24*time.Hour)), "d", int(d%(24*time.Hour)/time.Hour), "h")
}

func two(a int, unitA string, b int, unitB string) string {
	if b == 0 {
		return strconv.Itoa(a) + unitA
	}
	return strconv.Itoa(a) + unitA + strconv.Itoa(b) + unitB
}

// Percent writes a share so that only what is whole reads 100 %, and what is
// nothing 0 %.
func Percent(share float64) string {
	v := share * 100
	switch {
	case v > 0 && v < 0.05:
		return "<0.1 %"
	case v == math.Trunc(v) && v < 1e6:
		return strconv.FormatFloat(v, 'f', 0, 64) + " %"
	case v > 99.9 && v < 100:
		return strconv.FormatFloat(math.Trunc(v*1000)/1000, 'f', 3, 64) + " %"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " %"
}

// Number is Count of things, a plural; one thing lacks the s.
func Number(n uint64, things string) string {
	if n == 1 {
		things = strings.TrimSuffix(things, "s")
	}
	return Count(n) + " " + things
}
