// Package capture is the second flow probe: it counts what packet sockets
// (AF_PACKET, TPACKET_V3) show of interfaces where BPF cannot be loaded, and
// what is in pcap and pcapng files. Input: interfaces, or a file. Output: flow
// deltas and counts by reason, the same as those of package datapath. Callers: the
// agent through flow.Probe, waymark flows --read through ReadFile.
//
// It needs CAP_NET_RAW and nothing else.
package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Config sizes the probe.
type Config struct {
	MaxEntries uint32        // flows of one interval
	RingSize   uint32        // bytes of the kernel's ring, of each interface
	SnapLen    uint32        // bytes of each packet that are looked at
	Sampling   uint32        // one packet in so many is counted; 0 or 1: all
	Tunnels    []flow.Tunnel // whose inner flows are counted
}

// Default is the configuration of an agent without any. Headers rarely take
// 300 bytes; a packet whose headers end beyond SnapLen counts as truncated.
func Default() Config {
	return Config{MaxEntries: 524288, RingSize: 16 << 20, SnapLen: 512, Sampling: 1}
}

// withDefaults fills in what is 0.
func (c Config) withDefaults() Config {
	d := Default()
	if c.MaxEntries == 0 {
		c.MaxEntries = d.MaxEntries
	}
	if c.RingSize == 0 {
		c.RingSize = d.RingSize
	}
	if c.SnapLen == 0 {
		c.SnapLen = d.SnapLen
	}
	return c
}

// Deps are what a probe works with.
type Deps struct {
	Log    *slog.Logger  // nil: silent
	Random func() uint32 // uniform, for sampling; nil: the runtime's own
}

// Target is an interface to attach to.
type Target struct {
	Iface        flow.Iface
	IfIndex      uint32 // 0: that in Iface
	Name         string
	NoLinkHeader bool // frames begin with the IP header
	// Directions are those that are counted; none: both.
	Directions []flow.Direction
	// Do runs a function on a thread that is in the interface's network
	// namespace; nil: the caller's own.
	Do func(func() error) error
}

// Capture is the probe. Its methods may be called from any goroutine.
type Capture struct {
	cfg Config
	log *slog.Logger

	draining sync.Mutex // held while deltas are emitted
	spare    *table     // not being filled

	mu     sync.Mutex // everything below
	rings  map[flow.Iface]*ring
	meter  *meter
	reader *reader // nil: not loaded, or closed
	stats  Stats
}

// New returns a probe that does nothing yet.
func New(cfg Config, deps Deps) *Capture {
	cfg = cfg.withDefaults()
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Random == nil {
		deps.Random = rand.Uint32
	}
	return &Capture{
		cfg: cfg, log: deps.Log,
		rings: map[flow.Iface]*ring{},
		meter: newMeter(cfg, deps.Random),
		spare: newTable(int(cfg.MaxEntries)),
	}
}

// Load starts the goroutine that reads the rings. The error wraps
// kernel.ErrMissing where a privilege is the reason.
func (c *Capture) Load() error {
	// Attaching comes later: a missing privilege shows now.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening packet socket: %w", explain(err))
	}
	_ = unix.Close(fd)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reader != nil {
		return errors.New("the probe is loaded already")
	}
	c.reader, err = startReader(c)
	return err
}

// explain adds the remedy to errors whose reason is outside the program.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: %w: run as root, or with CAP_NET_RAW", kernel.ErrMissing, err)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("%w: %w: load the kernel module af_packet", kernel.ErrMissing, err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %w: attach to fewer interfaces, or make the rings smaller", kernel.ErrMissing, err)
	}
	return err
}

// errNotLoaded is what every call but Load gets before it, and after Close.
var errNotLoaded = errors.New("the probe is not loaded")

// Attach counts what passes an interface from now on.
func (c *Capture) Attach(t Target) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reader == nil {
		return errNotLoaded
	}
	if c.rings[t.Iface] != nil {
		return fmt.Errorf("attaching to %s: attached already", t.Name)
	}
	do := t.Do
	if do == nil {
		do = func(f func() error) error { return f() }
	}
	var r *ring
	err := do(func() (err error) {
		r, err = openRing(t, c.cfg)
		return err
	})
	if err != nil {
		return fmt.Errorf("attaching to %s: %w", t.Name, err)
	}
	if err := c.reader.watch(r); err != nil {
		r.close()
		return fmt.Errorf("attaching to %s: %w", t.Name, err)
	}
	c.rings[t.Iface] = r
	return nil
}

// Detach stops counting on an interface, which may be gone by now. What it
// received is counted, and stays until the next drain.
func (c *Capture) Detach(iface flow.Iface) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rings[iface]
	if r == nil {
		return nil
	}
	return c.detach(r)
}

// detach shuts rings, all at once since each may take a while to settle.
func (c *Capture) detach(rings ...*ring) error {
	var errs []error
	for _, r := range rings {
		errs = append(errs, r.accept(0))
	}
	errs = append(errs, c.settle(rings, 100*retireAfter))
	for _, r := range rings {
		if r.behind() {
			errs = append(errs, fmt.Errorf("ring of %s: %d packets did not come in time, and are lost", r.target.Name, r.delivered-r.consumed))
		}
		r.close() // and so the reader forgets it
		delete(c.rings, r.target.Iface)
	}
	return errors.Join(errs...)
}

// settle counts all that the kernel received up to now: it hands over a block
// that is not full after retireAfter. A busy machine may take longer; then the
// rest counts later, or is lost when the ring is shut.
func (c *Capture) settle(rings []*ring, patience time.Duration) error {
	var errs []error
	deadline := time.Now().Add(patience)
	for _, r := range rings {
		if err := r.statistics(c.meter); err != nil {
			errs = append(errs, err)
			continue
		}
		for r.behind() && (r.read(c.meter) || r.wait(time.Until(deadline))) {
		}
	}
	return errors.Join(errs...)
}

// Close detaches from all interfaces and stops the reader. What was counted
// last can still be drained.
func (c *Capture) Close() error {
	c.mu.Lock()
	if c.reader == nil {
		c.mu.Unlock()
		return nil
	}
	var rings []*ring
	for _, r := range c.rings {
		rings = append(rings, r)
	}
	err := c.detach(rings...)
	reader := c.reader
	c.reader = nil
	c.mu.Unlock()
	reader.stop() // waits for it, and it takes the lock
	return err
}
