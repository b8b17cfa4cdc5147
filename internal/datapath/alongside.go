package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/packed"
)

// ReadOnce has all datapaths of this process read the objects with their programs once: tests call it before all else.
func ReadOnce() {
	Ingress.Load, Early.Load = packed.Once(Ingress.Load), packed.Once(Early.Load)
	Egress.Load = Ingress.Load
}

// Alongside loads further programs over the probe's maps and with its constants:
// what tests and benchmarks run in place of the programs at the hooks. adapt,
// where it is given, sets constants and map sizes of their own. The caller
// closes the collection.
func (d *Datapath) Alongside(load func() (*ebpf.CollectionSpec, error), adapt func(*ebpf.CollectionSpec) error) (*ebpf.Collection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return nil, ErrClosed
	}
	all := variant{features: d.features(Ingress, func(*Stage) bool { return true })}
	spec, err := d.prepare("of tests", load, all, Ingress.has)
	if err != nil {
		return nil, err
	}
	if adapt != nil {
		if err := adapt(spec.CollectionSpec); err != nil {
			return nil, err
		}
	}
	spec.writeConstants()
	coll, err := ebpf.NewCollectionWithOptions(spec.CollectionSpec, ebpf.CollectionOptions{MapReplacements: d.shared(spec)})
	if err != nil {
		return nil, fmt.Errorf("loading programs alongside the probe: %w", explain(err))
	}
	return coll, nil
}

// Copy is one of the probe's own programs, with all features, for a datapath that was opened
// without programs. It is the probe's to close.
func (d *Datapath) Copy(p *Program) (*ebpf.Program, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return nil, ErrClosed
	}
	return d.load(p, d.allFeatures(p, variant{}))
}
