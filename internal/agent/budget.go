package agent

import (
	"errors"
	"fmt"

	"github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/pipeline"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/internal/store"
)

// Components of the budget.
const (
	shareKernelTable = "probe flow table"
	shareRing        = "probe ring"
	shareTable       = "agent flow table"
	shareHistory     = "history and a query"
	shareQueries     = "further queries"
	shareAnswers     = "answers to followers"
	shareQueue       = "queue of export" // with its number
)

// Memory that does not grow with traffic; measured, see docs/explanation/sizing.md.
const (
	runtimeBytes   = 14 << 20  // heap and stacks of an idle agent
	programsBytes  = 7 << 20   // programs, maps of fixed size, the verifier at work
	processorBytes = 768 << 10 // maps with a value for each CPU
	netnsBytes     = 1 << 20   // a copy of the programs for each namespace
)

// garbage is what a heap that holds n bytes takes while it is collected.
func garbage(n uint64) uint64 { return n * 5 / 4 }

// Plan divides a memory limit (bytes; 0: none) between the components of an agent:
// the only place where their sizes are decided. A value of the configuration is an
// upper bound; one that exceeds the default must fit, or the error says which limit
// is needed.
func Plan(cfg config.Config, limit uint64) (memory.Budget, error) {
	def := config.Default()
	processors, err := kernel.CPUs("online")
	if err != nil {
		return memory.Budget{}, err
	}
	fixed := func(name string, heap bool, bytes uint64) memory.Share {
		return memory.Share{Name: name, Unit: 1, Least: bytes, Want: bytes, Heap: heap}
	}
	// bounded is a share by configuration: want is its value, most the default.
	bounded := func(s memory.Share, want, most uint64) memory.Share {
		if s.Want = want; want > most {
			s.Least = want
		}
		return s
	}
	sizes := profileOf(&cfg)
	flows, mostFlows := sizes.flows.want(uint64(cfg.Flow.MaxEntries), 0)
	ringSize, _ := sizes.ring.want(uint64(cfg.Flow.RingSize), 0)
	history, mostHistory := sizes.history.want(uint64(cfg.API.History), uint64(def.API.History))
	table := memory.Share{Name: shareKernelTable, Key: "flow.max_entries", Unit: datapath.FlowBytes, Least: 2048, Weight: 25}
	ring := memory.Share{Name: shareRing, Key: "flow.ring_size", Unit: 1, Least: 256 << 10, Weight: 8, Power: true}
	if probeKind(cfg) == "afpacket" { // its table is the agent's, and each interface has a ring
		table.Unit, table.Heap = garbage(capture.FlowBytes), true
		ring.Unit, ring.Least = uint64(max(1, len(cfg.Interfaces))), 1<<20
	}
	shares := []memory.Share{
		fixed("agent", true, runtimeBytes),
		fixed("programs", false, uint64(programsBytes+processorBytes*processors+netnsBytes*len(cfg.Netns))),
		bounded(table, flows, mostFlows),
		bounded(ring, ringSize, uint64(sizes.ring)),
		{Name: shareTable, Key: "flow.max_entries", Unit: garbage(flow.FlowBytes), Least: 2048, Want: flows, Weight: 25, Heap: true},
		bounded(memory.Share{Name: shareHistory, Key: "api.history", Unit: garbage(store.RecordBytes + store.QueryBytes), Least: 512, Weight: 15, Heap: true},
			history, mostHistory),
		{Name: shareQueries, Key: "api.history", Unit: garbage(store.QueryBytes) * history, Want: sizes.queries, Weight: 5, Heap: true},
		{Name: shareAnswers, Unit: 1, Least: garbage(512 << 10), Want: garbage(sizes.answers), Weight: 5, Heap: true},
	}
	for _, k := range list.On(&cfg) {
		for _, m := range k.Memory {
			value, most := uint64(*m.Size(&cfg)), uint64(*m.Size(&def))
			if value == most {
				value = max(m.Share.Least, most/sizes.stages)
			}
			shares = append(shares, bounded(m.Share, value, most))
		}
	}
	for i := range cfg.Export {
		if q := cfg.Export[i].Queue(); q != nil {
			queue, most := sizes.queue.want(uint64(*q), defaultQueue)
			shares = append(shares, bounded(
				memory.Share{Name: fmt.Sprintf("%s[%d]", shareQueue, i), Key: fmt.Sprintf("export[%d].queue", i), Unit: garbage(pipeline.RecordBytes), Least: 2048, Weight: 12, Heap: true},
				queue, most))
		}
	}
	b, err := memory.Plan(limit, shares)
	if small := (*memory.TooSmallError)(nil); errors.As(err, &small) {
		return b, memoryError{small, ""}
	}
	return b, err
}

