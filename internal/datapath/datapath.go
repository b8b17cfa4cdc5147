// Package datapath is the flow probe in the kernel, seen from user space: it
// loads the programs of bpf/, attaches them to interfaces, and empties their
// maps. In come interfaces; out go flow deltas and counts by reason. The agent
// calls it through flow.Probe.
package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Config sizes the maps and sets the programs' constants.
type Config struct {
	MaxEntries uint32        // flows in one epoch; 0: DefaultMaxEntries()
	RingSize   uint32        // octets, a power of two of whole pages
	Sampling   uint32        // one packet in so many is counted; 0 or 1: all
	Tunnels    []flow.Tunnel // whose inner flows are counted
	Clsact     bool          // even where the kernel has TCX
	PDM        *PDM          // nil: nothing is marked
	WalkOnly   bool          // GSO frames are measured by their content, even where the kernel can be asked
}

// Default is the configuration of an agent without any.
func Default() Config {
	return Config{MaxEntries: DefaultMaxEntries(), RingSize: 8 << 20, Sampling: 1}
}

// Datapath is the loaded probe. Its methods may be called from any goroutine.
type Datapath struct {
	cfg  Config
	log  *slog.Logger
	cpus uint32
	sets uint32 // per processor and epoch
	keys hashKeys

	maps  map[string]*ebpf.Map
	grace *kernel.Grace
	ticks ticks

	mu       sync.Mutex // everything below
	programs map[variant]*programs
	hooks    map[flow.Iface][]*hook
	table    *table
	ring     *ring
	sums     *unattributedReader
	stats    Stats
	pdm      *marker // nil: nothing is marked
}

// variant is what differs between copies of the programs.
type variant struct {
	netns  uint32 // number of the network namespace
	iface  uint32 // added to an interface's index, it gives the number of the interface
	noLink bool
}

// variantOf is the copy that serves an interface.
func variantOf(t *Target) variant {
	return variant{netns: t.Netns, iface: uint32(t.Iface) - t.IfIndex, noLink: t.NoLinkHeader}
}

type programs struct{ ingress, egress *ebpf.Program }

func (p *programs) close() {
	p.ingress.Close()
	p.egress.Close()
}

// New returns a probe that has loaded nothing yet.
func New(cfg Config, log *slog.Logger) *Datapath {
	return &Datapath{
		cfg: cfg, log: log,
		maps:     map[string]*ebpf.Map{},
		programs: map[variant]*programs{},
		hooks:    map[flow.Iface][]*hook{},
	}
}

// Load makes the maps, and the programs for the agent's own namespace. The error
// wraps kernel.ErrMissing where the kernel or a privilege is the reason.
func (d *Datapath) Load() (err error) {
	if err := kernel.Require(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.cfg.PDM != nil {
		if err := errors.Join(kernel.RequirePDM(), d.cfg.PDM.check()); err != nil {
			return err
		}
	}
	if err := d.size(); err != nil {
		return err
	}
	spec, err := d.spec(loadIngress, variant{})
	if err != nil {
		return err
	}
	for name, m := range spec.Maps {
		if strings.HasPrefix(name, ".rodata") {
			continue
		}
		if strings.HasPrefix(name, ".data") {
			m.Flags |= unix.BPF_F_MMAPABLE // as the loader does for its own
		}
		if d.maps[name], err = ebpf.NewMap(m); err != nil {
			return fmt.Errorf("map %s: %w", name, explain(err))
		}
	}
	if d.grace, err = kernel.NewGrace(); err != nil {
		return err
	}
	if d.ticks, err = newTicks(); err != nil {
		return err
	}
	if d.table, err = openTable(d.maps, int(d.cpus), int(d.sets)); err != nil {
		return err
	}
	if d.ring, err = openRing(d.maps["evicted"], d.ringWakeup(), &d.ticks); err != nil {
		return err
	}
	d.sums = newUnattributedReader(d.maps["unattributed"])
	if d.cfg.PDM != nil {
		d.pdm = newMarker(*d.cfg.PDM, d.maps)
		if err := setVacant(d.maps, *d.cfg.PDM, 0); err != nil {
			return err
		}
	}
	// Both link types at once: later the agent may lack the privilege to load.
	for _, v := range []variant{{}, {noLink: true}} {
		if _, err := d.variant(v); err != nil {
			return err
		}
	}
	return nil
}

// size derives the shape of the table from the configuration.
func (d *Datapath) size() error {
	if d.cfg.MaxEntries == 0 {
		d.cfg.MaxEntries = DefaultMaxEntries()
	}
	if d.cfg.RingSize == 0 {
		d.cfg.RingSize = Default().RingSize
	}
	// Packets on a processor that comes later are counted by reason, not in flows.
	online, err := kernel.CPUs("online")
	if err != nil {
		return err
	}
	cpus := uint32(online)
	d.cpus = cpus
	d.sets = max(1, (d.cfg.MaxEntries+cpus*uint32(ways)-1)/(cpus*uint32(ways)))
	d.keys = randomHashKeys()
	return nil
}

// spec reads one object and sets sizes and constants for a variant.
func (d *Datapath) spec(load func() (*ebpf.CollectionSpec, error), v variant) (*ebpf.CollectionSpec, error) {
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the built-in programs: %w", err)
	}
	sets := 2 * d.cpus * d.sets
	spec.Maps["flows"].MaxEntries = sets
	spec.Maps["flow_extras"].MaxEntries = sets
	spec.Maps["batches"].MaxEntries = 2 * d.cpus
	spec.Maps["evicted"].MaxEntries = d.cfg.RingSize

	var features ingressFeature
	var tunnels uint32
	for _, t := range d.cfg.Tunnels {
		tunnels |= 1 << t
		features |= ingressFeatureFEATURE_TUNNELS
	}
	below := ^uint32(0)
	if d.cfg.Sampling > 1 {
		below /= d.cfg.Sampling
		features |= ingressFeatureFEATURE_SAMPLING
	}
	if d.cfg.PDM != nil {
		features |= ingressFeatureFEATURE_PDM
	}
	if v.noLink {
		features |= ingressFeatureFEATURE_NO_LINK
	}
	for name, value := range map[string]any{
		"cfg_netns": v.netns, "cfg_iface": v.iface, "cfg_features": features,
		"cfg_sets": d.sets, "cfg_ring_wakeup": uint32(d.ringWakeup()),
		"cfg_sample_below": below, "cfg_tunnels": tunnels,
		"cfg_skb": d.skbOffsets(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("constant %s: %w", name, err)
		}
	}
	if err := d.setPDM(spec); err != nil {
		return nil, err
	}
	return spec, setHashKeys(spec, &d.keys)
}

