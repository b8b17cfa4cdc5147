package disk

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// TestSettled: what columns of files say is asked of them also where the memory has it, unless the memory has all that is
// asked for, or a file cannot be read. The sum is the same.
func TestSettled(t *testing.T) {
	b := newBoth(t, t.TempDir())
	for n := range 30 {
		b.fill(n, numbered(uint64(n)))
		if n%10 == 9 && n < 29 {
			if err := b.disk.Seal(); err != nil {
				t.Fatal(err)
			}
		}
	}
	x := query.Executor{Sources: []query.Source{b.short, b.disk}}
	broken := func() { b.disk.damaged(b.disk.segments[1], errors.New("a bit flipped")) }
	for _, tt := range []struct {
		name         string
		plan         query.Plan
		before       func()
		disk, memory int // intervals
	}{
		{"counters", query.Plan{By: by(t, "src"), Sums: []string{"bytes"}}, nil, 20, 10},
		{"a first pass by columns", query.Plan{By: by(t, "src"), Limit: 1}, nil, 20, 10},
		{"whole records", query.Plan{}, nil, 7, 23},
		{"places of packets", query.Plan{By: by(t, "netns"), Sums: []string{"bytes"}}, nil, 7, 23},
		{"what the memory has", query.Plan{By: by(t, "src"), Sums: []string{"bytes"}, Since: at(20)}, nil, 0, 10},
		{"a damaged file", query.Plan{By: by(t, "src"), Sums: []string{"bytes"}}, broken, 7, 23},
	} {
		if tt.before != nil {
			tt.before()
		}
		e, err := x.Explain(tt.plan)
		if err != nil || e.Engines[0].Intervals != tt.disk || e.Engines[1].Intervals != tt.memory {
			t.Errorf("%s: %+v, %v", tt.name, e, err)
		}
		if got, want := ask(t, tt.plan, b.short, b.disk).Total, ask(t, tt.plan, b.memory).Total; got != want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
	if err := b.disk.close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedWhileAsked: a file that turns out to be damaged while it answers for intervals that the memory has, too, leaves
// them to the memory. Of what nobody has any more, the answer says how much is lost; nothing counts twice.
func TestDamagedWhileAsked(t *testing.T) {
	bySrc := by(t, "src")
	for _, plan := range []query.Plan{{By: bySrc, Sums: []string{"bytes"}}, {By: bySrc, Limit: 1}, {By: bySrc, Limit: 1, Step: time.Minute, Sums: []string{"bytes"}}} {
		for damaged, lost := range []int{7, 0} { // of 1 to 10 and of 11 to 20; the memory has 8 to 30
			b := newBoth(t, t.TempDir())
			for n := range 30 {
				if b.fill(n, numbered(uint64(n))); n == 9 || n == 19 {
					if err := b.disk.Seal(); err != nil {
						t.Fatal(err)
					}
				}
			}
			file, err := os.OpenFile(b.disk.segments[damaged].path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteAt([]byte("!"), 100); err != nil {
				t.Fatal(err)
			}
			file.Close()
			for range 2 { // the first answer finds it out
				a := ask(t, plan, b.short, b.disk)
				left := plan
				left.Since = at(lost)
				want := ask(t, left, b.memory)
				var rows flow.Counters
				for i := range a.Rows {
					rows.Add(&a.Rows[i].Counters)
				}
				if a.Total != want.Total || rows.Bytes != want.Total.Bytes || a.Intervals != 30-lost || a.Lost != uint64(lost) || strings.Contains(a.Partial, "damaged") != (lost > 0) {
					t.Errorf("file %d, plan %+v: %d of %d bytes, rows have %d, %d intervals, %d lost, %q", damaged, plan, a.Total.Bytes, want.Total.Bytes, rows.Bytes, a.Intervals, a.Lost, a.Partial)
				}
			}
			if b.disk.counts.Damaged != 1 {
				t.Errorf("%+v", b.disk.counts)
			}
			if err := b.disk.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func by(t *testing.T, text string) query.By {
	t.Helper()
	by, err := query.ParseBy(text)
	if err != nil {
		t.Fatal(err)
	}
	return by
}