// memoryError refuses a memory limit. Like a privilege, more of it is for the
// system to give: it is kernel.ErrMissing.
type memoryError struct {
	*memory.TooSmallError
	file string // where the limit is set; empty: not known
}

func (e memoryError) Error() string {
	text := "too little memory: " + e.TooSmallError.Error()
	if e.file != "" {
		text += " (" + e.file + ")"
	}
	text += ": raise the limit (MemoryMax= of the service)"
	if len(e.Largest) > 0 {
		text += ", or lower what is named"
	}
	return text
}

func (e memoryError) Unwrap() []error { return []error{e.TooSmallError, kernel.ErrMissing} }

// defaultQueue is that of every exporter.
const defaultQueue = 65536

// sized is the configuration with the sizes of a budget.
func sized(cfg config.Config, b *memory.Budget) config.Config {
	cfg.Flow.MaxEntries = uint32(b.Count(shareKernelTable))
	cfg.Flow.RingSize = uint32(b.Count(shareRing))
	cfg.API.History = int(b.Count(shareHistory))
	for _, k := range list.On(&cfg) {
		for _, m := range k.Memory {
			*m.Size(&cfg) = uint32(b.Count(m.Name))
		}
	}
	exports := make([]config.Export, len(cfg.Export))
	for i, e := range cfg.Export {
		if exports[i] = e; e.Queue() != nil {
			exports[i] = e.WithQueue(int(b.Count(fmt.Sprintf("%s[%d]", shareQueue, i))))
		}
	}
	cfg.Export = exports
	return cfg
}

// machineShare is the part of a machine's memory that an agent plans with where no
// control group limits it: one part in so many.
const machineShare = 4

func (a *Agent) memoryStatus() obs.Memory {
	return obs.Memory{Limit: a.limit.Bytes, File: a.limit.File, Others: a.limit.Others, Shares: Shares(&a.budget)}
}

// Shares is a budget as the status shows it.
func Shares(b *memory.Budget) []obs.MemoryShare {
	shares := make([]obs.MemoryShare, len(b.Shares))
	for i := range b.Shares {
		s := &b.Shares[i]
		shares[i] = obs.MemoryShare{Name: s.Name, Key: s.Key, Bytes: s.Bytes(), Count: s.Count, Wanted: s.Want}
	}
	return shares
}

// HeapLimit is what the heap may take, in bytes: what the control group allows and
// nothing else of the budget takes. 0: no group limits it.
func (a *Agent) HeapLimit() int64 {
	if a.budget.Limit == 0 || a.limit.Bytes == 0 {
		return 0
	}
	return int64(a.budget.Limit - a.budget.Limit/20 - (a.budget.Total() - a.budget.Heap()))
}

// HeapGrowth is how much the heap may grow between two collections of garbage, in percent.
func (a *Agent) HeapGrowth() int { return profileOf(&a.cfg).garbage }

// findBudget plans with the limit that applies to this process.
func (a *Agent) findBudget() error {
	group, err := memory.Group()
	if err != nil {
		a.log.Warn("memory limit of the control group not known", "error", err)
	}
	machine, err := memory.Machine()
	if err != nil {
		return err
	}
	if group.Bytes > 0 && group.Bytes < machine {
		a.limit = group
		if a.budget, err = Plan(a.cfg, group.Available()); err != nil {
			if small := (memoryError{}); errors.As(err, &small) {
				small.file = group.File
				return small
			}
			return err
		}
		return nil
	}
	a.budget, err = Plan(a.cfg, machine/machineShare)
	if small := (*memory.TooSmallError)(nil); errors.As(err, &small) {
		err = nil // nothing kills the agent; it has the least of everything
	}
	return err
}
