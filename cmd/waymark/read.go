package main

import (
	"context"
	"os"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	offlineprobe "github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// readCapture answers a request from a capture file, as the agent would have
// from its interfaces. The interval is the time of its packets. What was read
// before an error in the file (failed) is worth showing; err: there is no answer.
func readCapture(ctx context.Context, path string, r api.Request) (answer api.Answer, failed, err error) {
	s := store.New(store.Config{History: 1 << 24})
	var from, to time.Time
	interval := s.Begin(time.Time{})
	sum, failed := offlineprobe.ReadFile(path, offlineprobe.Default(), func(record *flow.Record) {
		if from.IsZero() || record.First.Before(from) {
			from = record.First
		}
		if record.Last.After(to) {
			to = record.Last
		}
		interval.Add(record)
	})
	if failed != nil && sum.Frames == 0 {
		return answer, nil, failed
	}
	q, err := r.Query(time.Now())
	if err != nil {
		return answer, nil, err
	}
	interval.End(to)
	found, err := s.Query(ctx, q)
	if err != nil {
		return answer, nil, err
	}
	found.From = from
	host, err := os.Hostname()
	if err != nil {
		return answer, nil, err
	}
	return api.NewAnswer(found, flow.Origin{Host: host}), failed, nil
}