// skbOffsets are 0 where the programs must not, or cannot, ask the kernel.
func (d *Datapath) skbOffsets() (o ingressSkbOffsets) {
	if d.cfg.WalkOnly {
		return o
	}
	at := kernel.SocketBufferOffsets()
	o.Head, o.End, o.Transport = at.Head, at.End, at.Transport
	o.InnerTransport, o.GsoType = at.InnerTransport, at.GSOType
	return o
}

// variant returns the programs for a namespace and link type, loading them on
// first use. All share the maps.
func (d *Datapath) variant(v variant) (*programs, error) {
	if p := d.programs[v]; p != nil {
		return p, nil
	}
	ingress, err := d.program(loadIngress, "waymark_ingress", v)
	if err != nil {
		return nil, err
	}
	egress, err := d.program(loadEgress, "waymark_egress", v)
	if err != nil {
		ingress.Close()
		return nil, err
	}
	p := &programs{ingress, egress}
	d.programs[v] = p
	return p, nil
}

// unload closes the programs of a namespace: they may be loaded anew. Those of
// the agent's own stay, since the privilege to load may be gone by now.
func (d *Datapath) unload(netns uint32) {
	for v, p := range d.programs {
		if v.netns == netns {
			p.close()
			delete(d.programs, v)
		}
	}
}

func (d *Datapath) program(load func() (*ebpf.CollectionSpec, error), name string, v variant) (*ebpf.Program, error) {
	spec, err := d.spec(load, v)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: d.maps})
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", name, explain(err))
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}

// explain adds the remedy to errors whose reason is outside the program.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w: run as root, or with CAP_BPF and CAP_NET_ADMIN", kernel.ErrMissing, err)
	case errors.Is(err, unix.EMFILE): // without the verifier's log, which has nothing to do with it
		return fmt.Errorf("%w: raise RLIMIT_NOFILE", unix.EMFILE)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %w: lower flow.max_entries, or raise the memory limit of the service", kernel.ErrMissing, err)
	}
	return err
}

// ringWakeup is how many octets in the ring of evicted flows wake its reader.
func (d *Datapath) ringWakeup() int { return int(d.cfg.RingSize / 4) }

// Close detaches from all interfaces and frees programs and maps.
func (d *Datapath) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for iface := range d.hooks {
		d.detach(iface)
	}
	for v, p := range d.programs {
		p.close()
		delete(d.programs, v)
	}
	if d.ring != nil {
		d.ring.close()
	}
	if d.table != nil {
		d.table.close()
		d.table = nil
	}
	if d.grace != nil {
		d.grace.Close()
	}
	for name, m := range d.maps {
		m.Close()
		delete(d.maps, name)
	}
}
