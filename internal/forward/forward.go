// Package forward has packets forwarded at XDP, as a stage of the datapath: it fills the maps of bpf/forward and
// follows what the kernel says of interfaces and of netfilter. Input: interfaces that the datapath attaches. Output:
// packets that leave by another of them as the kernel's tables say, and counters by what became of packets.
// The agent registers it through package service.
package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/forward/l2"
	"github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/order"
)

const (
	places = uint32(abiForwardSizeFORWARD_PORTS)
	ways   = uint32(abiForwardSizeFORWARD_WAYS)
	most   = int(abiForwardSizeFORWARD_MOST)
)

// spacing is between two times that changes are followed, at least.
const spacing = 20 * time.Millisecond

// lasts is how long an answer of the kernel's tables is used, as long as nothing is counted that changes it. What is not counted, as
// the MTU that an ICMP error reports, takes effect within that time.
const lasts = 50 * time.Millisecond

// refreshed is how often a packet to a neighbour is left to the kernel, at most.
const refreshed = 4 * time.Second

// Config is what only a restart changes.
type Config struct {
	BypassNetfilter bool // forward also where netfilter has rules
	Hints           bool // programs may ask drivers for the VLAN tags that are not in frames

	read func(ports map[uint32]bool) (*l2.State, error) // l2.Read, but in tests on kernels without VLANs
}

var mapNames = []string{".data.forward", "forward_out", "forward_ways", "forward_counts", "forward_known"}

// Forwarder forwards between the interfaces of one datapath. Its methods may be called from any goroutine.
type Forwarder struct {
	cfg  Config
	log  *slog.Logger
	poke chan struct{} // something may have changed

	watches    sync.WaitGroup
	neighbours neighbours

	core    *datapath.Core // nil: not loaded yet; below: guarded by it
	maps    map[string]*ebpf.Map
	memory  datapath.Mapped[abiForwardMemory] // one
	ports   map[flow.Iface]*port
	watched map[uint32]*watch               // by network namespace
	ways    map[abiForwardKey]abiForwardWay // as programs see them
	netns   int                             // how many have ports
	offload bool                            // programs find flows in flow tables
	full    bool                            // not all of them have a place
}

// port is an interface at which packets are forwarded, or were.
type port struct {
	hook     datapath.Hook
	attached bool
	place    uint32
	examined
	sends bool           // it is in forward_out
	shown abiForwardPort // to programs
}

// New returns a forwarder that has loaded nothing yet.
func New(cfg Config, log *slog.Logger) *Forwarder {
	if cfg.read == nil {
		cfg.read = l2.Read
	}
	return &Forwarder{cfg: cfg, log: log, poke: make(chan struct{}, 1), ports: map[flow.Iface]*port{}, watched: map[uint32]*watch{}, ways: map[abiForwardKey]abiForwardWay{}}
}

// Stage registers the forwarder in the datapath. names reports whether packets of an interface are forwarded.
func (f *Forwarder) Stage(names func(string) bool) *datapath.Stage {
	return &datapath.Stage{
		Name: "forward", Programs: []*datapath.Program{datapath.Early}, Maps: mapNames,
		Feature: uint32(abiFeatureFEATURE_FORWARD),
		Check: func() error {
			if err := kernel.TransmitFeatures.Check(); err != nil {
				return fmt.Errorf("%w: forward needs Linux %s, which says whether an interface sends frames of XDP (%w): update the kernel, or take forward out of the configuration", kernel.ErrMissing, kernel.TransmitFeatures.Since, err)
			}
			return nil
		},
		Set:    f.set,
		Open:   f.open,
		Uses:   func(h datapath.Hook) bool { return h.Type == datapath.XDP && names(h.Target.Name) },
		Bound:  func(h datapath.Hook) bool { return f.cfg.Hints && service.OffersVLAN(h) },
		Attach: f.attach, Detach: f.detach, Forget: f.forget,
		Explain: f.explain,
		Close:   f.close,
	}
}

// set sets how many ticks a packet to each neighbour is left to the kernel, and for how many CPUs something is remembered.
func (f *Forwarder) set(s *datapath.Spec) error {
	tick, err := tickOf()
	if err != nil {
		return err
	}
	cpus, err := kernel.CPUs("online")
	if err != nil {
		return err
	}
	if err := s.SetMaxEntries("forward_known", uint32(cpus)); err != nil {
		return err
	}
	if err := s.SetConstant("cfg_forward_changes", kernel.TellsChanges()); err != nil {
		return err
	}
	if err := f.setOffload(s); err != nil {
		return err
	}
	return s.SetConstant("cfg_forward_shift", uint32(bits.Len64(uint64(refreshed/tick)-1)))
}

// tickOf is the length of a tick of the kernel's timer.
func tickOf() (time.Duration, error) {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return 0, fmt.Errorf("asking for the length of a tick: %w", err)
	}
	return time.Duration(max(tick.Nano(), 1)), nil
}

