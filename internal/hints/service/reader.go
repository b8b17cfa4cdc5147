package service

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hints"
)

// slots is how many interfaces are bound at a time: elements of hints_counts.
const slots = 64

// Reader is the stage in the kernel. Its methods may be called from any goroutine.
type Reader struct {
	cfg *Config
	log *slog.Logger

	mu      sync.Mutex
	core    *datapath.Core
	counts  *ebpf.Map
	devices map[flow.Iface]*bound
	used    [slots]bool
	passing
}

// bound is an interface with a program that is bound to it.
type bound struct {
	*hints.Device
	slot uint32
}

// NewReader has read nothing yet.
func NewReader(cfg *Config, log *slog.Logger) *Reader {
	return &Reader{cfg: cfg, log: log, devices: map[flow.Iface]*bound{}, passing: passing{takers: map[flow.Iface]uint32{}}}
}

// Stage registers it in the datapath. It runs wherever others run at XDP.
func (r *Reader) Stage() *datapath.Stage {
	return &datapath.Stage{
		Name: name, Programs: []*datapath.Program{datapath.Early}, Maps: []string{"hints_counts"},
		Set: r.set, Open: r.open, Forget: r.forget,
		Bound: func(h datapath.Hook) bool { return r.cfg.Use == "always" && offers(h, hints.Kinds()...) },
	}
}

// offers reports whether the driver of an interface has one of these hints. The caller is in its namespace.
func offers(h datapath.Hook, kinds ...hints.Kind) bool {
	d, err := hints.Examine(h.Target.Name)
	return err == nil && slices.ContainsFunc(kinds, d.Offered.Has)
}

// OffersTime reports whether packets of an interface may have a receive time at XDP: the reason for a stage to be
// bound to it. The caller is in its namespace.
func OffersTime(h datapath.Hook) bool { return offers(h, hints.Time) }

// OffersVLAN is the same of tags that are not in the frame.
func OffersVLAN(h datapath.Hook) bool { return offers(h, hints.VLAN) }

// set gives a copy that is bound to an interface its place in the maps.
func (r *Reader) set(s *datapath.Spec) error {
	if s.Bound == 0 {
		return nil
	}
	d, err := hints.ExamineIndex(int(s.Device))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.devices[s.Bound]
	if b == nil {
		slot := slices.Index(r.used[:], false)
		if slot < 0 {
			return fmt.Errorf("%d interfaces have programs that are bound to them: no more can be counted", slots)
		}
		r.used[slot] = true
		b = &bound{slot: uint32(slot)}
		r.devices[s.Bound] = b
	}
	b.Device = d
	if err := s.Enable("FEATURE_HINTS"); err != nil {
		return err
	}
	return s.SetConstants(map[string]any{"hints_slot": b.slot, "hints_hardware": d.Hardware, "hints_observed": r.cfg.Use == "always"})
}

func (r *Reader) open(c *datapath.Core) (err error) {
	r.counts, err = c.Map("hints_counts")
	r.core = c
	return err
}

// forget gives the place of an interface that is gone to another.
func (r *Reader) forget(i flow.Iface) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.devices[i]
	if b == nil {
		return nil
	}
	delete(r.devices, i)
	r.used[b.slot] = false
	if err := hints.ClearCounts(r.counts, b.slot); err != nil {
		return fmt.Errorf("forgetting the hints of interface %d: %w", i.IfIndex(), err)
	}
	return nil
}
