package datapath

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/order"
)

// Program is a program of an object, for one type of hook. Stages share it: it
// reads as the list of their calls.
type Program struct {
	Name   string // of the function in C
	Object string // file in bpf/, for errors
	Hook   HookType
	Load   func() (*ebpf.CollectionSpec, error)
	// Optional: a program at tc does its work where the kernel or the driver has no XDP, or the
	// interface runs another XDP program.
	Optional bool
}

// The programs that count packets, with all stages at tc; and the one at XDP, with all stages that
// may run there instead.
var (
	Ingress = &Program{Name: "waymark_ingress", Object: "tc.bpf.c", Hook: TCIngress, Load: loadTc}
	Egress  = &Program{Name: "waymark_egress", Object: "tc.bpf.c", Hook: TCEgress, Load: loadTc}
	Early   = &Program{Name: "waymark_xdp", Object: "xdp.bpf.c", Hook: XDP, Load: loadEarly, Optional: true}
)

// variant is what differs between copies of a program.
type variant struct {
	netns    uint32 // number of the network namespace
	iface    uint32 // added to an interface's index, it gives the number of the interface
	noLink   bool
	features uint32 // of stages, see Stage.Feature
	device   uint32 // index of the interface that it is bound to; 0: none
}

// copyOf is a program with what differs.
type copyOf struct {
	program *Program
	variant
}

// variantOf is the copy of a program that serves an interface.
func (d *Datapath) variantOf(p *Program, t *Target) variant {
	v := variant{
		netns: t.Netns, iface: uint32(t.Iface) - t.IfIndex, noLink: t.NoLinkHeader,
		features: d.features(p, func(s *Stage) bool { return s.uses(Hook{p.Hook, t}) }),
	}
	if slices.ContainsFunc(d.stages, func(s *Stage) bool { return s.bound(p, Hook{p.Hook, t}) }) {
		v.device = t.IfIndex
	}
	return v
}

// features are the bits of the chosen stages of a program.
func (d *Datapath) features(p *Program, chosen func(*Stage) bool) (bits uint32) {
	for _, s := range d.stages {
		if s.has(p) && s.Feature != 0 && chosen(s) {
			bits |= s.Feature
		}
	}
	return bits
}

