// Package toystage is the stage of the walk-through in CONTRIBUTING.md: it counts
// short frames at XDP, for each interface. Input: an epoch of its map. Output: a
// section of the status. Only tests register it.
package toystage

import (
	"fmt"
	"io"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types -type toy_key toy ../../../bpf/test/toy.bpf.c -- -I../../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// Program is at XDP of each interface on which the stage has work.
var Program = &datapath.Program{Name: "waymark_toy", Object: "test/toy.bpf.c", Hook: datapath.XDP, Load: loadToy}

// Config is the section of the configuration.
type Config struct {
	Longest uint32 `yaml:"longest" default:"0" max:"1500" doc:"largest frame that is counted, in bytes; 0: off"`
}

var section = config.Register(config.Section[Config]{
	Name: "toy", Doc: "short frames",
	On: func(c *Config) bool { return c.Longest > 0 },
})

// Status is the section of the status.
type Status struct {
	Frames map[string]uint64 `json:"frames"` // by interface
}

// Kind registers the stage.
func Kind() stage.Kind {
	return stage.Kind{
		Name: "toy",
		On:   section.Enabled,
		New: func(cfg *config.Config, deps stage.Deps) (*stage.Stage, error) {
			t := New(section.Of(cfg).Longest)
			return &stage.Stage{
				Datapath: t.Stage(Program),
				Status:   func() (any, error) { return t.status(deps.IfaceName), nil },
			}, nil
		},
		Text: func(w io.Writer, s *obs.Status) error {
			toy := obs.SectionOf[Status](s, "toy")
			if toy == nil {
				return nil
			}
			_, err := fmt.Fprintf(w, "\nTOY  %v\n", toy.Frames)
			return err
		},
	}
}

// Toy counts short frames.
type Toy struct {
	longest uint32 // bytes

	mu     sync.Mutex
	frames *ebpf.Map
	sums   map[flow.Iface]uint64
}

// New counts frames of up to longest bytes.
func New(longest uint32) *Toy { return &Toy{longest: longest, sums: map[flow.Iface]uint64{}} }

// Stage is its part in the datapath.
func (t *Toy) Stage(in ...*datapath.Program) *datapath.Stage {
	return &datapath.Stage{
		Name: "toy", Programs: in, Maps: []string{"toy_frames"},
		Uses: func(h datapath.Hook) bool { return h.Type == datapath.XDP && h.Target.Name != "lo" },
		Set: func(s *datapath.Spec) error {
			if err := s.SetMaxEntries("toy_frames", 1024); err != nil {
				return err
			}
			return s.SetConstant("cfg_toy_longest", t.longest)
		},
		Open: func(c *datapath.Core) (err error) {
			t.frames, err = c.Map("toy_frames")
			return err
		},
		Drain:  t.drain,
		Forget: t.forget,
	}
}

// drain adds up what an epoch counted. No program writes to it any more.
func (t *Toy) drain(e datapath.Epoch, _ func(*flow.Delta)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var key toyToyKey
	var perCPU []uint64
	var read []toyToyKey
	for all := t.frames.Iterate(); all.Next(&key, &perCPU); {
		if key.Epoch != e.Number {
			continue
		}
		for _, n := range perCPU {
			t.sums[flow.Iface(key.Iface)] += n
		}
		read = append(read, key)
	}
	for _, key := range read {
		if err := t.frames.Delete(&key); err != nil {
			return fmt.Errorf("toy: deleting what was read: %w", err)
		}
	}
	return nil
}

func (t *Toy) forget(i flow.Iface) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sums, i)
	return nil
}

func (t *Toy) status(name func(flow.Iface) (name, netns string)) *Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &Status{Frames: map[string]uint64{}}
	for i, n := range t.sums {
		iface, netns := name(i)
		s.Frames[obs.Place(netns, iface)] += n
	}
	return s
}
