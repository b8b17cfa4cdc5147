package datapath

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
)

// Beside loads further programs over the probe's maps and with its constants:
// what tests and benchmarks run in place of the programs at the hooks. adapt,
// where it is given, sets constants and map sizes of their own. The caller
// closes the collection.
func (d *Datapath) Beside(load func() (*ebpf.CollectionSpec, error), adapt func(*ebpf.CollectionSpec) error) (*ebpf.Collection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table == nil {
		return nil, errClosed
	}
	spec, err := d.spec(load, variant{})
	if err != nil {
		return nil, err
	}
	if adapt != nil {
		if err := adapt(spec); err != nil {
			return nil, err
		}
	}
	shared := maps.Clone(d.maps)
	maps.DeleteFunc(shared, func(name string, _ *ebpf.Map) bool { return spec.Maps[name] == nil })
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("loading programs beside the probe: %w", explain(err))
	}
	return coll, nil
}
