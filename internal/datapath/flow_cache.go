package datapath

import (
	"errors"
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// flowCache is the stage that counts packets in flows. Its control word carries
// the epoch of all stages.
type flowCache struct {
	cfg  Config
	cpus uint32
	sets uint32 // per CPU and epoch
	keys hashKeys

	ticks ticks
	table *table
	ring  *ring
	sums  *unattributedReader
	stats Stats
	// perCPU and counts are the maps of the table's own counters.
	perCPU, counts *ebpf.Map
}

func newFlowCache(cfg Config) *flowCache { return &flowCache{cfg: cfg} }

// stage registers the flow cache.
func (f *flowCache) stage() *Stage {
	return &Stage{
		Name:     "flow",
		Programs: []*Program{Ingress, Egress},
		Maps:     []string{"flows", "flow_extras", "batches", "evicted", "unattributed", "flow_stats", "counts", ".data.control"},
		Check:    f.size,
		Set:      f.set,
		Open:     f.openMaps,
		Uses:     func(h Hook) bool { return h.Target.wanted(h.Type) },
		Drain:    f.drainEpoch,
		Forget:   f.forget,
		Close:    f.closeMaps,
	}
}

// size derives the shape of the table from the configuration.
func (f *flowCache) size() error {
	if f.cfg.MaxEntries == 0 {
		f.cfg.MaxEntries = DefaultMaxEntries()
	}
	if f.cfg.RingSize == 0 {
		f.cfg.RingSize = Default().RingSize
	}
	// Packets on a processor that comes later are counted by reason, not in flows.
	online, err := kernel.CPUs("online")
	if err != nil {
		return err
	}
	f.cpus = uint32(online)
	f.sets = max(1, (f.cfg.MaxEntries+f.cpus*uint32(ways)-1)/(f.cpus*uint32(ways)))
	f.keys = randomHashKeys()
	return nil
}

// set sets sizes and constants.
func (f *flowCache) set(s *Spec) error {
	sets := 2 * f.cpus * f.sets
	if err := s.SetSizes(map[string]uint32{
		"flows": sets, "flow_extras": sets, "batches": 2 * f.cpus, "evicted": f.cfg.RingSize,
	}); err != nil {
		return err
	}
	var tunnels uint32
	for _, t := range f.cfg.Tunnels {
		tunnels |= 1 << t
		s.Features |= uint32(ingressFeatureFEATURE_TUNNELS)
	}
	below := ^uint32(0)
	if f.cfg.Sampling > 1 {
		below /= f.cfg.Sampling
		s.Features |= uint32(ingressFeatureFEATURE_SAMPLING)
	}
	if s.NoLinkHeader {
		s.Features |= uint32(ingressFeatureFEATURE_NO_LINK)
	}
	if err := s.SetConstants(map[string]any{
		"cfg_sets": f.sets, "cfg_ring_wakeup": uint32(f.ringWakeup()),
		"cfg_sample_below": below, "cfg_tunnels": tunnels, "cfg_skb": f.skbOffsets(),
	}); err != nil {
		return err
	}
	return setHashKeys(s.CollectionSpec, &f.keys)
}

// skbOffsets are 0 where the programs must not, or cannot, ask the kernel.
func (f *flowCache) skbOffsets() (o ingressSkbOffsets) {
	if f.cfg.WalkOnly {
		return o
	}
	at := kernel.SocketBufferOffsets()
	o.Head, o.End, o.Transport = at.Head, at.End, at.Transport
	o.InnerTransport, o.GsoType = at.InnerTransport, at.GSOType
	return o
}

// ringWakeup is how many bytes in the ring of evicted flows wake its reader.
func (f *flowCache) ringWakeup() int { return int(f.cfg.RingSize / 4) }

// openMaps maps the table into memory.
func (f *flowCache) openMaps(c *Core) (err error) {
	m, err := c.Maps(f.stage().Maps...)
	if err != nil {
		return err
	}
	if f.ticks, err = newTicks(); err != nil {
		return err
	}
	if f.table, err = openTable(m, int(f.cpus), int(f.sets)); err != nil {
		return err
	}
	if f.ring, err = openRing(m["evicted"], f.ringWakeup(), &f.ticks); err != nil {
		return err
	}
	f.sums = newUnattributedReader(m["unattributed"])
	f.perCPU, f.counts = m["flow_stats"], m["counts"]
	return nil
}

// drainEpoch emits and frees what an epoch holds; then what the ring and the sums
// of unattributed packets hold.
func (f *flowCache) drainEpoch(e Epoch, emit func(*flow.Delta)) error {
	c, err := f.ticks.read()
	if err != nil {
		return err
	}
	f.ring.clock.Store(&c)
	f.stats.Entries = f.table.drain(e.Number, &c, emit)
	return errors.Join(f.ring.flush(emit), f.sums.drain(time.Now(), emit))
}

// forget drops the running totals of an interface.
func (f *flowCache) forget(iface flow.Iface) error {
	maps.DeleteFunc(f.sums.reported, func(k unattributedKey, _ unattributedSum) bool { return k.Iface == uint32(iface) })
	return errors.Join(
		deleteKeys[countKey, countValue](f.counts, func(k countKey) bool { return k.Iface == uint32(iface) }),
		deleteKeys[unattributedKey, unattributedSum](f.sums.sums, func(k unattributedKey) bool { return k.Iface == uint32(iface) }),
	)
}

func (f *flowCache) closeMaps() {
	if f.ring != nil {
		f.ring.close()
	}
	if f.table != nil {
		f.table.close()
		f.table = nil
	}
}
