package timespec

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10ms": 10 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "1d": 24 * time.Hour, "2w1d3h": 15*24*time.Hour + 3*time.Hour,
		"0.5d": 12 * time.Hour, "1D": 24 * time.Hour, "5M": 5 * time.Minute, "0": 0, "1h30m": 90 * time.Minute,
	} {
		if got, err := Duration(text); err != nil || got != want {
			t.Errorf("%s = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "10", "d", "-5m", "1x", "ms", "999999w", "1d-5m", "1d1w", "1.d", "9999999999h"} {
		if got, err := Duration(text); err == nil {
			t.Errorf("%q = %v, want an error", text, got)
		}
	}
}

func TestSince(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	now := time.Date(2026, 3, 1, 10, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"5m":                   now.Add(-5 * time.Minute),
		"-5m":                  now.Add(-5 * time.Minute),
		"1d":                   now.Add(-24 * time.Hour),
		"09:50":                time.Date(2026, 3, 1, 9, 50, 0, 0, zone),
		"9:50":                 time.Date(2026, 3, 1, 9, 50, 0, 0, zone),
		"10:30":                now,
		"23:50:30":             time.Date(2026, 2, 28, 23, 50, 30, 0, zone),
		"today":                time.Date(2026, 3, 1, 0, 0, 0, 0, zone),
		"yesterday":            time.Date(2026, 2, 28, 0, 0, 0, 0, zone),
		"2026-01-02":           time.Date(2026, 1, 2, 0, 0, 0, 0, zone),
		"2026-01-02 09:50":     time.Date(2026, 1, 2, 9, 50, 0, 0, zone),
		"2026-01-02T09:50:10":  time.Date(2026, 1, 2, 9, 50, 10, 0, zone),
		"2026-01-02T15:04:05Z": time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
	} {
		if got, err := Since(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0s", "10", "25:00", "tomorrow", "--5m", "2026-13-01"} {
		if got, err := Since(text, now); err == nil {
			t.Errorf("%q = %v, want an error", text, got)
		}
	}
}