func (f *Forwarder) open(c *datapath.Core) (err error) {
	if f.maps, err = c.Maps(mapNames...); err != nil {
		return err
	}
	f.core = c
	if err := f.memory.Open(f.maps[".data.forward"]); err != nil {
		return err
	}
	tick, err := tickOf()
	if err != nil {
		return err
	}
	if err := f.neighbours.open(f.maps[".data.forward"]); err != nil {
		f.log.Warn("forward: a neighbour's new link address takes effect only at the next tick of the kernel's timer", "error", err)
		tick = lasts
	}
	f.memory.Values[0].Lasts = uint32(max(lasts/tick, 1))
	return nil
}

var errNotLoaded = errors.New("forward: the datapath is not loaded")

// do runs a function while nothing is attached or drained.
func (f *Forwarder) do(what func() error) error {
	if f.core == nil {
		return errNotLoaded
	}
	return f.core.Do(what)
}

// Run follows changes until the datapath closes.
func (f *Forwarder) Run(ctx context.Context) {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.poke:
		case <-beat.C:
		}
		err := f.Refresh()
		if err != nil && !errors.Is(err, datapath.ErrClosed) {
			f.log.Warn("forward: what the kernel says of interfaces is not known; packets go to the kernel until it is", "error", err)
		}
		select { // stations of bridges come and go often
		case <-ctx.Done():
		case <-time.After(spacing):
		}
	}
}

// Refresh has forwarding follow what the kernel says now of interfaces and of netfilter. As long as it succeeds, programs
// forward; otherwise they cease after a few seconds.
func (f *Forwarder) Refresh() error {
	return f.do(func() error {
		var errs []error
		known := map[uint32]passing{}
		for _, p := range f.sorted() {
			if p.attached {
				errs = append(errs, f.follow(p, known))
			}
		}
		if err := errors.Join(append(errs, f.publish())...); err != nil {
			return err
		}
		f.sayAlive()
		return nil
	})
}

// sayAlive tells programs that somebody follows what changes.
func (f *Forwarder) sayAlive() { atomic.AddUint32(&f.memory.Values[0].Beat, 1) }

func (f *Forwarder) sorted() (all []*port) {
	for _, p := range f.ports {
		all = append(all, p)
	}
	order.By(all, func(a, b *port) int { return cmp.Compare(a.hook.Target.Iface, b.hook.Target.Iface) })
	return all
}

// attach makes an interface a port, or follows its new name.
func (f *Forwarder) attach(h datapath.Hook) error {
	iface := h.Target.Iface
	p := f.ports[iface]
	if p == nil {
		place, err := f.freePlace(uint32(iface))
		if err != nil {
			f.log.Warn("forward: the kernel forwards", "interface", h.Target.String(), "reason", err)
			return nil
		}
		if err := f.maps["forward_counts"].Put(place, make([]abiForwardCount, ebpf.MustPossibleCPU())); err != nil {
			return fmt.Errorf("forwarding of %s: %w", h.Target.String(), err)
		}
		p = &port{place: place}
		f.ports[iface] = p
	}
	p.hook, p.attached = h, true
	f.watch(h.Target).dirty.Store(true)
	if err := errors.Join(f.follow(p, map[uint32]passing{}), f.publish()); err != nil {
		return err
	}
	f.sayAlive()
	return nil
}

// freePlace finds one where programs look for an interface.
func (f *Forwarder) freePlace(iface uint32) (uint32, error) {
	taken := map[uint32]bool{}
	for _, p := range f.ports {
		taken[p.place] = true
	}
	return FreePlace(iface, taken)
}

// follow has a port be as the kernel says now. known is what packets would not pass, by network namespace: all ports of one
// share it.
func (f *Forwarder) follow(p *port, known map[uint32]passing) error {
	var now examined
	err := p.hook.Target.Do(func() (err error) {
		here, ok := known[p.hook.Target.Netns]
		if !ok {
			if here, err = passingHere(f.cfg.BypassNetfilter, f.offload); err != nil {
				return err
			}
			known[p.hook.Target.Netns] = here
		}
		now, err = examine(p.hook, here)
		return err
	})
	if err != nil { // it may be gone, which the datapath will learn
		now = examined{off: err.Error(), closed: err.Error()}
	}
	if now.off != p.off || now.closed != p.closed || now.only != p.only {
		f.report(p, &now)
	}
	now.routes = p.routes
	p.examined = now
	return nil
}

// report has the log say why the kernel does it.
func (f *Forwarder) report(p *port, now *examined) {
	name := p.hook.Target.String()
	switch {
	case now.off != "":
		f.log.Warn("forward: packets of an interface are left to the kernel", "interface", name, "reason", now.off)
	case now.closed != "":
		f.log.Warn("forward: packets to an interface are left to the kernel", "interface", name, "reason", now.closed)
	case now.only != "":
		f.log.Info("forward: of an interface, flows of flow tables are forwarded at XDP", "interface", name, "reason", now.only)
	default:
		f.log.Info("forward: packets of an interface are forwarded at XDP", "interface", name)
	}
}

