package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// What is a set of packets that somebody captures.
type What uint32

// The sets, of which some may be asked for together.
const (
	WhatDropped = What(engine.CaptureDropped)
	WhatSampled = What(engine.CaptureSampled) // by a rule
	WhatPassed  = What(engine.CapturePassed)
)

const (
	captureRing = 1 << 22 // bytes, while somebody captures
	// MaxSnap is how much of a frame is captured: one packet of the longest MTU.
	MaxSnap = 9216 + 18
)

// Packet is a captured packet. Its memory is used again.
type Packet struct {
	engine.Packet
	Time    time.Time
	Data    []byte
	Decided *rules.Rule // nil: none decided, or it is gone
	Sampled *rules.Rule
	Lost    uint64 // packets that were not captured, since the gate was loaded
}

// Is reports whether a packet is of a set.
func (p *Packet) Is(w What) bool {
	is := WhatPassed
	if p.Dropped() {
		is = WhatDropped
	}
	if p.Packet.Sampled != 0 {
		is |= WhatSampled
	}
	return is&w != 0
}

// Dropped reports the verdict.
func (p *Packet) Dropped() bool { return p.Action == engine.ActionDrop }

// Captures are what happened to packets that somebody asked for; running totals.
type Captures struct {
	Packets uint64 `json:"packets"` // captured
	Limited uint64 `json:"limited"` // beyond gate.capture_rate
	Full    uint64 `json:"full"`    // found the ring full
}

// capture gives packets to all who ask for them.
type capture struct {
	life    sync.Mutex // held while a reader comes or goes; guards all but the readers
	mu      sync.Mutex
	readers map[*captureReader]struct{}
	ring    *datapath.Ringbuf
	memory  *ebpf.Map
	stop    context.CancelFunc
	done    chan struct{}
}

type captureReader struct {
	what What
	emit func(*Packet)
}

// Capture calls emit for packets from now on, until ctx ends. emit must not block.
func (g *Gate) Capture(ctx context.Context, what What, emit func(*Packet)) error {
	r := &captureReader{what, emit}
	if err := g.capture.join(g, r); err != nil {
		return err
	}
	<-ctx.Done()
	return g.capture.leave(g, r)
}

func (c *capture) join(g *Gate, r *captureReader) error {
	c.life.Lock()
	defer c.life.Unlock()
	if c.ring == nil {
		if err := c.open(g); err != nil {
			return err
		}
	}
	return g.captures(c.change(func() { c.readers[r] = struct{}{} }))
}

func (c *capture) leave(g *Gate, r *captureReader) error {
	c.life.Lock()
	defer c.life.Unlock()
	wanted := c.change(func() { delete(c.readers, r) })
	err := g.captures(wanted)
	if wanted == 0 {
		err = errors.Join(err, c.close(g))
	}
	if errors.Is(err, datapath.ErrClosed) {
		return nil // the agent ends
	}
	return err
}

// change changes the readers, and returns what they want together.
func (c *capture) change(f func()) (w What) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers == nil {
		c.readers = map[*captureReader]struct{}{}
	}
	f()
	for r := range c.readers {
		w |= r.what
	}
	return w
}

// captures has the programs capture what somebody wants.
func (g *Gate) captures(w What) error {
	return g.do(func() error {
		next := g.control
		next.Capture, next.CaptureSnap = uint32(w), MaxSnap
		next.CaptureCost = uint64(time.Second) / uint64(max(g.cfg.CaptureRate, 1))
		return g.publish(&next)
	})
}

// open makes the ring.
func (c *capture) open(g *Gate) (err error) {
	if g.core == nil {
		return errNotLoaded
	}
	if c.memory, err = ebpf.NewMap(&ebpf.MapSpec{Name: "gate_ring", Type: ebpf.RingBuf, MaxEntries: captureRing}); err != nil {
		return fmt.Errorf("ring of captured packets: %w", err)
	}
	if err = g.maps["gate_rings"].Put(uint32(0), c.memory); err == nil {
		c.ring, err = datapath.OpenRingbuf(c.memory, 1)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("ring of captured packets: %w", err), c.memory.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan struct{})
	go c.run(ctx, g, c.ring, c.done)
	return nil
}

// close removes the ring, once no program writes to it.
func (c *capture) close(g *Gate) error {
	c.stop()
	<-c.done
	c.ring.Close()
	c.ring = nil
	err := g.do(func() error { return errors.Join(g.maps["gate_rings"].Delete(uint32(0)), g.core.Wait()) })
	return errors.Join(err, c.memory.Close())
}

// run gives packets to the readers.
func (c *capture) run(ctx context.Context, g *Gate, ring *datapath.Ringbuf, done chan struct{}) {
	defer close(done)
	names := captureNames{}
	for {
		more, err := ring.Wait(ctx)
		if err != nil {
			g.log.Warn("captured packets cannot be read", "error", err)
		}
		if err != nil || !more {
			return
		}
		if err := c.read(g, ring, &names); err != nil {
			g.log.Warn("captured packets cannot be read", "error", err)
		}
	}
}

func (c *capture) read(g *Gate, ring *datapath.Ringbuf, names *captureNames) error {
	now, err := datapath.Now()
	if err != nil {
		return err
	}
	lost, err := g.Captures()
	if err != nil {
		return err
	}
	names.update(g)
	p := Packet{Lost: lost.Limited + lost.Full}
	return ring.Read(func(raw []byte) error {
		const head = int(unsafe.Sizeof(engine.Packet{}))
		if len(raw) < head {
			return fmt.Errorf("element of %d bytes", len(raw))
		}
		p.Packet = *(*engine.Packet)(unsafe.Pointer(&raw[0]))
		p.Data = raw[head:min(head+int(p.Captured), len(raw))]
		p.Time = time.Unix(0, now.Wall-now.Mono+int64(p.Packet.Time))
		p.Decided, p.Sampled = names.rules[p.Packet.Decided], names.rules[p.Packet.Sampled]
		c.mu.Lock()
		defer c.mu.Unlock()
		for r := range c.readers {
			if p.Is(r.what) {
				r.emit(&p)
			}
		}
		return nil
	})
}

// captureNames are the rules by id: those in effect, and those before.
type captureNames struct {
	table *engine.Table
	rules map[uint32]*rules.Rule
}

func (n *captureNames) update(g *Gate) {
	_ = g.do(func() error {
		if g.table == n.table {
			return nil
		}
		all := map[uint32]*rules.Rule{}
		if n.table != nil {
			for _, r := range n.table.Rules {
				all[r.ID] = r
			}
		}
		for _, r := range g.table.Rules {
			all[r.ID] = r
		}
		n.table, n.rules = g.table, all
		return nil
	})
}

// Captures reads the totals.
func (g *Gate) Captures() (c Captures, err error) {
	if g.core == nil {
		return c, nil
	}
	sum, err := datapath.Total[engine.Captured](g.maps["gate_captures"], uint32(0))
	if err != nil {
		return c, fmt.Errorf("reading the counters of captured packets: %w", err)
	}
	return Captures{Packets: sum.Packets, Limited: sum.Limited, Full: sum.Full}, nil
}

// Verdict is how a rule came to drop the packet.
func (p *Packet) Verdict() flow.Verdict {
	switch {
	case !p.Dropped():
		return flow.VerdictNone
	case p.Packet.Decided == 0:
		return flow.VerdictBan
	case p.Decided == nil: // the rule is gone
		return flow.VerdictDrop
	}
	return verdicts[p.Decided.Action]
}
