package memory

import (
	"testing"
	"testing/fstest"
)

func TestGroupLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{
		"a/memory.max":                     file("1000000000\n"),
		"a/b/memory.max":                   file("max\n"),
		"a/b/c/memory.max":                 file("400000000\n"),
		"d/memory.max":                     file("max\n"),
		"memory/x/memory.limit_in_bytes":   file("300000000\n"),
		"memory/x/y/memory.limit_in_bytes": file("9223372036854771712\n"),
		"memory/memory.limit_in_bytes":     file("9223372036854771712\n"),
	}
	for groups, want := range map[string]uint64{
		"0::/a/b/c\n":                  400000000,
		"0::/a/b\n":                    1000000000,
		"12:cpu:/x\n0::/a\n":           1000000000,
		"0::/d\n":                      0,
		"0::/\n":                       0,
		"0::/gone\n":                   0,
		"":                             0,
		"no line of such a file\n":     0,
		"4:memory:/x/y\n0::/\n":        300000000,
		"4:memory:/x\n0::/a/b/c\n":     300000000,
		"4:cpu,memory:/x\n":            300000000,
		"4:memory:/\n":                 0,
		"4:memory:/docker/elsewhere\n": 0,
		"4:memoryless:/x\n":            0,
	} {
		got, err := groupLimit(root, groups)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", groups, got, err, want)
		}
	}
}

func TestMachine(t *testing.T) {
	machine, err := Machine()
	if err != nil || machine < 1<<24 {
		t.Errorf("%d octets, %v", machine, err)
	}
	if group, err := Group(); err != nil {
		t.Errorf("%d octets, %v", group, err)
	}
}
