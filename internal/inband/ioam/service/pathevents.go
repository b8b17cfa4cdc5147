package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/wire/ioam"
)

// The kinds of PathEvent.
const (
	eventNew    = "new"    // a path was seen first
	eventChange = "change" // flows moved from one path to another
	eventTrace  = "trace"  // the trace of one packet
)

// PathEvent is a new path, a change of path, or the trace of one packet.
type PathEvent struct {
	Event     string     `json:"event"` // new, change or trace
	Time      time.Time  `json:"time"`
	Namespace uint16     `json:"namespace"`
	Src       netip.Addr `json:"src"`
	Dst       netip.Addr `json:"dst"`
	Path      string     `json:"path"`           // of a change: the one that is taken now
	From      string     `json:"from,omitempty"` // of a change: the one that was taken before
	// Flows is how many flows moved; 0: other flows between the hosts take the new path.
	Flows *int       `json:"flows,omitempty"`
	Hops  []EventHop `json:"hops,omitempty"`
	// Reached is how many hops a packet made before a node sent it back (loopback).
	Reached int `json:"reached,omitempty"`

	// Missed is how many events before this one the reader was too slow for.
	Missed uint64 `json:"missed,omitempty"`
}

// EventHop is a node in the trace of one packet.
type EventHop struct {
	Hop
	Time         *time.Time     `json:"time,omitempty"`
	TransitDelay *time.Duration `json:"transit_delay_ns,omitempty"`
}

// Line implements api.Event.
func (e *PathEvent) Line(missed uint64) ([]byte, error) {
	sent := *e
	sent.Missed = missed
	return json.Marshal(&sent)
}

// Where the API has events and traces.
const (
	eventsPath = "/api/v1/paths/events"
	tracesPath = "/api/v1/paths/traces"
	// tracesPerSecond is how many traces each CPU reports.
	tracesPerSecond = 100
)

var (
	eventsStream = api.Stream{
		Path: eventsPath, Missing: pathsPage.Missing,
		Doc: "New IOAM paths, and flows that move from one to another, as `waymark paths --follow -o jsonl` shows them",
	}
	tracesStream = api.Stream{
		Path: tracesPath, Missing: pathsPage.Missing,
		Doc: "IOAM traces of single packets, as `waymark paths --raw -o jsonl` shows them; at most 100 per second and CPU",
	}
)

// events emits new paths and changes.
func (s *service) events(ctx context.Context, emit func(api.Event)) error {
	return s.node.StreamPaths(ctx, func(r *inbandioam.Report) { emit(s.event(eventNew, r)) }, func(c *inbandioam.Change) {
		emit(&PathEvent{
			Event: eventChange, Time: c.Time, Namespace: c.Namespace, Src: c.Source, Dst: c.Destination,
			Path: c.To.String(), From: c.From.String(), Flows: &c.Flows,
		})
	})
}

// traces emits single packets.
func (s *service) traces(ctx context.Context, emit func(api.Event)) error {
	return s.node.StreamTraces(ctx, tracesPerSecond, func(r *inbandioam.Report) { emit(s.event(eventTrace, r)) })
}

// event is a trace as it arrived.
func (s *service) event(kind string, r *inbandioam.Report) *PathEvent {
	e := &PathEvent{Event: kind, Time: r.Time, Namespace: r.Trace.Namespace, Src: r.Source, Dst: r.Destination, Path: r.Path.String(), Reached: r.Reached}
	for i := range r.Hops {
		e.Hops = append(e.Hops, s.eventHop(i+1, &r.Hops[i], r.Time))
	}
	return e
}

// eventHop is what a node says of itself and of the packet, received about this time.
func (s *service) eventHop(number int, h *ioam.Hop, near time.Time) EventHop {
	out := EventHop{Hop: hopOf(number, h)}
	if at, ok := h.Time(s.format, near); ok {
		out.Time = &at
	}
	if d, ok := h.Delay(); ok {
		out.TransitDelay = &d
	}
	return out
}

// followPaths writes events as they come.
func followPaths(ctx context.Context, c stage.Call) error {
	path := eventsPath
	switch {
	case c.Options["raw"]:
		path = tracesPath
	case c.Arg != "":
		return fmt.Errorf("--follow shows all paths: leave out %s", c.Arg)
	}
	if c.Format == "csv" {
		return errors.New("events have no common columns: write -o jsonl")
	}
	return c.Agent.Stream(ctx, path, func(raw json.RawMessage) error {
		var e PathEvent
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		if c.Format != "table" {
			_, err := fmt.Fprintf(c.Out, "%s\n", raw)
			return err
		}
		_, err := fmt.Fprintln(c.Out, e.text())
		return err
	})
}

// text is a line for people.
func (e *PathEvent) text() string {
	at := fmt.Sprintf("%s namespace %d %s > %s", e.Time.Local().Format("15:04:05.000000"), e.Namespace, e.Src, e.Dst)
	switch e.Event {
	case eventChange:
		what := "other flows"
		if e.Flows != nil && *e.Flows > 0 {
			what = fmt.Sprintf("flows: %d", *e.Flows)
		}
		return fmt.Sprintf("%s moved from path %s to %s (%s)", at, e.From, e.Path, what)
	case eventNew:
		return fmt.Sprintf("%s new path %s: %s", at, e.Path, e.nodes())
	}
	return fmt.Sprintf("%s path %s: %s", at, e.Path, e.nodes())
}

// nodes are the hops in short, with the transit delays that are known.
func (e *PathEvent) nodes() string {
	return hopNames(len(e.Hops), e.Reached, func(i int) string {
		text := e.Hops[i].name()
		if d := e.Hops[i].TransitDelay; d != nil {
			text += fmt.Sprintf(" (%v)", *d)
		}
		return text
	})
}
