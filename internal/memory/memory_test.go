package memory

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"
)

func TestGroupLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{
		"a/memory.max":                     file("1000000000\n"),
		"a/b/memory.max":                   file("max\n"),
		"a/b/c/memory.max":                 file("400000000\n"),
		"d/memory.max":                     file("max\n"),
		"high/memory.max":                  file("900000000\n"),
		"high/memory.high":                 file("200000000\n"),
		"slice/memory.max":                 file("1000000000\n"),
		"slice/memory.current":             file("900000000\n"),
		"slice/memory.stat":                file("anon 1\nfile 300000000\nkernel 5\nshmem 100000000\n"),
		"slice/us/memory.max":              file("800000000\n"),
		"unified/e/memory.max":             file("600000000\n"),
		"memory/x/memory.limit_in_bytes":   file("300000000\n"),
		"memory/x/y/memory.limit_in_bytes": file("9223372036854771712\n"),
		"memory/memory.limit_in_bytes":     file("9223372036854771712\n"),
		"memory/z/memory.limit_in_bytes":   file("300000000\n"),
		"memory/z/memory.usage_in_bytes":   file("120000000\n"),
		"memory/z/memory.stat":             file("cache 1\ntotal_cache 50000000\ntotal_shmem 20000000\n"),
	}
	for groups, want := range map[string]Limit{
		"0::/a/b/c\n":                  {400000000, 0, "a/b/c/memory.max"},
		"0::/a/b\n":                    {1000000000, 0, "a/memory.max"},
		"12:cpu:/x\n0::/a\n":           {1000000000, 0, "a/memory.max"},
		"0::/d\n":                      {},
		"0::/\n":                       {},
		"0::/gone\n":                   {},
		"":                             {},
		"no line of such a file\n":     {},
		"0::/high\n":                   {200000000, 0, "high/memory.high"},
		"0::/e\n":                      {600000000, 0, "unified/e/memory.max"},
		"4:memory:/x/y\n0::/\n":        {300000000, 0, "memory/x/memory.limit_in_bytes"},
		"4:memory:/x\n0::/a/b/c\n":     {300000000, 0, "memory/x/memory.limit_in_bytes"},
		"4:cpu,memory:/x\n":            {300000000, 0, "memory/x/memory.limit_in_bytes"},
		"4:memory:/\n":                 {},
		"4:memory:/docker/elsewhere\n": {},
		"4:memoryless:/x\n":            {},
		// What others hold and the kernel cannot reclaim is not available; 10 MB are our own.
		"0::/slice/us\n": {1000000000, 690000000, "slice/memory.max"},
		"4:memory:/z\n":  {300000000, 80000000, "memory/z/memory.limit_in_bytes"},
	} {
		got, err := groupLimit(root, groups, 10000000)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", groups, got, err, want)
		}
	}
}

func TestMachine(t *testing.T) {
	machine, err := Machine()
	if err != nil || machine < 1<<24 {
		t.Errorf("%d bytes, %v", machine, err)
	}
	if group, err := Group(); err != nil {
		t.Errorf("%+v, %v", group, err)
	}
	if own := resident(); own < 1<<20 {
		t.Errorf("this process takes %d bytes", own)
	}
}

// Whatever is asked for, a plan stays within the limit, gives nobody less than it
// needs or more than it wants, and wastes little; else it says what is needed.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Uint64Range(1, 1<<34).Draw(t, "limit")
		shares := make([]Share, rapid.IntRange(1, 8).Draw(t, "shares"))
		for i := range shares {
			shares[i] = Share{
				Name: "component", Key: "key", Unit: rapid.Uint64Range(1, 5000).Draw(t, "unit"),
				Least: rapid.Uint64Range(0, 1<<20).Draw(t, "least"), Want: rapid.Uint64Range(0, 1<<24).Draw(t, "want"),
				Weight: rapid.Uint64Range(1, 30).Draw(t, "weight"),
			}
		}
		b, err := Plan(limit, shares)
		var small *TooSmallError
		if errors.As(err, &small) {
			if small.Need <= limit {
				t.Fatalf("%d are needed and %d are there", small.Need, limit)
			}
			if _, err := Plan(small.Need, shares); err != nil {
				t.Fatalf("the limit that is needed is too small: %v", err)
			}
			return
		}
		if err != nil || b.Total() > limit {
			t.Fatalf("%d of %d bytes, %v", b.Total(), limit, err)
		}
		missing := false
		for _, s := range b.Shares {
			if s.Count < s.Least || s.Count > s.Want {
				t.Fatalf("%d elements, want %d to %d", s.Count, s.Least, s.Want)
			}
			missing = missing || s.Count < s.Want
		}
		if spare := limit - limit/reserve - b.Total(); missing && spare > limit/100+8*5000 {
			t.Fatalf("%d of %d bytes are not used although something is missing: %+v", spare, limit, b.Shares)
		}
	})
}

func TestPlanPowerOfTwo(t *testing.T) {
	b, err := Plan(100<<20, []Share{
		{Name: "ring", Unit: 1, Least: 4096, Want: 1 << 28, Weight: 1, Power: true},
		{Name: "table", Unit: 256, Least: 1, Want: 1 << 30, Weight: 3},
	})
	if ring := b.Count("ring"); err != nil || ring&(ring-1) != 0 || ring < 8<<20 || b.Total() > 100<<20 {
		t.Errorf("a ring of %d, %d bytes in all, %v", ring, b.Total(), err)
	}
}

func TestTooSmall(t *testing.T) {
	_, err := Plan(80<<20, []Share{
		{Name: "programs", Unit: 1, Least: 20 << 20, Want: 20 << 20},
		{Name: "kernel flow table", Key: "flow.max_entries", Unit: 256, Least: 4 << 20, Want: 4 << 20},
	})
	for _, want := range []string{"limit is 80 MiB", "at least 1099 MiB", "kernel flow table 1024 MiB (flow.max_entries)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
