package datapath

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

func init() { ReadOnce() }

// What tests of the package with stages of other packages use of it.

// Counted is counted.
func (d *Datapath) Counted(t testing.TB) []flow.Delta { return counted(t, d) }

// Tick is the kernel's current one, or the next: never one that was before it.
func (d *Datapath) Tick() (uint64, error) {
	c, err := d.ticks.read()
	return uint64(c.stamp + 1), err
}

// LoadFixed is Load of some copies, with constants that are the same on every machine. It keeps
// what the verifier reports.
func (d *Datapath) LoadFixed(wanted func(p *Program, noLink bool) bool) (err error) {
	cpus, err := kernel.CPUs("online")
	if err != nil {
		return err
	}
	d.flowCache.cfg.MaxEntries = 1024 * uint32(ways*cpus)
	if err := d.checkStages(); err != nil {
		return err
	}
	for i := range d.keys {
		d.keys[i] = uint32(i+1) * 0x9e3779b1
	}
	if err := d.makeAll(); err != nil {
		return err
	}
	for _, p := range d.all {
		for _, noLink := range []bool{false, true} {
			if !wanted(p, noLink) {
				continue
			}
			v := d.allFeatures(p, variant{noLink: noLink})
			spec, err := d.spec(p, v)
			if err != nil {
				return err
			}
			spec.writeConstants()
			coll, err := ebpf.NewCollectionWithOptions(spec.CollectionSpec, ebpf.CollectionOptions{
				MapReplacements: d.shared(spec),
				Programs:        ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
			})
			if err != nil {
				return errors.Join(err, errors.New(p.Name))
			}
			d.loaded[copyOf{p, v}] = coll.DetachProgram(p.Name)
			coll.Close()
		}
	}
	d.open = true
	return nil
}

// Loaded is a program that LoadFixed loaded.
func (d *Datapath) Loaded(p *Program, noLink bool) *ebpf.Program {
	return d.loaded[copyOf{p, d.allFeatures(p, variant{noLink: noLink})}]
}

// Map is one of the maps of the programs; nil: there is none of that name.
func (d *Datapath) Map(name string) *ebpf.Map { return d.maps[name] }

// Samples reports whether not all packets are counted.
func (d *Datapath) Samples() bool { return d.flowCache.cfg.Sampling > 1 }