// publish shows programs all ports as they are, and what is above them.
func (f *Forwarder) publish() error {
	if err := f.followUpper(); err != nil {
		return err
	}
	var errs []error
	for _, p := range f.sorted() {
		errs = append(errs, f.publishPort(p))
	}
	return errors.Join(errs...)
}

// publishPort shows programs a port as it is: one that is to send is in the map of devices before, and one that is not to,
// afterwards.
func (f *Forwarder) publishPort(p *port) error {
	iface := uint32(p.hook.Target.Iface)
	sends := p.port.Flags&uint32(abiForwardFlagFORWARD_SENDS) != 0 && p.attached
	if sends && !p.sends {
		if err := p.hook.Target.Do(func() error { return f.maps["forward_out"].Put(iface, p.index) }); err != nil {
			return fmt.Errorf("forwarding to %s: %w", p.hook.Target.String(), err)
		}
		p.sends = true
	}
	entry := abiForwardPort{}
	if p.attached && p.off == "" {
		entry = p.port
		entry.Iface = iface
	}
	if p.shown != entry {
		f.memory.Values[0].Ports[p.place], p.shown = entry, entry
	}
	if sends || !p.sends {
		return nil
	}
	p.sends = false
	err := f.core.Wait()
	if gone := f.maps["forward_out"].Delete(iface); !errors.Is(gone, ebpf.ErrKeyNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// detach leaves the packets of an interface to the kernel.
func (f *Forwarder) detach(h datapath.Hook) error {
	p := f.ports[h.Target.Iface]
	if p == nil {
		return nil
	}
	p.attached = false
	err := f.publishPort(p)
	if w := f.watched[h.Target.Netns]; w != nil {
		w.dirty.Store(true)
	}
	f.unwatch(h.Target.Netns)
	return err
}

// forget gives the place of an interface that is gone to another.
func (f *Forwarder) forget(i flow.Iface) error {
	delete(f.ports, i)
	return nil
}

func (f *Forwarder) close() {
	for i := range f.memory.Values {
		clear(f.memory.Values[i].Ports[:]) // programs that stay on interfaces forward no more: nobody follows changes
	}
	for netns := range f.watched {
		f.endWatch(netns)
	}
	f.watches.Wait()
	if err := f.neighbours.close(); err != nil {
		f.log.Debug("forward: counting changes of neighbours does not end", "error", err)
	}
	f.memory.Close()
}

// Port is an interface and what became of its packets.
type Port struct {
	Iface    flow.Iface
	Mode     string // how the program at XDP is attached
	Off      string // why packets that arrive are not forwarded; empty: they are
	Closed   string // why packets do not leave by it
	Only     string // why only packets of flows in flow tables of nftables are forwarded; empty: all are
	V4, V6   bool   // the kernel forwards packets of this version that arrive
	Packets  [results]uint64
	Bytes    uint64 // that were forwarded
	Attached bool
}

// Ports are all interfaces.
func (f *Forwarder) Ports() (list []Port, err error) {
	err = f.do(func() error {
		for _, p := range f.sorted() {
			var counts []abiForwardCount
			if err := f.maps["forward_counts"].Lookup(p.place, &counts); err != nil {
				return fmt.Errorf("reading what was forwarded: %w", err)
			}
			one := Port{Iface: p.hook.Target.Iface, Mode: string(p.hook.Target.Early), Off: p.off, Closed: p.closed, Only: p.only, Attached: p.attached}
			if !p.attached {
				one.Mode, one.Off = "none", "it is not attached to"
			}
			for i := range counts {
				for result, n := range counts[i].Packets {
					one.Packets[result] += n
				}
				one.Bytes += counts[i].Bytes
			}
			_ = p.hook.Target.Do(func() error { // of an interface that is gone, nothing is known
				one.V4, one.V6 = forwards(cmp.Or(p.routes, p.hook.Target.Name))
				return nil
			})
			list = append(list, one)
		}
		return nil
	})
	return list, err
}

// Bypasses reports whether rules of netfilter are bypassed in the namespace of a port.
func (f *Forwarder) Bypasses() (names []string, err error) {
	err = f.do(func() error {
		known := map[uint32]bool{}
		for _, p := range f.ports {
			if !p.attached || p.off != "" || p.only != "" || known[p.hook.Target.Netns] {
				continue
			}
			known[p.hook.Target.Netns] = true
			if err := p.hook.Target.Do(func() error {
				more, err := chains(families)
				if w := f.watched[p.hook.Target.Netns]; err == nil && w != nil && w.upper != nil && w.upper.bridges {
					var ofBridges []string
					ofBridges, err = bridgeChains()
					more = append(more, ofBridges...)
				}
				for _, name := range more {
					if !slices.Contains(names, name) {
						names = append(names, name)
					}
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return names, err
}
