package disk

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/storetest"
	"github.com/waymark-net/waymark/test/soak"
)

var (
	epoch       = storetest.Epoch
	at          = storetest.At
	drawRecords = storetest.DrawRecords
	drawPlan    = storetest.DrawPlan
	filters     = storetest.Filters
	sameAnswer  = storetest.SameAnswer
)

var origin = flow.Origin{Host: "alpha", Sampling: 1}

func deps() Deps {
	return Deps{Origin: origin, Log: slog.New(slog.DiscardHandler), Clock: time.Now}
}

func open(t rapid.TB, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Path: dir, Size: 1 << 30}, deps())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// both is a memory with a disk behind it, and one that holds little.
type both struct {
	memory, short *store.Store
	disk          *Store
}

func newBoth(t rapid.TB, dir string) *both {
	b := &both{memory: store.New(store.Default()), short: store.New(store.Config{History: 24}), disk: open(t, dir)}
	b.memory.OnEnd(b.disk.Append)
	b.memory.Resume(b.disk.Last())
	return b
}

func (b *both) fill(n int, records ...flow.Record) {
	for _, m := range []*store.Store{b.memory, b.short} {
		iv := m.Begin(at(n))
		for i := range records {
			iv.Add(&records[i])
		}
		iv.End(at(n + 1))
	}
	b.disk.Work()
}

func ask(t rapid.TB, p query.Plan, s ...query.Source) query.Answer {
	t.Helper()
	x := query.Executor{Sources: s}
	a, err := x.Answer(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// checks has rapid.Check try so many times.
func checks(t *testing.T, n int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(before) })
}

// addUp compares the groups of a series with those of a plan without steps, and with the sums of their steps.
func addUp(t rapid.TB, p query.Plan, a query.Answer, s query.Source) string {
	p.Step = 0
	if diff := gocmp.Diff(ask(t, p, s).Rows, a.Whole, sameAnswer); diff != "" {
		return diff
	}
	var whole, steps flow.Counters
	for i := range a.Whole {
		whole.Add(&a.Whole[i].Counters)
	}
	for i := range a.Rows {
		steps.Add(&a.Rows[i].Counters)
	}
	return gocmp.Diff(whole, steps)
}

// TestMemoryIsTheReference: random plans over random records have the same answer from disk as
// from memory, whichever intervals are in files and in the log, and after a restart.
func TestMemoryIsTheReference(t *testing.T) {
	dir := t.TempDir()
	n := 0
	checks(t, soak.Times(12, 2000))
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		b := newBoth(t, path)
		defer os.RemoveAll(path)
		intervals := rapid.IntRange(1, 8).Draw(t, "intervals")
		for i := range intervals {
			b.fill(i, drawRecords(t)...)
			switch rapid.IntRange(0, 4).Draw(t, "then") {
			case 0:
				if err := b.disk.Seal(); err != nil {
					t.Fatal(err)
				}
			case 1:
				if err := b.disk.close(); err != nil {
					t.Fatal(err)
				}
				b.disk = open(t, path)
				b.memory.OnEnd(b.disk.Append)
			}
		}
		for range 50 {
			p := drawPlan(t, intervals)
			memory, disk := ask(t, p, b.memory), ask(t, p, b.disk)
			diff := gocmp.Diff(memory, disk, sameAnswer)
			if diff == "" { // and together
				diff = gocmp.Diff(memory, ask(t, p, b.short, b.disk), sameAnswer)
			}
			if diff == "" && p.Step > 0 { // steps add up to the groups of the whole time
				diff = addUp(t, p, disk, b.disk)
			}
			if diff != "" {
				t.Fatalf("by %v, filter %q, sort %s, everywhere %t, step %v, sums %v (-memory +disk):\n%s", p.By.Keys, p.Filter, p.Sort, p.Everywhere, p.Step, p.Sums, diff)
			}
		}
		if b.disk.counts.Damaged+b.disk.counts.Errors+b.disk.counts.Lost > 0 {
			t.Fatalf("%+v", b.disk.counts)
		}
		if err := b.disk.close(); err != nil {
			t.Fatal(err)
		}
	})
}
