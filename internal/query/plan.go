// Package query answers questions about flow records, whichever engines hold them. Input: a
// Plan: which records, grouped by what, sorted, cut. Output: an Answer. Callers: the API, the
// command line, the live view. Engines: package store (memory), package disk below it.
//
// An engine turns its records into groups (Row), which can be merged with those of another
// engine. The executor asks the engines for disjoint ranges of intervals, merges what they
// return, and only then ranks and cuts: the first rows are exact.
package query

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// Plan is what is asked. The zero Plan asks for every flow.
type Plan struct {
	Filter filter.Filter // tests of sums are of rows, all others of records
	Since  time.Time     // intervals that ended after it; zero: all
	Until  time.Time     // intervals that began before it; zero: all
	By     By            // no keys: ByFlow
	// Step makes rows of each group for steps of time; 0: one row for all of it.
	Step    time.Duration
	Sort    string // one of SortNames, or a key of By; empty: bytes
	Reverse bool   // counters ascending, keys descending
	Limit   int    // groups; 0: all
	// Everywhere counts a packet on each interface that it passes. Else it counts
	// once in the totals, and in rows that are of no interface or direction.
	Everywhere bool
	Hosts      []string // whose records are asked for; empty: of all
	// Sums are the counters that rows have; empty: rows have all that is known of their records.
	// Of files, only those columns are read.
	Sums []string
	// Reads are the fields that are read of rows, besides keys and counters: others may be missing, so that their columns
	// need not be read of files; nil: all are read. With Sums, rows have the means of round trips where one is read.
	Reads  []string
	Budget Budget // the zero Budget: DefaultBudget

	records, rows filter.Filter             // the two parts of Filter, of a checked plan
	sums          []*flow.Field             // Sums, and the counter that is sorted by; nil: Sums is empty
	counters      []*flow.Field             // what a pass adds up; nil: all that rows have
	unsorted      bool                      // somebody else sorts the rows
	after         uint64                    // the number of an interval: only later ones are meant
	only          map[Digest]int            // groups, by their keys without the time, that are meant; nil: all
	prefixes      map[string][]netip.Prefix // that these groups have, by key
	host          string                    // whose records the engine has that gets the plan; empty: those of the host that answers
	nearest       *Nearest                  // at which host each flow counts; nil: at each that saw it
	full          *atomic.Bool              // set where an engine has more rows than the budget; nil: these are summed
}

// Records is the part of the filter that each record has to match, of a checked plan.
func (p *Plan) Records() filter.Filter { return p.records }

// Check refuses what cannot be answered, and fills in defaults.
func (p *Plan) Check() error {
	if len(p.By.Keys) == 0 {
		p.By = ByFlow()
	}
	if p.Sort == "" {
		p.Sort = "bytes"
	}
	p.Budget.fill()
	var err error
	if p.records, p.rows, err = p.Filter.Split(p.By.Whole()); err != nil {
		return err
	}
	if !p.Since.IsZero() && !p.Until.IsZero() && !p.Since.Before(p.Until) {
		return fmt.Errorf("until %s is not after since %s: exchange them", p.Until.Format(time.DateTime), p.Since.Format(time.DateTime))
	}
	if p.Step != 0 && p.Step < MinStep {
		return fmt.Errorf("step %v: the shortest is %v", p.Step, MinStep)
	}
	if err := p.checkSums(); err != nil {
		return err
	}
	_, err = p.order()
	return err
}

// MinStep is the shortest step of a series.
const MinStep = time.Second

// Wants reports whether records of a host are asked for.
func (p *Plan) Wants(host string) bool { return len(p.Hosts) == 0 || slices.Contains(p.Hosts, host) }

// wants refuses a plan for other hosts than the one whose records there are.
func (p *Plan) wants(host string) error {
	if p.Wants(host) {
		return nil
	}
	return fmt.Errorf("no records of host %s: this agent has those of %s", strings.Join(p.Hosts, ", "), host)
}

// part is the plan over the intervals of a share.
func (p *Plan) part(s *share) *Plan {
	if s.after == 0 && s.host == "" {
		return p
	}
	part := *p
	part.after, part.host = s.after, s.host
	return &part
}

// Meant reports whether an interval is asked for.
func (p *Plan) Meant(number uint64, from, to time.Time) bool {
	return number > p.after && p.Within(from, to)
}

// Within reports whether an interval is asked for.
func (p *Plan) Within(from, to time.Time) bool {
	return to.After(p.Since) && (p.Until.IsZero() || from.Before(p.Until))
}

// Bucket is the step that an interval counts in; zero: the plan has no steps.
func (p *Plan) Bucket(from time.Time) time.Time {
	if p.Step == 0 {
		return time.Time{}
	}
	return from.Truncate(p.Step)
}
