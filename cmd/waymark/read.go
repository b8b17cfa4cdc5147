package main

import (
	"os"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	offlineprobe "github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// readCapture answers a request from a capture file, as the agent would have
// from its interfaces. The interval is the time of its packets.
func readCapture(path string, r api.Request) (api.Answer, error) {
	s := store.New(store.Config{History: 1 << 24})
	var from, to time.Time
	interval := s.Begin(time.Time{})
	_, err := offlineprobe.ReadFile(path, offlineprobe.Default(), func(record *flow.Record) {
		if from.IsZero() || record.First.Before(from) {
			from = record.First
		}
		if record.Last.After(to) {
			to = record.Last
		}
		interval.Add(record)
	})
	if err != nil {
		return api.Answer{}, err
	}
	q, err := r.Query(time.Now())
	if err != nil {
		return api.Answer{}, err
	}
	interval.End(to)
	answer, err := s.Query(q)
	if err != nil {
		return api.Answer{}, err
	}
	answer.From = from
	host, err := os.Hostname()
	if err != nil {
		return api.Answer{}, err
	}
	return api.NewAnswer(answer, flow.Origin{Host: host}), nil
}
