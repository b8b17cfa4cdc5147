// Package ioam is an IOAM node (RFC 9197, RFC 9486) in the kernel, as a stage of the
// datapath: it fills the maps of bpf/ioam. Input: the description of the node, and the
// interfaces that the datapath attaches. Output: the node in the programs, and counts
// by reason. The agent registers it through package stage.
package ioam

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/wire/ioam"
)

// Transit is where a node writes its data into packets that arrive.
type Transit string

// The places. Auto is XDP in the driver, but not on veth: with a program at XDP, its
// peer segments all packets before it sends them.
const (
	TransitAuto Transit = "auto"
	TransitXDP  Transit = "xdp"
	TransitTC   Transit = "tc"
)

// Config is what only a restart changes.
type Config struct {
	Time    ioam.TimeFormat
	Transit Transit
	Paths   uint32 // how many are counted at a time; 0: DefaultPaths
	Border  Border // empty: off
	NICTime bool   // receive times are those of the NIC, where a packet has one
	// Bound reports whether the driver of an interface shows programs at XDP these times; nil: none does.
	Bound func(datapath.Hook) bool
}

// DefaultPaths is how many paths are counted at a time.
const DefaultPaths = 128

// maxCounts is how many combinations of interface, direction, reason and namespace are
// counted.
const maxCounts = 8192

// maxIfaces is how many interfaces the agent attaches to, and maxRoles how many roles for
// single namespaces they have; elements are allocated when needed.
const (
	maxIfaces = 32768
	maxRoles  = 4096
)

// mapNames are the maps that the stage owns.
var mapNames = []string{
	"ioam_namespaces", "ioam_schemas", "ioam_ifaces", "ioam_roles", "ioam_counts", "ioam_cpus", ".data.ioam",
	"ioam_insertions", "ioam_templates", "ioam_prefixes", "ioam_rules", "ioam_answers", "ioam_insertion_states", "ioam_sequences", "ioam_proofs",
	"ioam_guards", "ioam_watches", "ioam_queues", "ioam_nics",
}

// Registrar is the node of one datapath. Its methods may be called from any goroutine.
type Registrar struct {
	cfg      Config
	cookie   uint32
	pathKeys [abiIoamPathSizeIOAM_PATH_KEYS]uint32
	paths    *paths
	direct   direct
	queues   queues
	echoes   echoes

	core *datapath.Core // nil: not loaded yet; below: guarded by it
	maps map[string]*ebpf.Map
	node Node
	// control is what the programs see.
	control abiIoamControl
	ifaces  map[flow.Iface]string              // attached, with their names
	indexes map[flow.Iface]int                 // of these, in their namespaces
	hooks   map[flow.Iface][]datapath.HookType // of these, at which the stage runs
	stacks  map[uint32]stack                   // by namespace
	kept    map[string]kept                    // by identity of the insertion
	stop    chan struct{}
	end     func() // closes stop, once
	// endAsking ends what asks the ends of tunnels; nil: nothing does.
	endAsking chan struct{}
	// Numbers given so far.
	lastInsertion, generation uint32

	early sync.Map // flow.Iface: whether XDP is wanted
}

// New returns a node that has loaded nothing yet. Before Apply it has no interface.
func New(cfg Config) *Registrar {
	var b [4 + 4*abiIoamPathSizeIOAM_PATH_KEYS]byte
	_, _ = rand.Read(b[:]) // never fails
	stop := make(chan struct{})
	return &Registrar{
		cfg: cfg, cookie: binary.LittleEndian.Uint32(b[:]), pathKeys: pathKeys(b[4:]),
		paths: newPaths(cmp.Or(cfg.Paths, DefaultPaths)), ifaces: map[flow.Iface]string{},
		indexes: map[flow.Iface]int{}, hooks: map[flow.Iface][]datapath.HookType{}, stacks: map[uint32]stack{},
		stop: stop, end: sync.OnceFunc(func() { close(stop) }),
	}
}

