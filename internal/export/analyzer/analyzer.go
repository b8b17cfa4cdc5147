// Package analyzer sends the intervals of an agent to an analyzer (waymark analyze), and the topology of its host. Input: the intervals of
// package store as they end. Output: frames, which wait in a queue on disk, and requests. Caller: the agent.
//
// The analyzer knows by the identity of an interval what it has; where it has another one with that identity, the queue goes on
// as another run.
package analyzer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/export/interval"
	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/obs"
)

// Config says where intervals go and where they wait.
type Config struct {
	URL           string // https://host:port
	CA, Cert, Key string // PEM files
	Path          string // directory of the queue
	Size          uint64 // bytes of it
	Timeout       time.Duration
	Sampling      uint32        // one packet in so many is counted
	Topology      func() []byte // of the host as it is, compressed; nil: none is sent
	TopologyEvery time.Duration // at most
}

// Default waits for an analyzer in another continent.
func Default() Config { return Config{Timeout: 30 * time.Second, TopologyEvery: 10 * time.Second} }

// Exporter sends intervals. It is a service of the agent: Listen, Run.
type Exporter struct {
	*interval.Sender
	receiver *receiver
}

// New prepares an exporter; nothing is opened before Listen. Files of the configuration are read now.
func New(cfg Config, log *slog.Logger) (*Exporter, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	r := &receiver{client: c, version: obs.ReadBuild().Version, topology: topology{make: cfg.Topology, every: cfg.TopologyEvery, log: log}}
	r.sender = interval.New(interval.Config{
		Name: "analyzer", Target: cfg.URL, Key: section + ".path", Path: cfg.Path, Size: cfg.Size, Most: frame.MostRequest, Pause: interval.FirstPause,
	}, r, log)
	return &Exporter{r.sender, r}, nil
}

// Status is that of the sender; where intervals are taken, the last error may be that of the topology.
func (e *Exporter) Status() obs.Exporter {
	s := e.Sender.Status()
	s.LastError = cmp.Or(s.LastError, e.receiver.topology.failing())
	return s
}

// receiver implements interval.Receiver.
type receiver struct {
	interval.Frames
	client   *client
	version  string
	sender   *interval.Sender
	topology topology
}

// Close ends the connection.
func (r *receiver) Close() { r.client.http.CloseIdleConnections() }

// Send sends intervals in one request, and then the topology, unless the analyzer has it.
func (r *receiver) Send(ctx context.Context, _ []queue.Entry, body []byte) (kept int, err error) {
	answer, err := r.client.post(ctx, frame.Path, body, r.version, r.sender.Lost())
	var x *refusal
	switch {
	case err == nil && answer.Topology != nil:
		r.topology.show(*answer.Topology, func(b []byte) error {
			_, err := r.client.post(ctx, frame.TopologyPath, b, r.version, r.sender.Lost())
			if ctx.Err() != nil {
				return nil // the end of the agent is no failure
			}
			return err
		})
	case !errors.As(err, &x):
	case x.reason == frame.ReasonOther:
		return answer.Kept, interval.ErrOther
	default:
		err = &interval.Busy{After: x.after, Err: err}
	}
	return answer.Kept, err
}
