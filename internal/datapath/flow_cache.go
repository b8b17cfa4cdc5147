package datapath

import (
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// flowCache is the stage that counts packets in flows. Its control word carries
// the epoch of all stages.
type flowCache struct {
	cfg   Config
	cpus  uint32
	shape shape
	inner *ebpf.MapSpec // of a chunk
	keys  hashKeys
	log   *slog.Logger

	ticks  ticks
	table  *table
	ring   *ring
	sums   *unattributedReader
	stats  Stats
	perCPU *ebpf.Map // the table's own counters
	counts counts
}

func newFlowCache(cfg Config, log *slog.Logger) *flowCache { return &flowCache{cfg: cfg, log: log} }

// stage registers the flow cache.
func (f *flowCache) stage() *Stage {
	return &Stage{
		Name:     "flow",
		Programs: []*Program{Ingress, Egress},
		Maps:     []string{"flows", "batches", "evicted", "unattributed", ".data.control"},
		Check:    f.size,
		Set:      f.set,
		Open:     f.openMaps,
		Uses:     func(h Hook) bool { return h.Target.wanted(h.Type) },
		Drain:    f.drainEpoch,
		Forget:   f.forget,
		Close:    f.closeMaps,
	}
}

// countMaps hold what is in no flow.
var countMaps = []string{"flow_stats", "counts", "cached_counts"}

// countStage shares the counters of what is in no flow with the program at XDP, if other stages have it: the gate drops
// packets there.
func (f *flowCache) countStage(others []*Stage) *Stage {
	s := &Stage{
		Name:     "count",
		Programs: []*Program{Ingress, Egress},
		Maps:     countMaps,
		Set:      func(s *Spec) error { return s.SetMaxEntries("cached_counts", f.cpus) },
	}
	if slices.Contains(programs(others), Early) {
		s.Programs = append(s.Programs, Early)
	}
	return s
}

// earlyStage has packets that are dropped or forwarded at XDP counted as those at tc are.
func (f *flowCache) earlyStage() *Stage {
	return &Stage{Name: "early", Programs: []*Program{Early}, Set: f.set}
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
	f.shape = newShape(f.cpus, f.cfg.MaxEntries)
	f.keys = randomHashKeys()
	return nil
}

// set sets sizes and constants.
func (f *flowCache) set(s *Spec) error {
	if err := s.SetSizes(map[string]uint32{
		"flows": f.shape.firstChunk(int(f.shape.parts)), "batches": f.shape.parts, "evicted": f.cfg.RingSize,
	}); err != nil {
		return err
	}
	f.inner = f.shape.setChunk(s.Maps["flows"])
	if err := s.SetConstants(map[string]any{
		"cfg_chunk_sets": f.shape.chunkSets(), "cfg_chunk_shift": f.shape.shift,
		"cfg_ring_wakeup": uint32(f.ringWakeup()), "cfg_stores_ordered": storesOrdered,
	}); err != nil {
		return err
	}
	return f.setParser(s)
}

// setParser sets which packets are counted, and what is known of them.
func (f *flowCache) setParser(s *Spec) error {
	var tunnels uint32
	for _, t := range f.cfg.Tunnels {
		tunnels |= 1 << t
		s.Features |= uint32(tcFeatureFEATURE_TUNNELS)
	}
	below := ^uint32(0)
	if f.cfg.Sampling > 1 {
		below /= f.cfg.Sampling
		s.Features |= uint32(tcFeatureFEATURE_SAMPLING)
	}
	if s.NoLinkHeader {
		s.Features |= uint32(tcFeatureFEATURE_NO_LINK)
	}
	if err := s.SetConstants(map[string]any{"cfg_sample_below": below, "cfg_tunnels": tunnels, "cfg_skb": f.skbOffsets()}); err != nil {
		return err
	}
	return setHashKeys(s.CollectionSpec, &f.keys)
}

// storesOrdered is whether other processors see the stores of one in their order.
const storesOrdered = runtime.GOARCH == "amd64" || runtime.GOARCH == "386" || runtime.GOARCH == "s390x"

// skbOffsets are 0 where the programs must not, or cannot, ask the kernel.
func (f *flowCache) skbOffsets() (o tcSkbOffsets) {
	if f.cfg.WalkOnly {
		return o
	}
	at := kernel.SocketBufferOffsets()
	o.Head, o.End, o.Transport = at.Head, at.End, at.Transport
	o.InnerTransport, o.GsoType = at.InnerTransport, at.GSOType
	o.Dev, o.GsoMaxSize = at.Dev, at.GSOMaxSize
	return o
}

// ringWakeup is how many bytes in the ring of evicted flows wake its reader.
func (f *flowCache) ringWakeup() int { return int(f.cfg.RingSize / 16) }

// openMaps maps the table into memory.
func (f *flowCache) openMaps(c *Core) (err error) {
	m, err := c.Maps(slices.Concat(f.stage().Maps, countMaps)...)
	if err != nil {
		return err
	}
	if f.ticks, err = newTicks(); err != nil {
		return err
	}
	if f.table, err = openTable(m, f.inner, f.shape, f.cfg.WholeTable, f.log); err != nil {
		return err
	}
	if f.ring, err = openRing(m["evicted"], f.ringWakeup(), &f.ticks); err != nil {
		return err
	}
	f.sums = newUnattributedReader(m["unattributed"])
	f.perCPU = m["flow_stats"]
	f.counts, err = openCounts(m["counts"], m["cached_counts"])
	return err
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
	return errors.Join(f.ring.flush(emit), f.sums.drain(time.Now(), emit), f.table.settle(e.Number))
}

// forget drops the running totals of an interface.
func (f *flowCache) forget(iface flow.Iface) error {
	maps.DeleteFunc(f.sums.reported, func(k unattributedKey, _ unattributedSum) bool { return k.Iface == uint32(iface) })
	return errors.Join(
		f.counts.forget(iface),
		deleteKeys[unattributedKey, unattributedSum](f.sums.sums, func(k unattributedKey) bool { return k.Iface == uint32(iface) }),
	)
}

func (f *flowCache) closeMaps() {
	f.counts.close()
	if f.ring != nil {
		f.ring.close()
	}
	if f.table != nil {
		f.table.close()
		f.table = nil
	}
}
