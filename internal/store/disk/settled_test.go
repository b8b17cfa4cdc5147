package disk

import (
	"errors"
	"testing"

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

func by(t *testing.T, text string) query.By {
	t.Helper()
	by, err := query.ParseBy(text)
	if err != nil {
		t.Fatal(err)
	}
	return by
}