// Stage registers the node in the datapath. names reports whether an interface may
// become one of the node's. All others are its border.
func (r *Registrar) Stage(names func(string) bool) *datapath.Stage {
	return &datapath.Stage{
		Name:     "ioam",
		Programs: []*datapath.Program{datapath.Ingress, datapath.Egress, datapath.Early},
		Maps:     slices.Concat(mapNames, pathMaps, directMaps),
		Feature:  uint32(abiFeatureFEATURE_IOAM),
		Set:      r.set,
		Open:     r.open,
		Uses: func(h datapath.Hook) bool {
			if names(h.Target.Name) {
				return r.uses(h)
			}
			return r.guards(h)
		},
		Bound:  r.bound,
		Attach: r.attached,
		Detach: r.detached,
		Drain:  r.paths.drain,
		Forget: r.forget,
		Close:  r.close,
	}
}

// uses reports whether the node has work at a hook.
func (r *Registrar) uses(h datapath.Hook) bool {
	if h.Type != datapath.XDP {
		return len(h.Target.Directions) == 0 || slices.ContainsFunc(h.Target.Directions, func(d flow.Direction) bool { return datapath.HookOf(d) == h.Type })
	}
	if r.cfg.Transit != TransitAuto {
		return r.cfg.Transit == TransitXDP
	}
	if r.cfg.NICTime && !r.bound(h) { // tc sees it
		return false
	}
	if known, ok := r.early.Load(h.Target.Iface); ok {
		return known.(bool)
	}
	l, err := netlink.LinkByName(h.Target.Name)
	wanted := err == nil && l.Type() != "veth"
	r.early.Store(h.Target.Iface, wanted)
	return wanted
}

// bound reports whether the program at XDP reads the time of the network card.
func (r *Registrar) bound(h datapath.Hook) bool {
	return h.Type == datapath.XDP && r.cfg.NICTime && r.cfg.Bound != nil && r.cfg.Bound(h)
}

func (r *Registrar) forget(i flow.Iface) error {
	r.early.Delete(i)
	return nil
}

var timeFormats = map[ioam.TimeFormat]uint32{
	ioam.POSIX: uint32(abiIoamTimeIOAM_TIME_POSIX), ioam.PTP: uint32(abiIoamTimeIOAM_TIME_PTP), ioam.NTP: uint32(abiIoamTimeIOAM_TIME_NTP),
}

// set sets sizes and constants.
func (r *Registrar) set(s *datapath.Spec) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	if err := s.SetSizes(map[string]uint32{
		"ioam_cpus": uint32(cpus), "ioam_namespaces": copies * slots, "ioam_schemas": copies * maxSchemas,
		"ioam_ifaces": maxIfaces, "ioam_roles": copies * maxRoles, "ioam_counts": maxCounts, "ioam_proofs": copies * maxProofs,
		"ioam_queues": maxIfaces, "ioam_nics": maxIfaces,
	}); err != nil {
		return err
	}
	if s.Maps["ioam_paths"] != nil { // only at tc
		if err := s.SetSizes(insertionSizes); err != nil {
			return err
		}
		if err := s.SetSizes(r.paths.sizes(uint32(cpus))); err != nil {
			return err
		}
		if err := s.SetSizes(r.direct.sizes()); err != nil {
			return err
		}
		if err := s.SetConstants(map[string]any{"cfg_ioam_path_keys": r.pathKeys, "cfg_ioam_cells": r.paths.cells()}); err != nil {
			return err
		}
	}
	if err := setFlows(s); err != nil {
		return err
	}
	return s.SetConstants(map[string]any{
		"cfg_ioam_time": timeFormats[r.cfg.Time], "cfg_ioam_cookie": r.cookie, "cfg_ioam_stamp": kernel.DeliveryTime.Has(),
		"cfg_ioam_nic": r.cfg.NICTime && kernel.DeliveryTime.Has(),
	})
}

// open gets the maps.
func (r *Registrar) open(c *datapath.Core) (err error) {
	if r.maps, err = c.Maps(mapNames...); err != nil {
		return err
	}
	r.paths.cpus = r.maps["ioam_cpus"]
	if err := r.paths.open(c); err != nil {
		return err
	}
	if err := r.direct.open(c); err != nil {
		return err
	}
	r.core = c
	if err := r.apply(Node{}); err != nil {
		return err
	}
	go r.followClock()
	go r.followPaths()
	go r.direct.run(r.stop)
	go r.followQueues()
	return nil
}

// followPaths learns of new paths at once.
func (r *Registrar) followPaths() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-r.stop
		cancel()
	}()
	_ = r.paths.follow(ctx) // should it fail, a drain reads the ring and reports why
}

