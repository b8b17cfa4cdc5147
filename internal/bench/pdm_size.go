package bench

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/inband/pdm"
)

// PDMSize is what the kernel made of the program at a hook.
type PDMSize struct {
	Program string `json:"program"`
	PDM     bool   `json:"pdm"`
	Size
}

// measurePDMSizes looks at the programs as the agent attaches them.
func measurePDMSizes() (sizes []PDMSize, state PDMState, err error) {
	h, err := newIdleHost()
	if err != nil {
		return nil, state, err
	}
	defer h.close()
	cfg := pdm.Default()
	on, err := h.loadProbe(&cfg, 1<<16, nil)
	if err != nil {
		return nil, state, err
	}
	off, err := h.loadProbe(nil, 1<<16, nil)
	if err != nil {
		return nil, state, err
	}
	for _, d := range []*probe{off, on} {
		list, err := d.Programs()
		if err != nil {
			return nil, state, err
		}
		// There are copies for devices without a link header: they are smaller.
		largest := map[string]Size{}
		for _, p := range list {
			size, err := sizeOfID(p.ID)
			if err != nil {
				return nil, state, fmt.Errorf("asking for %s: %w", p.Name, err)
			}
			if size.Instructions > largest[p.Name].Instructions {
				largest[p.Name] = size
			}
		}
		for _, name := range slices.Sorted(maps.Keys(largest)) {
			sizes = append(sizes, PDMSize{Program: name, PDM: d == on, Size: largest[name]})
		}
	}
	stats, err := on.marker.Stats()
	if err != nil {
		return nil, state, err
	}
	coll, err := alongside(on, 1, "bench_mark")
	if err != nil {
		return nil, state, err
	}
	defer coll.Close()
	state = PDMState{MaxFlows: stats.MaxStates, KeyValue: stats.Bytes}
	for _, name := range []string{"pdm_states", "pdm_near", "pdm_words"} {
		info, err := coll.Maps[name].Info()
		if err != nil {
			return nil, state, fmt.Errorf("asking for the map %s: %w", name, err)
		}
		if size, ok := info.Memlock(); ok {
			state.Kernel += float64(size) / float64(stats.MaxStates)
		}
	}
	return sizes, state, nil
}

func sizeOfID(id uint32) (Size, error) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return Size{}, err
	}
	defer p.Close()
	return sizeOf(p)
}
