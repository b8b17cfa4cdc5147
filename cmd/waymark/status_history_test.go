package main

import (
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
)

// TestHistoryText: the status says what is kept, how far back it will reach, and what went wrong.
func TestHistoryText(t *testing.T) {
	oldest := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for want, h := range map[string]*obs.History{
		"in memory only": nil,
		"212MB of 1.00GB in /var/lib/waymark/history, 5.10M records; oldest 2026-01-02 03:04:05; reaches back 4.0 days at this rate": {
			Path: "/var/lib/waymark/history", Bytes: 212e6, Size: 1e9, Records: 5_100_000, Oldest: oldest, Reach: 4 * 86400,
		},
		"0B of 1.00GB in h, 0 records; 3 intervals not written; failing: no space left on device": {
			Path: "h", Size: 1e9, Counts: obs.HistoryCounts{Lost: 3}, Failing: "no space left on device",
		},
		"9B of 9B in h, 1 record; oldest 2026-01-02 03:04:05, reduced before 2026-01-02 04:04:05; reaches back 30.0 h at this rate": {
			Path: "h", Bytes: 9, Size: 9, Records: 1, Aged: 1, Oldest: oldest, Full: oldest.Add(time.Hour), Reach: 30 * 3600,
		},
		"reaches back 90 min at this rate": {Reach: 5400},
	} {
		if got := historyText(&obs.Status{History: h}); !strings.HasSuffix(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