// close ends what runs in addition to the datapath.
func (r *Registrar) close() {
	r.end()
	if r.paths.reports != nil {
		r.paths.reports.Close()
	}
	r.direct.close()
	r.queues.close()
	r.echoes.close()
}

// Paths are the paths of traces that end at this node, those with the most packets first.
func (r *Registrar) Paths() []Path { return r.paths.list() }

// Flows are the flows of packets with traces, those with the most packets first.
func (r *Registrar) Flows() []Flow { return r.paths.listFlows() }

// Edges are the senders of edge-to-edge options that end at this node, those with the most
// packets first.
func (r *Registrar) Edges() (list []Edge, err error) {
	err = r.do(func() (err error) {
		list, err = r.paths.edges()
		return err
	})
	return list, err
}

// PathStats reads the totals of paths.
func (r *Registrar) PathStats() (s PathStats, err error) {
	err = r.do(func() (err error) {
		s, err = r.paths.stats()
		return err
	})
	return s, err
}

// errNotLoaded is what callers get before the datapath is loaded.
var errNotLoaded = errors.New("ioam: the datapath is not loaded")

func (r *Registrar) do(f func() error) error {
	if r.core == nil {
		return errNotLoaded
	}
	return r.core.Do(f)
}

// Apply replaces the node: each packet sees the old one or the new one.
func (r *Registrar) Apply(n Node) error {
	return r.do(func() error { return r.apply(n) })
}

// Refresh has the programs follow the names of the node's interfaces (Stage).
func (r *Registrar) Refresh() error {
	if r.core == nil {
		return errNotLoaded
	}
	return r.core.Refresh()
}

// attached registers an interface with its first hook, or follows its new name.
func (r *Registrar) attached(h datapath.Hook) error {
	if on := r.hooks[h.Target.Iface]; !slices.Contains(on, h.Type) {
		r.hooks[h.Target.Iface] = append(on, h.Type)
	}
	return r.join(h.Target)
}

// detached forgets an interface with its last hook.
func (r *Registrar) detached(h datapath.Hook) error {
	i := h.Target.Iface
	r.hooks[i] = slices.DeleteFunc(r.hooks[i], func(t datapath.HookType) bool { return t == h.Type })
	if len(r.hooks[i]) > 0 {
		return nil
	}
	delete(r.hooks, i)
	return r.detach(i)
}

// join registers an interface, or follows its new name.
func (r *Registrar) join(t *datapath.Target) error {
	listed := r.node.interfaceNamed(t.Name) != nil
	if err := r.place(t, listed); err != nil {
		return err
	}
	if err := r.queues.join(t); err != nil {
		return err
	}
	r.echoes.join(t)
	r.direct.looper.join(t)
	r.indexes[t.Iface] = int(t.IfIndex)
	if err := r.attach(t.Iface, t.Name); err != nil || !listed {
		return err
	}
	for i, name := range r.ifaces { // of which some may share frames with it
		if err := r.attach(i, name); err != nil {
			return err
		}
	}
	return nil
}

// attach writes an interface into both copies of the node.
func (r *Registrar) attach(i flow.Iface, name string) error {
	r.ifaces[i] = name
	value := abiIoamIface{}
	for which := range copies {
		value.Copy[which] = r.port(i, name, &r.node)
		if err := r.exceptions(i, name, which, r.node); err != nil {
			return err
		}
	}
	if err := r.maps["ioam_ifaces"].Put(uint32(i), value); err != nil {
		return fmt.Errorf("registering %s with the IOAM node: %w", name, err)
	}
	// What flows were answered before is no longer right.
	control := r.control
	r.generation++
	control.Generation[control.Copy] = r.generation
	return r.publish(&control)
}

func (r *Registrar) detach(i flow.Iface) error {
	delete(r.ifaces, i)
	delete(r.indexes, i)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(r.indexes)), func(other flow.Iface) bool { return other.Netns() == i.Netns() }) {
		r.queues.leave(i.Netns())
		r.echoes.leave(i.Netns())
		r.direct.looper.leave(i.Netns())
	}
	if err := r.maps["ioam_ifaces"].Delete(uint32(i)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("removing interface %d from the IOAM node: %w", i.IfIndex(), err)
	}
	for _, name := range measured {
		if err := r.maps[name].Delete(uint32(i)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forgetting what was measured of interface %d: %w", i.IfIndex(), err)
		}
	}
	return nil
}
