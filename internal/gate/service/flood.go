package service

import (
	"context"
	"log/slog"
	"time"

	"github.com/waymark-net/waymark/internal/gate"
)

// Flood is many packets of sources that are too many to ban: each sends little, so they are
// likely forged.
type Flood struct {
	Rule    string  `json:"rule"`
	Rate    float64 `json:"packets_per_second"`
	Sources uint64  `json:"sources"` // an estimate
	Each    float64 `json:"packets_per_source"`
}

// The kinds of events about floods.
const (
	EventFlood    = "flood"
	EventFloodEnd = "flood_end"
)

// forgedBelow is how many packets a source sends in a window at most, on average, where
// sources are called forged.
const forgedBelow = 4

// calmWindows are windows without a flood after which it has ended.
const calmWindows = 5

// floods follows what each watch sees, window by window.
type floods struct {
	least  float64           // packets per second of a flood
	seen   map[uint32]uint64 // last window, by rule
	active map[uint32]int    // windows that a flood may be calm yet
}

func newFloods(least uint32) *floods {
	return &floods{least: float64(least), seen: map[uint32]uint64{}, active: map[uint32]int{}}
}

// next looks at the last whole window of a watch. event is empty unless a flood begins or ends.
func (f *floods) next(w gate.Window) (event string, flood Flood) {
	if f.seen[w.Rule] == w.Number {
		return "", flood
	}
	f.seen[w.Rule] = w.Number
	flood = Flood{Rate: float64(w.Packets) / gate.DetectWindow.Seconds(), Sources: w.Sources}
	if w.Sources > 0 {
		flood.Each = float64(w.Packets) / float64(w.Sources)
	}
	left, active := f.active[w.Rule]
	switch {
	case flood.Rate >= f.least && flood.Each < forgedBelow:
		f.active[w.Rule] = calmWindows
		if !active {
			return EventFlood, flood
		}
	case active && left > 1:
		f.active[w.Rule] = left - 1
	case active:
		delete(f.active, w.Rule)
		return EventFloodEnd, flood
	}
	return "", flood
}

// watchFloods reports floods until ctx ends.
func (s *service) watchFloods(ctx context.Context) {
	f := newFloods(s.detectCfg.Flood)
	tick := time.NewTicker(gate.DetectWindow / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		windows, err := s.gate.Windows()
		if err != nil {
			continue // the datapath is closed, or says so elsewhere
		}
		for _, w := range windows {
			if event, flood := f.next(w); event != "" {
				flood.Rule = s.gate.RuleText(w.Rule)
				s.send(&Event{Time: time.Now().UTC(), Event: event, Flood: &flood})
				s.deps.Log.LogAttrs(ctx, slog.LevelWarn, "gate: "+event, slog.String("rule", flood.Rule), slog.Float64("packets_per_second", flood.Rate),
					slog.Uint64("sources", flood.Sources), slog.Float64("packets_per_source", flood.Each))
			}
		}
	}
}
