package service

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/term"
)

// EventsPath is where the API reports bans as they come.
const EventsPath = "/api/v1/bans/events"

var eventsStream = api.Stream{
	Path:    EventsPath,
	Doc:     "Bans as they begin and end, as `waymark rules bans --follow -o jsonl` shows them",
	Missing: rulesPage.Missing,
}

// The kinds of events.
const (
	EventBan   = "ban"
	EventUnban = "unban"
	// EventDryRun is a ban that detection would have made.
	EventDryRun = "would_ban"
	// EventSpared is a source above a rate that is not banned; Reason says why.
	EventSpared = "spared"
)

// Event is what happened to a source.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	*Ban
	Flood *Flood `json:"flood,omitempty"`
	// Missed is how many events before this one the reader was too slow for.
	Missed uint64 `json:"missed,omitempty"`
}

// Line implements api.Event.
func (e *Event) Line(missed uint64) ([]byte, error) {
	sent := *e
	sent.Missed = missed
	return json.Marshal(&sent)
}

// report has the log and all who follow learn of a ban.
func (s *service) report(event string, b *Ban) {
	one := *b
	s.send(&Event{Time: time.Now().UTC(), Event: event, Ban: &one})
	attrs := []slog.Attr{
		slog.String("prefix", b.Prefix.String()), slog.String("by", b.By), slog.Int("level", b.Level), slog.Uint64("dropped", b.Dropped),
	}
	if b.Until != nil {
		attrs = append(attrs, slog.Time("until", *b.Until))
	}
	if b.Reason != "" {
		attrs = append(attrs, slog.String("reason", b.Reason))
	}
	if v := b.Evidence; v != nil {
		attrs = append(attrs, slog.Float64("rate", v.Rate), slog.Uint64("threshold", v.Threshold), slog.Uint64("error_bound", v.Error), slog.String("packet", v.Packet))
	}
	s.deps.Log.LogAttrs(context.Background(), slog.LevelInfo, "gate: "+event, attrs...)
}

// send passes an event to those who follow.
func (s *service) send(e *Event) {
	s.events.Lock()
	defer s.events.Unlock()
	if s.events.emit != nil {
		s.events.emit(e)
	}
}

// follow emits events until ctx ends.
func (s *service) follow(ctx context.Context, emit func(api.Event)) error {
	set := func(f func(api.Event)) {
		s.events.Lock()
		defer s.events.Unlock()
		s.events.emit = f
	}
	set(emit)
	defer set(nil)
	<-ctx.Done()
	return nil
}

// Text is the event as a line.
func (e *Event) Text() string {
	if e.Ban == nil {
		return fmt.Sprintf("%s  %s  %s/s of %s, each %.1f packets: %s", e.Time.Local().Format(time.DateTime), e.Event, term.SI(e.Flood.Rate),
			term.Number(e.Flood.Sources, "sources"), e.Flood.Each, e.Flood.Rule)
	}
	text := fmt.Sprintf("%s  %-5s  %s", e.Time.Local().Format(time.DateTime), e.Event, e.Prefix)
	if e.Event == EventUnban {
		return fmt.Sprintf("%s  dropped %s", text, term.Number(e.Dropped, "packets"))
	}
	if e.Until != nil {
		text += "  until " + e.Until.Local().Format(time.DateTime)
	}
	return strings.TrimSpace(fmt.Sprintf("%s  by %s  %s", text, e.By, e.Reason))
}
