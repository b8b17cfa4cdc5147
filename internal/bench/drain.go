package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Drain is what it takes to empty a full table.
type Drain struct {
	Flows        int    `json:"flows"`
	Entries      uint64 `json:"entries"`
	Milliseconds Spread `json:"ms"`
	Grace        Spread `json:"grace_ms"` // part of it, waiting for programs to end
	Exact        bool   `json:"exact"`    // every packet was in a delta, none twice
}

// filler fills the table of a probe, from all processors.
type filler struct {
	d    *datapath.Datapath
	coll *ebpf.Collection
	k    kind
	cpus int

	restarts int // fillings that were interrupted
}

func newFiller(flows int) (*filler, error) {
	cpus, err := kernel.CPUs("online")
	if err != nil {
		return nil, err
	}
	d := datapath.New(datapath.Config{MaxEntries: uint32(2 * flows), WholeTable: true}, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		return nil, err
	}
	k := kinds()[0]
	coll, err := d.Alongside(program.Bench, func(spec *ebpf.CollectionSpec) error {
		loadOnly(spec, "bench_ingress")
		return k.adapt(flows)(spec)
	})
	if err != nil {
		d.Close()
		return nil, err
	}
	return &filler{d: d, coll: coll, k: k, cpus: cpus}, nil
}

func (f *filler) close() {
	f.coll.Close()
	f.d.Close()
}

// fill makes as many flows as the filler is for, each of one packet. A filling that a
// signal interrupted sent more, so it is drained and done again.
func (f *filler) fill(flows int) error {
	for range maxRestarts {
		err := f.fillOnce(flows)
		if !errors.Is(err, errRestarted) {
			return err
		}
		f.restarts++
		if err := f.d.Drain(func(*flow.Delta) {}); err != nil {
			return err
		}
	}
	return fmt.Errorf("filling a table with %d flows: %w each of %d times", flows, errRestarted, maxRestarts)
}

// fillOnce sends each flow on one processor.
func (f *filler) fillOnce(flows int) error {
	var senders program.Senders
	for cpu := range f.cpus {
		senders.Cpu[cpu].Flow = uint64(cpu*flows/f.cpus) * program.Stride % uint64(flows)
	}
	if err := f.coll.Variables["senders"].Set(senders); err != nil {
		return fmt.Errorf("numbering flows: %w", err)
	}
	for cpu := range f.cpus {
		n := (cpu+1)*flows/f.cpus - cpu*flows/f.cpus
		err := onProcessor(cpu, func() error {
			_, err := runOnce(f.coll.Programs["bench_ingress"], tcRun(0, 0, f.k.frame, n), tcUnspec)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (cfg Config) drainFlows() int {
	if cfg.Quick {
		return 100_000
	}
	return 1_000_000
}

// drained is what some drains of a full table took.
type drained struct {
	Drain
	rounds             int       // 0: five
	took, grace, spent []float64 // ms; spent is the processor time of the process
}

// visit empties a table of a million flows, twice as large, some times.
func (r *drained) visit(ctx context.Context, cfg Config) error {
	flows := cfg.drainFlows()
	f, err := newFiller(flows)
	if err != nil {
		return err
	}
	defer f.close()
	r.Flows, r.Exact = flows, r.took == nil || r.Exact
	for range cmp.Or(r.rounds, 5) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := f.fill(flows); err != nil {
			return err
		}
		var packets uint64
		before, err := processTime()
		if err != nil {
			return err
		}
		if err := f.d.Drain(func(d *flow.Delta) { packets += d.Packets }); err != nil {
			return err
		}
		after, err := processTime()
		if err != nil {
			return err
		}
		stats, err := f.d.Stats()
		if err != nil {
			return err
		}
		r.spent = append(r.spent, float64(after-before)/1e6)
		r.Entries = stats.MaxEntries
		r.Exact = r.Exact && packets == uint64(flows)
		r.took = append(r.took, float64(stats.Drain)/1e6)
		r.grace = append(r.grace, float64(stats.Grace)/1e6)
	}
	return nil
}

func (r *drained) result() Drain {
	r.Milliseconds, r.Grace = spreadOf(r.took), spreadOf(r.grace)
	return r.Drain
}

// ExportCost is the processor time of a flow record in the agent: drained,
// merged into the table of flows, expired, encoded as IPFIX and sent over UDP.
// All threads count, the garbage collector's too.
type ExportCost struct {
	Records int    `json:"records"`
	User    Spread `json:"user_us"`   // µs of user space, a record
	System  Spread `json:"system_us"` // µs of the kernel, a record
}

// exported is what it took to export the flows of a full table, some times.
type exported struct {
	ExportCost
	user, system []float64 // µs of a record
}

func (r *exported) visit(ctx context.Context, cfg Config) error {
	flows := cfg.drainFlows()
	f, err := newFiller(flows)
	if err != nil {
		return err
	}
	defer f.close()
	sink, err := newSink()
	if err != nil {
		return err
	}
	defer sink.close()

	r.Records = flows
	records := 0
	var failed error
	table := flow.NewTable(flow.TableConfig{MaxFlows: 2 * flows}, func(flow.Iface) (string, string) { return "bench0", "" },
		flow.TableOutput{Expired: func(record *flow.Record) {
			records++
			if err := sink.add(ctx, record); err != nil {
				failed = err
			}
		}})
	for round := range 5 {
		if err := f.fill(flows); err != nil {
			return err
		}
		before, err := usage()
		if err != nil {
			return err
		}
		records = 0
		if err := f.d.Drain(table.Merge); err != nil {
			return err
		}
		table.EndInterval(time.Now().Add(time.Hour))
		if failed == nil {
			failed = sink.flush(ctx)
		}
		if failed != nil {
			return failed
		}
		after, err := usage()
		if err != nil {
			return err
		}
		if records != flows {
			return fmt.Errorf("%d records of %d flows", records, flows)
		}
		if round == 0 {
			continue // memory grows to its size
		}
		r.user = append(r.user, float64(after.user-before.user)/1e3/float64(flows))
		r.system = append(r.system, float64(after.system-before.system)/1e3/float64(flows))
	}
	return nil
}

func (r *exported) result() ExportCost {
	r.User, r.System = spreadOf(r.user), spreadOf(r.system)
	return r.ExportCost
}

// used is processor time of this process.
type used struct{ user, system time.Duration }

func usage() (used, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return used{}, fmt.Errorf("reading the processor time used: %w", err)
	}
	return used{time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())}, nil
}
