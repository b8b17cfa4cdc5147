// Package balance sends connections to backends at XDP, as a stage of the datapath: it fills the maps of bpf/balance.
// Input: services with their backends, what is known of their health, interfaces that the datapath attaches. Output: packets
// to a service that go to one of its backends, and counters by interface, service and backend. The agent registers it
// through package service.
package balance

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/kernel"
)

// The most of a kind that the tables of the programs have.
const (
	MaxServices = int(abiBalanceSizeBALANCE_SERVICES)
	MaxBackends = int(abiBalanceSizeBALANCE_BACKENDS)
	MaxQUICID   = 8 // bytes of the id of a backend
)

const (
	ports  = uint32(abiForwardSizeFORWARD_PORTS)
	ways   = int(abiBalanceSizeBALANCE_WAYS)
	counts = ports + uint32(MaxServices)
)

// Config is what only a restart changes.
type Config struct {
	Connections  uint32        // entries of the connection table
	NewPerSecond uint32        // connections that a CPU adds to it
	Idle         time.Duration // after which an established connection gives way
	Hints        bool          // programs may ask drivers for the VLAN tags that are not in frames
	Clients      func(iface string) bool
	Unwraps      func(iface string) bool
	Sources      []netip.Prefix // who may send encapsulated packets
}

var mapNames = []string{
	".data.balance", "balance_out", "balance_services", "balance_rings", "balance_backends", "balance_ids",
	"balance_sources", "balance_connections", "balance_counts", "balance_loads",
}

// Balancer balances between backends. Its methods may be called from any goroutine.
type Balancer struct {
	cfg Config
	log *slog.Logger

	core        *datapath.Core // nil: not loaded yet; below: guarded by it
	maps        map[string]*ebpf.Map
	connections datapath.Mapped[abiBalanceBucket]
	memory      datapath.Mapped[abiBalanceMemory] // one
	unit        time.Duration                     // of the time in the connection table
	ports       map[flow.Iface]*port
	services    map[Address]*service
	backends    []*backend // by number; nil: free
	checks      checks
	formers     []*former // agents before
	kept        bool      // the connection table outlives this agent
}

// New returns a balancer that has loaded nothing yet.
func New(cfg Config, log *slog.Logger) *Balancer {
	return &Balancer{cfg: cfg, log: log, ports: map[flow.Iface]*port{}, services: map[Address]*service{}, backends: make([]*backend, MaxBackends)}
}

// has reports whether an interface has a part in it.
func (b *Balancer) has(iface string) bool { return b.cfg.Clients(iface) || b.cfg.Unwraps(iface) }

// Stage registers the balancer in the datapath.
func (b *Balancer) Stage() *datapath.Stage {
	return &datapath.Stage{
		Name: "balance", Programs: []*datapath.Program{datapath.Early}, Maps: mapNames,
		Feature: uint32(abiFeatureFEATURE_BALANCE),
		Check: func() error {
			if err := kernel.TransmitFeatures.Check(); err != nil {
				return fmt.Errorf("%w: balance needs Linux %s, which says whether an interface sends frames of XDP (%w): update the kernel, or take balance out of the configuration", kernel.ErrMissing, kernel.TransmitFeatures.Since, err)
			}
			if err := kernel.TCX.Check(); err != nil {
				return fmt.Errorf("%w: balance needs Linux %s for its health checks (%w): update the kernel, or take balance out of the configuration", kernel.ErrMissing, kernel.TCX.Since, err)
			}
			return nil
		},
		Set:    b.set,
		Open:   b.open,
		Uses:   func(h datapath.Hook) bool { return h.Type == datapath.XDP && b.has(h.Target.Name) },
		Bound:  func(h datapath.Hook) bool { return b.cfg.Hints && hints.OffersVLAN(h) },
		Attach: b.attach, Detach: b.detach, Forget: b.forget,
		Explain: b.explain,
		Close: func() {
			b.checks.close()
			for _, f := range b.formers {
				f.close()
			}
			b.connections.Close()
			b.memory.Close()
		},
	}
}

// buckets is how many the connection table has, a power of two.
func (c *Config) buckets() uint32 { return 1 << bits.Len32((max(c.Connections, 1)-1)/uint32(ways)) }

// set sets sizes and constants.
func (b *Balancer) set(s *datapath.Spec) error {
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("asking for the length of a tick: %w", err)
	}
	length := time.Duration(max(tick.Nano(), 1))
	shift := bits.Len64(uint64(time.Second/length) - 1)
	b.unit = length << shift
	if err := s.SetSizes(map[string]uint32{
		"balance_backends": uint32(MaxBackends), "balance_loads": uint32(MaxBackends),
		"balance_counts": counts, "balance_connections": b.cfg.buckets(),
	}); err != nil {
		return err
	}
	return s.SetConstants(map[string]any{
		"cfg_balance_mask": b.cfg.buckets() - 1, "cfg_balance_shift": uint32(shift),
		"cfg_balance_idle": uint32(min(b.cfg.Idle/b.unit, 1<<15)), "cfg_balance_new": b.cfg.NewPerSecond,
	})
}

func (b *Balancer) open(c *datapath.Core) (err error) {
	if b.maps, err = c.Maps(mapNames...); err != nil {
		return err
	}
	if err := b.connections.Open(b.maps["balance_connections"]); err != nil {
		return err
	}
	if err := b.memory.Open(b.maps[".data.balance"]); err != nil {
		return err
	}
	if err := b.checks.open(b.maps["balance_backends"]); err != nil {
		return err
	}
	b.core = c
	b.findFormers()
	for _, p := range b.cfg.Sources {
		key := abiBalanceSource{Bits: uint32(p.Bits()), Addr: p.Addr().As16()}
		if p.Addr().Is4() {
			key.Bits += 96
		}
		if err := b.maps["balance_sources"].Put(&key, uint32(1)); err != nil {
			return fmt.Errorf("balance: sources of encapsulated packets: %w", err)
		}
	}
	return nil
}

var errNotLoaded = errors.New("balance: the datapath is not loaded")

// do runs a function while nothing is attached or drained.
func (b *Balancer) do(what func() error) error {
	if b.core == nil {
		return errNotLoaded
	}
	return b.core.Do(what)
}

// Seed is the number that the hash of connections begins with.
func Seed(text string) uint64 { return spread(text, 0) }
