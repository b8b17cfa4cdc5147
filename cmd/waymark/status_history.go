package main

import (
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// historyText says what is kept on disk, and for how long.
func historyText(s *obs.Status) string {
	h := s.History
	if h == nil {
		return "in memory only"
	}
	text := fmt.Sprintf("%s of %s in %s, %s", term.Count(h.Bytes)+"B", term.Count(h.Size)+"B", h.Path, term.Number(h.Records, "records"))
	if !h.Oldest.IsZero() {
		text += "; oldest " + h.Oldest.Local().Format(time.DateTime)
	}
	if h.Aged > 0 {
		text += ", reduced before " + h.Full.Local().Format(time.DateTime)
	}
	if h.Reach > 0 {
		text += "; reaches back " + days(h.Reach) + " at this rate"
	}
	if h.Counts.Lost > 0 {
		text += fmt.Sprintf("; %s not written", term.Number(h.Counts.Lost, "intervals"))
	}
	if h.Failing != "" {
		text += "; failing: " + h.Failing
	}
	return text
}

// days is a time span as people plan a history.
func days(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	default:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	}
}
