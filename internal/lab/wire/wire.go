// Package wire is a path with known properties. Input: Ethernet frames at either of
// two interfaces. Output: the same frames at the other one, after a fixed delay, with
// the configured loss, duplicates and reordering, and exact counts of each. Package
// lab runs it in the topology "path", for the demo and for tests that compare
// measurements with the ground truth.
//
// Frames move through packet sockets with their virtio header, so GSO bursts and
// partial checksums pass unchanged. A burst is one frame: to drop single packets,
// disable the offloads of the hosts.
package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what the path does, from A to B and back.
type Config struct {
	AB Direction
	BA Direction
}

// Direction is what happens to frames that go one way. Every n-th frame that
// matches is dropped, doubled or swapped with the next; 0 is never. A frame to
// which several apply is dropped rather than doubled, doubled rather than swapped.
type Direction struct {
	Delay time.Duration
	Match Match // nil: Packets

	DropEvery      uint64
	DuplicateEvery uint64
	ReorderEvery   uint64 // at least 2

	// ReorderWait is how long a frame waits, beyond Delay, for a matching one that
	// overtakes it; then it goes on in order.
	ReorderWait time.Duration
}

// Default is a path that changes nothing.
func Default() Config {
	d := Direction{Match: Packets, ReorderWait: 100 * time.Millisecond}
	return Config{AB: d, BA: d}
}

// maxDelay bounds what has to be kept of a busy path.
const maxDelay = 10 * time.Second

// Validate reports impossible values.
func (c Config) Validate() error {
	for _, d := range []Direction{c.AB, c.BA} {
		if d.Delay < 0 || d.Delay > maxDelay {
			return fmt.Errorf("delay %v: choose 0 to %v", d.Delay, maxDelay)
		}
		if d.ReorderWait < 0 || d.ReorderWait > maxDelay {
			return fmt.Errorf("wait of a reordered frame %v: choose 0 to %v", d.ReorderWait, maxDelay)
		}
		if d.ReorderEvery == 1 {
			return errors.New("reorder every frame: a frame can only be swapped with one that stays; choose 2 or more")
		}
	}
	return nil
}

// Counts are what happened to the frames of one direction.
type Counts struct {
	Frames     uint64 `json:"frames"` // received; a GSO burst is one
	Bytes      uint64 `json:"bytes"`  // of them, link headers included
	Matched    uint64 `json:"matched"`
	Delivered  uint64 `json:"delivered"`
	Dropped    uint64 `json:"dropped"`    // injected
	Duplicated uint64 `json:"duplicated"` // injected
	Reordered  uint64 `json:"reordered"`  // injected: overtaken by the next that matches
	Waited     uint64 `json:"waited"`     // held to be overtaken, and nothing came in time

	// What was not asked for: 0 on a path that keeps up.
	Overflow    uint64 `json:"overflow"`    // lost before they were received
	QueueFull   uint64 `json:"queue_full"`  // lost for want of memory
	Unsupported uint64 `json:"unsupported"` // lost: longer than 64 KiB, or a GSO type that packet sockets do not know
	SendFailed  uint64 `json:"send_failed"` // lost: refused by the outgoing interface

	// How much later than due frames left.
	LateMean time.Duration `json:"late_mean_ns"`
	LateMax  time.Duration `json:"late_max_ns"`
}

// Lost is what the path lost without being asked to.
func (c Counts) Lost() uint64 { return c.Overflow + c.QueueFull + c.Unsupported + c.SendFailed }

// Stats are the counts of both directions.
type Stats struct {
	AB Counts `json:"ab"`
	BA Counts `json:"ba"`
}

// Deps are what a Relay works on.
type Deps struct {
	A, B string                   // the interfaces
	In   func(func() error) error // runs a function in their network namespace
	Log  *slog.Logger
}

// Relay moves frames between two interfaces.
type Relay struct {
	cfg   Config
	deps  Deps
	ready chan struct{}
	ab    *direction
	ba    *direction
}

// New makes a relay that does nothing until Run.
func New(cfg Config, deps Deps) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// One origin of time for both directions; monotonic.
	start := time.Now()
	return &Relay{
		cfg: cfg, deps: deps, ready: make(chan struct{}),
		ab: newDirection(cfg.AB, start), ba: newDirection(cfg.BA, start),
	}, nil
}

// Ready is closed when frames move.
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Change has the relay do something else, from the next frame of each direction on. It may be called while the relay runs.
func (r *Relay) Change(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	ab, ba := cfg.AB.withDefaults(), cfg.BA.withDefaults()
	r.ab.change.Store(&ab)
	r.ba.change.Store(&ba)
	return nil
}

// Stats are the counts so far.
func (r *Relay) Stats() Stats { return Stats{AB: r.ab.counts(), BA: r.ba.counts()} }

// Run moves frames until ctx is done; what is under way then is lost. It fails
// when an interface goes away or down. It may be called once.
func (r *Relay) Run(ctx context.Context) error {
	a, err := openPort(r.deps.A, r.deps.In)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := openPort(r.deps.B, r.deps.In)
	if err != nil {
		return err
	}
	defer b.close()
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make eventfd: %w", err)
	}
	defer unix.Close(stop)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _, _ = unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = r.ab.run(a, b, stop); cancel() })
	wg.Go(func() { errs[1] = r.ba.run(b, a, stop); cancel() })
	close(r.ready)
	r.deps.Log.Info("relay runs", "a", r.deps.A, "b", r.deps.B, "delay_ab", r.cfg.AB.Delay, "delay_ba", r.cfg.BA.Delay)
	wg.Wait()
	return errors.Join(errs[:]...)
}