// programs are all programs of the stages, in the order in which they are attached: XDP first, so that stages know
// whether tc has to do its work.
func programs(stages []*Stage) (all []*Program) {
	for _, s := range stages {
		for _, p := range s.Programs {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	sequence := []HookType{XDP, TCIngress, TCEgress}
	order.By(all, func(a, b *Program) int { return slices.Index(sequence, a.Hook) - slices.Index(sequence, b.Hook) })
	return all
}

// makeMaps makes the maps of all programs; those of one name are one map.
func (d *Datapath) makeMaps() error {
	for _, p := range d.all {
		spec, err := d.spec(p, variant{})
		if err != nil {
			return err
		}
		for name, m := range spec.Maps {
			if strings.HasPrefix(name, ".rodata") || d.maps[name] != nil {
				continue
			}
			if strings.HasPrefix(name, ".data") {
				m.Flags |= unix.BPF_F_MMAPABLE // as the loader does for its own
			}
			if d.maps[name], err = ebpf.NewMap(m); err != nil {
				return fmt.Errorf("map %s of %s: %w", name, p.Object, explain(err))
			}
		}
	}
	return nil
}

// spec reads the object of a program and lets its stages set sizes and constants.
func (d *Datapath) spec(p *Program, v variant) (*Spec, error) {
	return d.prepare(p.Object, func() (*ebpf.CollectionSpec, error) { return d.read(p) }, v, p.has)
}

// read reads the object of a program, once until Synced: reading takes as long
// as the verifier does for a small program.
func (d *Datapath) read(p *Program) (*ebpf.CollectionSpec, error) {
	if d.parsed == nil {
		return p.loadChecked()
	}
	if d.parsed[p.Object] == nil {
		object, err := p.loadResolved()
		if err != nil {
			return nil, err
		}
		d.parsed[p.Object] = object
	}
	spec, err := p.alone(d.parsed[p.Object])
	if err != nil {
		return nil, err
	}
	return spec.Copy(), nil
}

func (p *Program) loadResolved() (*ebpf.CollectionSpec, error) {
	object, err := p.Load()
	if err != nil {
		return nil, err
	}
	return object, resolveKernel(object)
}

// loadChecked reads the object, which must have the program, and leaves out others.
func (p *Program) loadChecked() (*ebpf.CollectionSpec, error) {
	object, err := p.loadResolved()
	if err != nil {
		return nil, err
	}
	return p.alone(object)
}

// alone is an object with this program only.
func (p *Program) alone(object *ebpf.CollectionSpec) (*ebpf.CollectionSpec, error) {
	program := object.Programs[p.Name]
	if program == nil {
		return nil, fmt.Errorf("object %s has no program %s", p.Object, p.Name)
	}
	alone := *object
	alone.Programs = map[string]*ebpf.ProgramSpec{p.Name: program}
	return &alone, nil
}

func (p *Program) has(s *Stage) bool { return s.has(p) }

// prepare reads an object and lets the chosen stages set sizes and constants.
func (d *Datapath) prepare(object string, load func() (*ebpf.CollectionSpec, error), v variant, chosen func(*Stage) bool) (*Spec, error) {
	coll, err := load()
	if err != nil {
		return nil, fmt.Errorf("reading the built-in object %s: %w", object, err)
	}
	s := &Spec{CollectionSpec: coll, Object: object, NoLinkHeader: v.noLink, Features: v.features}
	if v.device != 0 {
		s.Bound, s.Device = flow.Iface(v.iface+v.device), v.device
	}
	for _, stage := range d.stages {
		if stage.Set == nil || !chosen(stage) {
			continue
		}
		if err := stage.Set(s); err != nil {
			return nil, fmt.Errorf("stage %s: %w", stage.Name, err)
		}
	}
	if err := s.SetConstants(map[string]any{"cfg_netns": v.netns, "cfg_iface": v.iface, "cfg_features": s.Features, "cfg_dry_key": d.dryKey}); err != nil {
		return nil, err
	}
	return s, s.dropDisabled()
}

// loadAhead loads what interfaces of the agent's own namespace need, with all
// features: later the agent may lack the privilege to load.
func (d *Datapath) loadAhead() error {
	for _, p := range d.all {
		for _, noLink := range []bool{false, true} {
			if noLink && !d.mayLackLink(p) {
				continue
			}
			_, err := d.load(p, d.allFeatures(p, variant{noLink: noLink}))
			if err != nil && p.Optional {
				d.log.Info("the kernel refuses a program; tc does its work", "program", p.Name, "error", err)
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// mayLackLink reports whether interfaces without link header that appear later run a program: its copy for them doubles the
// verifier's work. Hardly a driver of such interfaces runs one at XDP; there tc does its work until the agent's next start.
func (d *Datapath) mayLackLink(p *Program) bool {
	return !d.cfg.LinkHeader && (!p.Optional || slices.ContainsFunc(d.stages, func(s *Stage) bool { return s.has(p) && s.Anywhere != nil }))
}

// allFeatures is the variant with the features of all stages, and bound to nothing.
func (d *Datapath) allFeatures(p *Program, v variant) variant {
	v.features = d.features(p, func(*Stage) bool { return true })
	v.device = 0
	return v
}

// load returns a copy of a program, which it loads on first use. All share the maps.
func (d *Datapath) load(p *Program, v variant) (*ebpf.Program, error) {
	if loaded := d.loaded[copyOf{p, v}]; loaded != nil {
		return loaded, nil
	}
	spec, err := d.spec(p, v)
	if err != nil {
		return nil, err
	}
	one := spec.Programs[p.Name]
	if v.device != 0 {
		one.Ifindex = v.device
		one.Flags |= unix.BPF_F_XDP_DEV_BOUND_ONLY
	}
	spec.writeConstants()
	coll, err := ebpf.NewCollectionWithOptions(spec.CollectionSpec, ebpf.CollectionOptions{MapReplacements: d.shared(spec)})
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", p.Name, explain(err))
	}
	defer coll.Close()
	loaded := coll.DetachProgram(p.Name)
	d.loaded[copyOf{p, v}] = loaded
	return loaded, nil
}

// loadFor returns the copy of a program for an interface, and whether it is bound to it. A copy
// with fewer features or bound to a device only saves work, so where it cannot be loaded, the
// general one serves. The caller is in the namespace of the interface.
func (d *Datapath) loadFor(p *Program, t *Target) (loaded *ebpf.Program, bound bool, err error) {
	v := d.variantOf(p, t)
	if v.device != 0 {
		if loaded, err = d.load(p, v); err == nil {
			return loaded, true, nil
		}
		d.reportUnbound(Hook{p.Hook, t}, err)
	}
	loaded, err = d.loadUnbound(p, t, v)
	return loaded, false, err
}

func (d *Datapath) loadUnbound(p *Program, t *Target, v variant) (*ebpf.Program, error) {
	v.device = 0
	loaded, err := d.load(p, v)
	if general := d.allFeatures(p, v); err != nil && general != v {
		loaded, err = d.load(p, general)
	}
	if err != nil && t.IfIndex != t.Iface.IfIndex() && v.netns == 0 {
		return nil, fmt.Errorf("attaching to %s: index %d takes programs of its own, which the agent cannot load any more: %s: %w", t.String(), t.IfIndex, loadsAgain, err)
	}
	if err != nil && v.noLink && !d.mayLackLink(p) {
		return nil, fmt.Errorf("%s without link header appeared after the start, and the agent cannot load a program for it any more: %s: %w", t.String(), loadsAgain, err)
	}
	return loaded, err
}

const loadsAgain = "restart it, or start it with --keep-privileges"

// shared are the maps of an object that exist already.
func (d *Datapath) shared(s *Spec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name := range s.Maps {
		if m := d.maps[name]; m != nil {
			out[name] = m
		}
	}
	return out
}

// unload closes programs that no interface uses and that may be loaded again.
func (d *Datapath) unload(which func(variant) bool) {
	for c, p := range d.loaded {
		if which(c.variant) {
			p.Close()
			delete(d.loaded, c)
		}
	}
}

// explain adds the remedy to errors whose reason is outside the program.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w: run as root, or with CAP_BPF and CAP_NET_ADMIN", kernel.ErrMissing, err)
	case errors.Is(err, unix.EMFILE): // without the verifier's log, which has nothing to do with it
		return fmt.Errorf("%w: raise RLIMIT_NOFILE", unix.EMFILE)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %w: lower the sizes in the configuration, such as flow.max_entries or gate.table_memory, or raise the memory limit of the service", kernel.ErrMissing, err)
	}
	return err
}
