package gate

import (
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// lineSize is what a line of the address tables takes, in both copies.
const lineSize = 64 * uint64(engine.Copies)

// Lines is how many lines of each copy fit into an amount of memory.
func Lines(memory uint64) uint32 { return uint32(memory / lineSize) }

// mostLines is as much as the tables may have: 1 GiB.
const mostLines = 1 << 30 / uint32(lineSize)

// Use is what a rule set takes of the tables.
type Use struct {
	Memory    uint64 `json:"memory"` // bytes for addresses and conditions
	MaxMemory uint64 `json:"max_memory"`
	Rules     int    `json:"rules"`
	MaxRules  uint32 `json:"max_rules"`
	Rows      int    `json:"rows"`
	MaxRows   uint32 `json:"max_rows"`
}

// Fit reports what a rule set takes of the tables, or why it does not fit. It changes nothing.
func (g *Gate) Fit(rs *rules.Ruleset) (u Use, err error) {
	t, err := g.compile(rs, 0, time.Now())
	if err != nil {
		return u, err
	}
	return Use{uint64(len(t.Lines)) * lineSize, uint64(g.cfg.Tables.Lines) * lineSize, len(t.Rules), g.cfg.Tables.Rules, len(t.Rows), engine.MaxRows}, nil
}

// compile makes the tables of a rule set, or says how large they must be.
func (g *Gate) compile(rs *rules.Ruleset, which uint32, now time.Time) (*engine.Table, error) {
	all, o := g.withDetect(rs), g.options(which, now)
	if err := Check(all); err != nil {
		return nil, err
	}
	t, err := engine.Compile(all, o)
	if err == nil || o.Limits.Lines >= mostLines {
		return t, err
	}
	o.Copy, o.Limits.Lines = 0, mostLines
	t, larger := engine.Compile(all, o)
	if larger != nil {
		return nil, larger
	}
	const mega = 1 << 20
	had, needs := uint64(g.cfg.Tables.Lines)*lineSize, uint64(len(t.Lines))*lineSize
	return nil, fmt.Errorf("the addresses and conditions of the rules take %.2fMiB of tables, and gate.table_memory is %.2fMiB: raise it to %dMiB, or use fewer addresses%s",
		float64(needs)/mega, float64(had)/mega, needs/mega+1, largest(rs))
}

// largest names the set that has most to save.
func largest(rs *rules.Ruleset) string {
	var most *rules.Set
	for _, s := range rs.Sets {
		if most == nil || len(s.Prefixes) > len(most.Prefixes) {
			most = s
		}
	}
	if most == nil {
		return ""
	}
	return fmt.Sprintf("; the largest set is %s, with %d members", most.Name, len(most.Prefixes))
}
