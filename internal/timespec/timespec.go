// Package timespec reads times as users type them. Input: text such as 1d, -5m
// or 09:50. Output: durations and times. Callers: filter language, API, command
// line.
package timespec

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// days are the units that time.ParseDuration does not have, in front of those
// that it has.
var days = regexp.MustCompile(`^(?:(\d{1,6}(?:\.\d{1,6})?)w)?(?:(\d{1,6}(?:\.\d{1,6})?)d)?(.*)$`)

var errDuration = errors.New("write a duration with its unit, such as 800us, 10ms, 1.5s, 5m, 2h or 1d")

// Duration reads a duration that is not negative. Besides the units of
// time.ParseDuration there are d (24 hours) and w (7 days).
func Duration(text string) (time.Duration, error) {
	parts := days.FindStringSubmatch(strings.ToLower(text))
	if parts == nil {
		return 0, errDuration
	}
	sum := time.Duration(0)
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour} {
		if parts[1+i] == "" {
			continue
		}
		n, err := strconv.ParseFloat(parts[1+i], 64)
		if err != nil || n*float64(unit) > 1<<62 {
			return 0, errDuration
		}
		sum += time.Duration(n * float64(unit))
	}
	if rest := parts[3]; rest != "" || sum == 0 {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || sum+d < sum {
			return 0, errDuration
		}
		sum += d
	}
	return sum, nil
}

var errTime = errors.New("write a duration back from now, such as 90s, 5m or 1d, or a time, such as 09:50, 2026-01-02 09:50 or 2026-01-02T15:04:05Z")

// layouts of times with a date; those without a zone are local.
var layouts = []string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly,
}

// Since reads the begin of a window that ends now: a duration back from now,
// with or without a minus, or a time. A time of day is the latest one that has
// passed. Times without a zone are in now's.
func Since(text string, now time.Time) (time.Time, error) {
	if d, err := Duration(strings.TrimPrefix(text, "-")); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	switch strings.ToLower(text) {
	case "today":
		return midnight(now, 0), nil
	case "yesterday":
		return midnight(now, -1), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at := func(days int) time.Time {
			return time.Date(now.Year(), now.Month(), now.Day()+days, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		}
		if today := at(0); !today.After(now) {
			return today, nil
		}
		return at(-1), nil
	}
	return time.Time{}, errTime
}

func midnight(now time.Time, days int) time.Time {
	return time.Date(now.Year(), now.Month(), now.Day()+days, 0, 0, 0, 0, now.Location())
}
