package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/waymark-net/waymark/internal/access"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/past"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
)

// Explore serves the console of an agent with a generated hour of history, and with the traffic of
// a lab from then on, until ctx ends or the lab is taken down. It writes one line to Out: the address.
func Explore(ctx context.Context, cfg Config, port uint16) (err error) {
	d := &demo{Config: cfg}
	if d.dir, err = os.MkdirTemp("", "waymark-demo-"); err != nil {
		return fmt.Errorf("place for the agent's files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	l, err := lab.Up(lab.Config{Topology: "chain", Prefix: d.Prefix})
	if err != nil {
		return err
	}
	defer func() {
		_, stopErr := d.stop()
		err = errors.Join(err, stopErr, l.Down())
	}()
	d.history = filepath.Join(d.dir, "history")
	if err := writePast(d.history, time.Now()); err != nil {
		return err
	}
	a, err := d.launch(l.Host("porthos"), "")
	if err != nil {
		return err
	}
	if err := a.ready(ctx); err != nil {
		return err
	}
	return d.serve(ctx, l, a, port)
}

// serve shows the agent to this user's browser while there is traffic.
func (d *demo) serve(ctx context.Context, l *lab.Lab, a *agent, port uint16) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	console, err := access.NewLocal(a.socket, port, access.Users(), slog.New(slog.NewTextHandler(d.Log, nil)))
	if err != nil {
		return err
	}
	moving := make(chan error, 1)
	go func() { moving <- keepTalking(ctx, l) }()
	go func() {
		select {
		case <-a.gone: // the lab was taken down
		case err := <-moving:
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(d.Log, "the traffic of the lab ended: %v\n", err)
			}
			return
		case <-ctx.Done():
		}
		cancel()
	}()
	if _, err := fmt.Fprintln(d.Out, console.URL()); err != nil {
		return err
	}
	return console.Run(ctx)
}

// writePast writes the hour before a time as an agent that has run would have.
func writePast(path string, end time.Time) error {
	s, err := disk.Open(disk.Config{Path: path, Size: 1 << 30}, disk.Deps{Origin: flow.Origin{Sampling: 1}, Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		return fmt.Errorf("write the history of the demonstration: %w", err)
	}
	memory := store.New(store.Default())
	memory.OnEnd(s.Append)
	past.New(end, 1).Intervals(func(from, to time.Time, records []flow.Record) {
		iv := memory.Begin(from)
		for i := range records {
			iv.Add(&records[i])
		}
		iv.End(to)
	})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return s.Run(ended) // writes what waits, and closes the files
}

// keepTalking has alpha ask a service of beta until ctx ends.
func keepTalking(ctx context.Context, l *lab.Lab) error {
	alpha, beta := l.Host("alpha"), l.Host("beta")
	service, err := traffic.Serve(ctx, beta, traffic.ServiceConfig{
		Network: "tcp", Listen: netip.AddrPortFrom(beta.Addr6(), 8080), Think: 5 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer service.Close()
	for ctx.Err() == nil {
		if _, err := traffic.Request(ctx, alpha, traffic.RequestConfig{
			Network: "tcp", To: service.Addr(), Clients: 3, Requests: 100, RequestSize: 300, ResponseSize: 9000, Interval: 50 * time.Millisecond,
		}); err != nil {
			return err
		}
	}
	return nil
}
