package bench

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// DatapathReport is what the programs cost.
type DatapathReport struct {
	Run
	Points   []Point    `json:"points"`
	Rare     []Cost     `json:"rare"`     // packets that take the long way
	Features []Cost     `json:"features"` // what is switched off, and what is not there
	Hash     []Cost     `json:"hash"`     // keys in instructions and in memory
	Drain    Drain      `json:"drain"`
	Export   ExportCost `json:"export"`
	Budgets  []Budget   `json:"budgets"`
}

// Point is one sort of packet of a number of flows: what each program costs.
type Point struct {
	Packet  string `json:"packet"`
	Flows   int    `json:"flows"`
	Entries uint64 `json:"entries"` // slots that the one processor which sends has
	Read    Spread `json:"read"`    // one random read of memory, over as many lines
	Costs   []Cost `json:"costs"`
}

// Cost is what a program costs, in ns of one packet.
type Cost struct {
	Program string  `json:"program"`
	Total   Spread  `json:"total"`
	Over    Spread  `json:"over"`            // the empty program, in the same round
	Ratio   *Spread `json:"ratio,omitempty"` // Over to that of the reference with BPF_MAP_TYPE_HASH
	Added   *Spread `json:"added,omitempty"` // to the program that it is compared with, in the same round
	Size    Size    `json:"size"`
}

// Size is what the kernel made of a program.
type Size struct {
	Instructions int    `json:"instructions"` // after the verifier took away what is off
	Machine      uint32 `json:"machine"`      // bytes of machine code
}

func sizeOf(p *ebpf.Program) (s Size, err error) {
	info, err := p.Info()
	if err != nil {
		return s, err
	}
	if size, err := info.TranslatedSize(); err == nil {
		s.Instructions = size / 8
	}
	if size, err := info.JitedSize(); err == nil {
		s.Machine = size
	}
	return s, nil
}

// Names of programs in a Point, in the order they are shown.
const (
	costEmpty   = "empty"
	costParse   = "parse"
	costIngress = "ingress"
	costHash    = "HASH"
	costLRU     = "LRU_HASH"
	costPerCPU  = "PERCPU_HASH"
	costStage   = "account" // ingress less parse
)

// slotsPerFlow is how much room the table has: as many sets as flows, as a
// running agent uses of its table. The packets of a benchmark come from one
// processor, which has its part of the table only.
const slotsPerFlow = 4

// Datapath measures the programs.
func Datapath(ctx context.Context, cfg Config) (*DatapathReport, error) {
	run, err := begin("datapath", cfg)
	if err != nil {
		return nil, err
	}
	r := &DatapathReport{Run: run}
	flows := []int{1, 1000, 32 << 10, 512 << 10, 1 << 20}
	if cfg.Quick {
		flows = []int{1, 1000, 32 << 10}
	}
	var points []*point
	for _, k := range kinds() {
		for _, n := range flows {
			points = append(points, &point{kind: k, flows: n})
		}
	}
	var drain drained
	var export exported
	for visit := range cfg.visits() {
		for _, p := range points {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			cfg.Progress(fmt.Sprintf("visit %d of %d: %s, %d flows", visit+1, cfg.visits(), p.kind.name, p.flows))
			if err := p.visit(cfg); err != nil {
				return nil, fmt.Errorf("%s, %d flows: %w", p.kind.name, p.flows, err)
			}
		}
		cfg.Progress(fmt.Sprintf("visit %d of %d: drain", visit+1, cfg.visits()))
		if err := drain.visit(ctx, cfg); err != nil {
			return nil, fmt.Errorf("drain: %w", err)
		}
		cfg.Progress(fmt.Sprintf("visit %d of %d: from the drain to the collector", visit+1, cfg.visits()))
		if err := export.visit(ctx, cfg); err != nil {
			return nil, fmt.Errorf("export: %w", err)
		}
	}
	for _, p := range points {
		r.Points = append(r.Points, p.result())
	}
	r.Drain, r.Export = drain.result(), export.result()
	cfg.Progress("packets that take the long way")
	if r.Rare, err = measureRare(cfg); err != nil {
		return nil, err
	}
	cfg.Progress("features that are off")
	if r.Features, err = measureFeatures(cfg); err != nil {
		return nil, err
	}
	cfg.Progress("keys of the hash")
	if r.Hash, err = measureHash(cfg); err != nil {
		return nil, err
	}
	r.Budgets = r.budgets()
	r.end()
	return r, nil
}

// contender is one program of a comparison.
type contender struct {
	name    string
	program *ebpf.Program
	frame   []byte
	size    Size
	values  []float64 // ns of a packet, by round
}

// contenders are compared with each other.
type contenders []*contender

// stage holds what a comparison loaded, to be closed together.
type stage struct {
	contenders contenders
	closers    []func()
}

func (s *stage) close() {
	for _, c := range s.closers {
		c()
	}
}

// load adds programs of one collection over a table of their own; shown maps
// their names to those of the report.
func (s *stage) load(cfg datapath.Config, load func() (*ebpf.CollectionSpec, error), k kind, flows int, shown [][2]string) (*datapath.Datapath, error) {
	d := datapath.New(cfg, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, d.Close)
	coll, err := d.Alongside(load, func(spec *ebpf.CollectionSpec) error {
		var wanted []string
		for _, n := range shown {
			wanted = append(wanted, n[0])
		}
		loadOnly(spec, wanted...)
		return k.adapt(flows)(spec)
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, coll.Close)
	for _, n := range shown {
		c := &contender{name: n[1], program: coll.Programs[n[0]], frame: k.frame}
		if c.size, err = sizeOf(c.program); err != nil {
			return nil, fmt.Errorf("asking for %s: %w", c.name, err)
		}
		s.contenders = append(s.contenders, c)
	}
	return d, nil
}

// loadOnly leaves out other programs of an object, and maps that none of these uses: a map for a million flows takes seconds to make.
func loadOnly(spec *ebpf.CollectionSpec, programs ...string) {
	used := map[string]bool{}
	wanted := map[string]*ebpf.ProgramSpec{}
	for _, name := range programs {
		wanted[name] = spec.Programs[name]
		for i := range wanted[name].Instructions {
			used[wanted[name].Instructions[i].Reference()] = true
		}
	}
	spec.Programs = wanted
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !used[name] && !strings.HasPrefix(name, ".") })
}

