package service

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hints"
	"github.com/waymark-net/waymark/internal/kernel"
)

const (
	maxTakers = uint32(abiHintsSizeHINTS_TAKERS)
	maxQueues = uint32(abiHintsSizeHINTS_QUEUES)
)

// Bits of hints_passed, by enum hint.
const (
	withTime = 1 << iota
	passHash
	passVLAN
)

// passing is what is known of interfaces whose packets carry their hints on. It is guarded by the lock of the reader.
type passing struct {
	takersMap *ebpf.Map
	sockets   *ebpf.Map
	queues    *ebpf.Map             // what sockets take
	takers    map[flow.Iface]uint32 // with the element of xsks_map that is their queue 0
}

// Passing registers a second stage: on some interfaces, packets carry their hints on.
func (r *Reader) Passing() *datapath.Stage {
	passes := func(h datapath.Hook) bool { return r.cfg.passes(h.Target.Name) }
	s := &datapath.Stage{
		Name: "metadata", Programs: []*datapath.Program{datapath.Early}, Maps: []string{"hints_takers", "xsks_map", "hints_queues"},
		Feature: uint32(abiFeatureFEATURE_META),
		Set:     r.setPassing, Open: r.openPassing,
		Uses:   passes,
		Bound:  r.binds,
		Attach: r.attach, Detach: r.detach,
	}
	if len(r.cfg.Metadata) > 0 {
		s.Anywhere = passes
	}
	return s
}

// binds reports whether the driver of an interface has a hint that is passed on.
func (r *Reader) binds(h datapath.Hook) bool {
	switch {
	case r.cfg.Use == "never":
		return false
	case r.cfg.MetadataTime:
		return offers(h, hints.Kinds()...)
	}
	return offers(h, hints.Hash, hints.VLAN)
}

func (r *Reader) openPassing(c *datapath.Core) error {
	m, err := c.Maps("hints_takers", "xsks_map", "hints_queues")
	r.takersMap, r.sockets, r.queues = m["hints_takers"], m["xsks_map"], m["hints_queues"]
	return err
}

// setPassing sets what is passed on, and whether to sockets.
func (r *Reader) setPassing(s *datapath.Spec) error {
	passed := uint32(passHash | passVLAN)
	if r.cfg.MetadataTime {
		passed |= withTime
	}
	sockets := len(r.cfg.Metadata) > 0 && kernel.SocketMap.Has()
	if m := s.Maps["xsks_map"]; sockets {
		m.Type, m.MaxEntries = ebpf.XSKMap, maxTakers*maxQueues
		s.Maps["hints_queues"].MaxEntries = m.MaxEntries
	}
	return s.SetConstants(map[string]any{"hints_passed": passed, "hints_sockets": sockets})
}

// attach has packets of an interface carry their hints on.
func (r *Reader) attach(h datapath.Hook) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.takers[h.Target.Iface]; known {
		return nil
	}
	first, free := r.freeTaker()
	if !free {
		r.log.Warn("hints are not passed on: too many interfaces", "interface", h.Target.String(), "most", maxTakers)
		return nil
	}
	t := abiHintsTaker{First: first}
	if r.cfg.Sockets == socketsTapped {
		t.Tapped = 1
	}
	if err := r.takersMap.Put(uint32(h.Target.Iface), &t); err != nil {
		return fmt.Errorf("passing on hints of %s: %w", h.Target.String(), err)
	}
	r.takers[h.Target.Iface] = first
	return nil
}

// freeTaker finds elements of xsks_map that no interface has.
func (r *Reader) freeTaker() (first uint32, free bool) {
	var taken []uint32
	for _, first := range r.takers {
		taken = append(taken, first)
	}
	for first := range maxTakers {
		if !slices.Contains(taken, first*maxQueues) {
			return first * maxQueues, true
		}
	}
	return 0, false
}

// detach has packets of an interface carry nothing any more, and leaves no socket of it to the next.
func (r *Reader) detach(h datapath.Hook) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, known := r.takers[h.Target.Iface]
	if !known {
		return nil
	}
	delete(r.takers, h.Target.Iface)
	errs := []error{r.takersMap.Delete(uint32(h.Target.Iface))}
	for queue := range maxQueues {
		if r.sockets.Type() != ebpf.XSKMap {
			break
		}
		if err := r.sockets.Delete(first + queue); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
		if err := r.queues.Put(first+queue, &abiHintsQueue{}); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("passing on no more hints of %s: %w", h.Target.String(), err)
	}
	return nil
}

// Passed is where hints are passed on to.
type Passed struct {
	Iface      string `json:"iface"`
	Netns      string `json:"netns,omitempty"`
	IfIndex    int    `json:"ifindex"`
	Time       bool   `json:"time"`                 // with the receive time
	Refused    uint64 `json:"refused"`              // frames without space in front of them: they carry none
	SocketMap  uint32 `json:"socket_map,omitempty"` // id of the map for AF_XDP sockets; 0: the kernel has none
	QueueMap   uint32 `json:"queue_map,omitempty"`  // id of the map in which sockets say how much they take
	FirstQueue uint32 `json:"first_queue"`          // the element of queue 0 in both
	Tapped     bool   `json:"tapped,omitempty"`     // sockets get only what tap rules of the gate select
}

// passed gathers the interfaces. The caller holds the lock.
func (r *Reader) passed(place func(flow.Iface) (name, netns string)) (all []Passed, err error) {
	var ids [2]ebpf.MapID
	if r.sockets.Type() == ebpf.XSKMap {
		for i, m := range []*ebpf.Map{r.sockets, r.queues} {
			info, err := m.Info()
			if err != nil {
				return nil, fmt.Errorf("asking for the ids of maps for AF_XDP: %w", err)
			}
			ids[i], _ = info.ID()
		}
	}
	for iface, first := range r.takers {
		var t abiHintsTaker
		if err := r.takersMap.Lookup(uint32(iface), &t); err != nil {
			return nil, fmt.Errorf("reading what was passed on of interface %d: %w", iface.IfIndex(), err)
		}
		one := Passed{IfIndex: int(iface.IfIndex()), Time: r.cfg.MetadataTime, Refused: t.Refused, SocketMap: uint32(ids[0]), QueueMap: uint32(ids[1]), FirstQueue: first, Tapped: t.Tapped != 0}
		one.Iface, one.Netns = place(iface)
		all = append(all, one)
	}
	return all, nil
}
