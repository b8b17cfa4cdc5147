package pdm

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/pdm/pdmtest"
)

func init() { datapath.ReadOnce() }

// The verifier takes a second for the programs of a test, and two more for those
// that are attached, which are loaded when they are. So probes are loaded once for each configuration, and used by one test after another, each of
// which finds one as if it were new.
var idle struct {
	sync.Mutex
	probes map[Config][]*pdmBench
}

// pdmBench is a probe with the programs of pdmtest next to it.
type pdmBench struct {
	*datapath.Datapath
	pdm     *Marker
	coll    *ebpf.Collection // egress and cases; nil: nobody asked for them
	ingress *ebpf.Collection
	// copies of the program at egress, by network namespace
	copies map[uint32]*ebpf.Collection
}

// load returns a probe that marks, which is free again after the test.
func load(t testing.TB, cfg Config) *pdmBench {
	t.Helper()
	idle.Lock()
	defer idle.Unlock()
	var b *pdmBench
	if free := idle.probes[cfg]; len(free) > 0 {
		b, idle.probes[cfg] = free[len(free)-1], free[:len(free)-1]
	} else {
		m := New(cfg)
		b = &pdmBench{pdm: m, copies: map[uint32]*ebpf.Collection{}, Datapath: datapath.New(
			datapath.Config{MaxEntries: 4096, Stages: []*datapath.Stage{m.Stage()}}, slog.New(slog.DiscardHandler))}
		if err := b.Open(); err != nil {
			t.Fatalf("%+v", err)
		}
	}
	t.Cleanup(func() {
		// What a ring holds cannot be taken back.
		if t.Failed() || cfg.Raw > 0 {
			b.close()
			return
		}
		if err := b.reset(); err != nil {
			t.Errorf("making a probe as new: %v", err)
			b.close()
			return
		}
		idle.Lock()
		defer idle.Unlock()
		if idle.probes == nil {
			idle.probes = map[Config][]*pdmBench{}
		}
		idle.probes[cfg] = append(idle.probes[cfg], b)
	})
	return b
}

// loadPDM is load, with the programs of pdmtest.
func loadPDM(t testing.TB, cfg Config) *pdmBench {
	t.Helper()
	b := load(t, cfg)
	if b.coll != nil {
		return b
	}
	var err error
	if b.coll, err = b.Alongside(pdmtest.Load, only("test_egress", "test_empty")); err != nil {
		t.Fatalf("%+v", err)
	}
	if b.ingress, err = b.Alongside(pdmtest.LoadIngress, nil); err != nil {
		b.coll.Close()
		b.coll = nil
		t.Fatalf("%+v", err)
	}
	return b
}

// only leaves all other programs out: the verifier takes seconds for all of pdmtest.
func only(names ...string) func(*ebpf.CollectionSpec) error {
	return func(spec *ebpf.CollectionSpec) error {
		maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(names, name) })
		return nil
	}
}

func (b *pdmBench) close() {
	if b.coll != nil {
		b.coll.Close()
		b.ingress.Close()
	}
	for _, c := range b.copies {
		c.Close()
	}
	b.Close()
}

// cacheMaps are those that the flow cache empties itself, whose totals only grow, or that only give round trips of handshakes.
var cacheMaps = []string{"flows", "batches", "evicted", "unattributed", "flow_stats", "counts", "cached_counts", "handshakes"}

// emptied are the names of the other maps.
var emptied = sync.OnceValues(func() (names []string, err error) {
	spec, err := datapath.Ingress.Load()
	if err != nil {
		return nil, err
	}
	for name := range spec.Maps {
		other := strings.HasPrefix(name, ".rodata") || strings.HasPrefix(name, "ioam_") || name == ".data.control"
		if !other && !slices.Contains(cacheMaps, name) {
			names = append(names, name)
		}
	}
	return names, nil
})

// reset empties a probe that is attached to nothing.
func (b *pdmBench) reset() error {
	for range 2 { // epochs
		if err := b.Drain(func(*flow.Delta) {}); err != nil {
			return err
		}
	}
	names, err := emptied()
	if err != nil {
		return err
	}
	for _, name := range names {
		m, err := b.pdm.core.Map(name)
		if err == nil {
			err = datapathtest.Empty(m)
		}
		if err != nil {
			return errors.Join(errors.New(name), err)
		}
	}
	b.pdm.reader.places.close()
	b.pdm.ifaces, b.pdm.policies, b.pdm.generation = map[flow.Iface]*policyIface{}, nil, 0
	return b.pdm.open(b.pdm.core)
}