// run lets every program see all flows once, then measures them in turns.
func (s *stage) run(flows, packets, rounds int) error {
	return onProcessor(0, func() error {
		for _, c := range s.contenders {
			if _, err := testRun(c.program, c.frame, max(flows, 1000)); err != nil {
				return err
			}
		}
		for range rounds {
			for _, c := range s.contenders {
				ns, err := testRun(c.program, c.frame, packets)
				if err != nil {
					return err
				}
				c.values = append(c.values, ns)
			}
		}
		return nil
	})
}

// settle is settle of the table that the whole program fills.
func (s *stage) settle(d *datapath.Datapath, flows int) error {
	whole := s.contenders[slices.IndexFunc(s.contenders, func(c *contender) bool { return c.name == costIngress })]
	return onProcessor(0, func() error {
		return settle(d, flows, func(packets int) error {
			_, err := testRun(whole.program, whole.frame, packets)
			return err
		})
	})
}

// add joins what the same programs took in another visit.
func (cs contenders) add(more contenders) contenders {
	if cs == nil {
		return more
	}
	for i, c := range more {
		cs[i].values = append(cs[i].values, c.values...)
	}
	return cs
}

// values are what the named program took, by round.
func (cs contenders) values(name string) []float64 {
	for _, c := range cs {
		if c.name == name {
			return c.values
		}
	}
	return nil
}

// cost compares a program with the empty one and, if it ran, the reference.
func (cs contenders) cost(c *contender) Cost {
	empty, hash := cs.values(costEmpty), cs.values(costHash)
	cost := Cost{Program: c.name, Total: spreadOf(c.values), Over: pairwise(c.values, empty, minus), Size: c.size}
	if hash != nil && c.name != costEmpty {
		cost.Ratio = new(Spread)
		*cost.Ratio = ratio(c.values, hash, empty)
	}
	return cost
}

// ratio is a over b, both less the empty program of the same round.
func ratio(a, b, empty []float64) Spread {
	net := func(v []float64) []float64 {
		out := make([]float64, len(v))
		for i := range v {
			out[i] = v[i] - empty[i]
		}
		return out
	}
	return pairwise(net(a), net(b), over)
}

func (cs contenders) costs() []Cost {
	var out []Cost
	for _, c := range cs {
		out = append(out, cs.cost(c))
	}
	return out
}

// visits are how often everything with a budget is measured, with all else in
// between: what disturbs the machine for a minute is nobody's median.
func (cfg Config) visits() int {
	if cfg.Quick {
		return 1
	}
	return 3
}

// rounds of a visit are fewer where one takes long.
func (cfg Config) rounds(flows int) int {
	if flows > 100_000 {
		return 3
	}
	return 7
}

// point is where programs are measured, and what they took so far.
type point struct {
	kind    kind
	flows   int
	entries uint64 // slots of one processor
	took    contenders
	reads   []float64
}

func (p *point) visit(cfg Config) error {
	var s stage
	defer s.close()
	cpus, err := kernel.CPUs("online")
	if err != nil {
		return err
	}
	// Few flows are in one chunk of the table, as in an agent with default sizes.
	table := datapath.Config{MaxEntries: 1 << 19}
	if p.flows > 1<<10 {
		table = datapath.Config{MaxEntries: uint32(cpus * slotsPerFlow * p.flows), WholeTable: true}
	}
	d, err := s.load(table, program.Bench, p.kind, p.flows, [][2]string{
		{"bench_empty", costEmpty},
		{"bench_parse", costParse},
		{"bench_ingress", costIngress},
		{"bench_hash", costHash},
		{"bench_lru", costLRU},
		{"bench_percpu", costPerCPU},
	})
	if err != nil {
		return err
	}
	if err := s.settle(d, p.flows); err != nil {
		return err
	}
	if err := s.run(p.flows, max(200_000, p.flows), cfg.rounds(p.flows)); err != nil {
		return err
	}
	stats, err := d.Stats()
	if err != nil {
		return err
	}
	p.entries = stats.MaxEntries / uint64(cpus)
	p.took = p.took.add(s.contenders)
	reads, err := measureRead(p.flows, 5)
	p.reads = append(p.reads, reads...)
	return err
}

// settle drains a table until it uses as many sets as these flows need: two
// epochs of them are known then. send sends so many packets.
func settle(d *datapath.Datapath, flows int, send func(packets int) error) error {
	for range 3 {
		if err := send(max(flows, 1000)); err != nil {
			return err
		}
		if err := d.Drain(func(*flow.Delta) {}); err != nil {
			return err
		}
	}
	return nil
}

func (p *point) result() Point {
	stage := pairwise(p.took.values(costIngress), p.took.values(costParse), minus)
	return Point{
		Packet: p.kind.name, Flows: p.flows, Entries: p.entries, Read: spreadOf(p.reads),
		Costs: append(p.took.costs(), Cost{Program: costStage, Total: stage, Over: stage}),
	}
}
