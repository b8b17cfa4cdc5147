package datapath

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Programs on one hook run in turn until one ends the chain: what comes after it
// does not see the packet. Ours never do so.

// Ahead lists, by direction, the programs of others that run before ours on an
// interface.
func (d *Datapath) Ahead(iface flow.Iface) (map[flow.Direction][]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[flow.Direction][]string{}
	var errs []error
	for _, h := range d.hooks[iface] {
		if h.ahead == nil {
			continue
		}
		names, err := h.ahead()
		if err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("reading the %s programs of interface %d: %w", h.Type, iface.IfIndex(), err))
		}
		if len(names) > 0 {
			out[h.Type.direction()] = names
		}
	}
	return out, errors.Join(errs...)
}

// Chain lists the programs on one direction of an interface of the calling
// thread's namespace, in the order in which they run.
func Chain(ifindex int, direction flow.Direction) ([]string, error) {
	var names []string
	if kernel.TCX.Has() {
		programs, err := queryTCX(ifindex, direction)
		if err != nil {
			return nil, err
		}
		for _, p := range programs {
			names = append(names, "tcx "+programName(p.ID))
		}
	}
	filters, err := tcFilters(ifindex, parentOf(direction))
	for _, f := range filters {
		names = append(names, filterName(f))
	}
	return names, err
}

func queryTCX(ifindex int, direction flow.Direction) ([]link.AttachedProgram, error) {
	attach := ebpf.AttachTCXIngress
	if direction == flow.Egress {
		attach = ebpf.AttachTCXEgress
	}
	r, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: attach})
	if errors.Is(err, unix.ENOENT) { // nothing was ever attached
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.Programs, nil
}

// foreignTCX are the programs that are not known to be a Waymark's, up to the one
// of the link own; 0: all.
func foreignTCX(ifindex int, direction flow.Direction, own link.ID) ([]string, error) {
	programs, err := queryTCX(ifindex, direction)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range programs {
		if id, ok := p.LinkID(); ok && id == own && own != 0 {
			break
		}
		if name := programName(p.ID); !strings.HasPrefix(name, "waymark_") {
			names = append(names, name)
		}
	}
	return names, nil
}

// programName is the number of a program where the privilege to ask for more
// (CAP_SYS_ADMIN) is missing.
func programName(id ebpf.ProgramID) string {
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		defer p.Close()
		if info, err := p.Info(); err == nil && info.Name != "" {
			return fmt.Sprintf("%s (id %d)", info.Name, id)
		}
	}
	return fmt.Sprintf("program %d", id)
}

func parentOf(direction flow.Direction) uint32 {
	if direction == flow.Egress {
		return netlink.HANDLE_MIN_EGRESS
	}
	return netlink.HANDLE_MIN_INGRESS
}

func tcFilters(ifindex int, parent uint32) ([]netlink.Filter, error) {
	filters, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, parent)
	if err != nil {
		return nil, fmt.Errorf("listing filters: %w", err)
	}
	return filters, nil
}

func filterName(f netlink.Filter) string {
	name := f.Type()
	if b, ok := f.(*netlink.BpfFilter); ok {
		name = b.Name
	}
	return fmt.Sprintf("tc filter %s (pref %d)", name, f.Attrs().Priority)
}

// foreignFilters are the filters before the one of that name.
func foreignFilters(ifindex int, parent uint32, own string) ([]string, error) {
	filters, err := tcFilters(ifindex, parent)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range filters {
		b, isBPF := f.(*netlink.BpfFilter)
		if isBPF && b.Name == own || f.Attrs().Priority > clsactPriority {
			break
		}
		if !isBPF || !strings.HasPrefix(b.Name, filterPrefix) {
			names = append(names, filterName(f))
		}
	}
	return names, nil
}
