package device

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/decode"
)

// step is a datagram: of so many units, by the clock of the device, after so long.
type step struct {
	sequence, units uint32
	at              time.Duration // since the first
	uptime          time.Duration // at that time; 0: that of a device that goes on
	unknown         bool
}

func TestSequence(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		lost  uint64
		steps []step
	}{
		"all of them":               {0, []step{{sequence: 100, units: 10}, {sequence: 110, units: 5, at: s}, {sequence: 115, units: 1, at: 2 * s}}},
		"across the wrap":           {0, []step{{sequence: 1<<32 - 5, units: 10}, {sequence: 5, units: 5, at: s}}},
		"a gap":                     {20, []step{{sequence: 100, units: 10}, {sequence: 130, units: 5, at: s}}},
		"a gap across the wrap":     {7, []step{{sequence: 1<<32 - 5, units: 1}, {sequence: 3, units: 5, at: s}}},
		"two gaps":                  {3, []step{{sequence: 0, units: 1}, {sequence: 2, units: 1, at: s}, {sequence: 5, units: 1, at: 2 * s}}},
		"reordered":                 {0, []step{{sequence: 100, units: 10}, {sequence: 120, units: 10, at: s}, {sequence: 110, units: 10, at: s}, {sequence: 130, units: 1, at: 2 * s}}},
		"reordered, one is lost":    {10, []step{{sequence: 100, units: 10}, {sequence: 130, units: 10, at: s}, {sequence: 110, units: 10, at: s}, {sequence: 140, units: 1, at: 2 * s}}},
		"in the opposite order":     {0, []step{{sequence: 100, units: 10}, {sequence: 130, units: 10, at: s}, {sequence: 120, units: 10, at: s}, {sequence: 110, units: 10, at: s}}},
		"late, when it was lost":    {10, []step{{sequence: 100, units: 10}, {sequence: 120, units: 10, at: s}, {sequence: 130, units: 1, at: 20 * s}, {sequence: 110, units: 10, at: 20 * s}, {sequence: 131, units: 1, at: 21 * s}}},
		"a restart":                 {0, []step{{sequence: 5000, units: 10}, {sequence: 0, units: 10, at: 60 * s, uptime: s}, {sequence: 10, units: 10, at: 61 * s, uptime: 2 * s}}},
		"a restart after long":      {0, []step{{sequence: 3 << 30, units: 10}, {sequence: 20, units: 10, at: 60 * s, uptime: s}}},
		"a restart, then a gap":     {5, []step{{sequence: 5000, units: 10}, {sequence: 0, units: 10, at: 60 * s, uptime: s}, {sequence: 15, units: 1, at: 61 * s, uptime: 2 * s}}},
		"a template was missing":    {0, []step{{sequence: 100, units: 3, unknown: true}, {sequence: 110, units: 5, at: s}, {sequence: 115, units: 5, at: s}}},
		"numbers of another stream": {0, []step{{sequence: 100, units: 1}, {sequence: 99, units: 1}, {sequence: 101, units: 1, at: s}}},
	} {
		for _, uptime := range []bool{true, false} {
			var q sequence
			now := time.Unix(1_800_000_000, 0)
			var lost uint64
			for _, one := range c.steps {
				h := decode.Header{Protocol: decode.IPFIX, Sequence: one.sequence, Exported: now.Add(one.at)}
				if uptime {
					h.HasUptime, h.Uptime = true, time.Hour+one.at
					if one.uptime > 0 {
						h.Uptime = one.uptime
					}
				}
				lost += q.take(&h, one.units, !one.unknown, now.Add(one.at))
			}
			lost += q.settle(now.Add(time.Hour))
			if lost != c.lost {
				t.Errorf("%s (uptime: %v): %d are lost, want %d", name, uptime, lost, c.lost)
			}
			if q.end() != 0 {
				t.Errorf("%s: gaps stay", name)
			}
		}
	}
}

// A flood of gaps takes no memory.
func TestManyGaps(t *testing.T) {
	var q sequence
	now := time.Unix(1_800_000_000, 0)
	var lost uint64
	for i := range uint32(10_000) {
		lost += q.take(&decode.Header{Sequence: 10 * i, Exported: now}, 1, true, now)
	}
	if len(q.gaps) > 2*mostGaps || lost+q.end() != 9*9999 {
		t.Errorf("%d gaps, %d lost", len(q.gaps), lost)
	}
}

func TestRepeated(t *testing.T) {
	var q sequence
	for i := range uint32(recentMost) {
		if q.repeated(i, 10) {
			t.Errorf("%d did not come before", i)
		}
	}
	if !q.repeated(0, 10) || !q.repeated(recentMost-1, 10) || q.repeated(3, 11) {
		t.Error("what came twice is not recognized, or what did not is")
	}
}
