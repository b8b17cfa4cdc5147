package query

import (
	"fmt"
	"time"
)

// Budget bounds what a plan may take. Where it ends, the answer is partial.
type Budget struct {
	Bytes uint64        // read from disk
	Rows  int           // groups held at the same time, beyond those of the memory engine
	Flows int           // flows that hosts have in common are found among so many, each as often as nodes saw it: 130 bytes each
	Time  time.Duration //
}

// DefaultBudget is that of a plan without one.
func DefaultBudget() Budget {
	return Budget{Bytes: 4 << 30, Rows: 1 << 17, Flows: 1 << 20, Time: 20 * time.Second}
}

// fill sets what is zero to the default.
func (b *Budget) fill() {
	def := DefaultBudget()
	if b.Bytes == 0 {
		b.Bytes = def.Bytes
	}
	if b.Rows == 0 {
		b.Rows = def.Rows
	}
	if b.Flows == 0 {
		b.Flows = def.Flows
	}
	if b.Time == 0 {
		b.Time = def.Time
	}
}

// Cost is what a plan will take, before it runs.
type Cost struct {
	Intervals int    `json:"intervals"`
	Records   uint64 `json:"records"` // at most: in what cannot be skipped
	Bytes     uint64 `json:"bytes"`   // read from disk, at most
	Skipped   uint64 `json:"skipped"` // records that need not be read
}

func (c *Cost) add(o Cost) {
	c.Intervals += o.Intervals
	c.Records += o.Records
	c.Bytes += o.Bytes
	c.Skipped += o.Skipped
}

// twice is the cost of two passes over the same records.
func (c *Cost) twice() { c.Records, c.Bytes = 2*c.Records, 2*c.Bytes }

// Over says which part of a budget a cost is beyond; empty: none. Time and groups are known
// only when the plan runs.
func (c *Cost) Over(b Budget) string {
	if c.Bytes > b.Bytes {
		return fmt.Sprintf("it may read %d bytes, more than its budget of %d: ask for less time, or filter by address", c.Bytes, b.Bytes)
	}
	return ""
}
