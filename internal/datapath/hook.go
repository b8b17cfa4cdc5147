package datapath

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// HookType is where in the kernel a program meets packets of an interface.
type HookType uint8

// The types of hooks.
const (
	TCIngress HookType = iota
	TCEgress
	XDP
)

// hookTypes is the only place that tells types of hooks apart.
var hookTypes = [...]struct {
	name   string
	attach func(p *ebpf.Program, ifindex int, h how) (*hook, error)
}{
	TCIngress: {"ingress", attachTC(flow.Ingress)},
	TCEgress:  {"egress", attachTC(flow.Egress)},
	XDP:       {"xdp", attachXDP},
}

// how is a choice between ways to attach.
type how struct {
	clsact     bool // even where the kernel has TCX
	driverOnly bool // XDP not after the driver, where tc costs no more
	bound      bool // to the device: XDP in the driver only
}

func (t HookType) String() string { return hookTypes[t].name }

// HookOf is the tc hook of a direction.
func HookOf(d flow.Direction) HookType {
	if d == flow.Egress {
		return TCEgress
	}
	return TCIngress
}

// direction is that of a tc hook.
func (t HookType) direction() flow.Direction {
	if t == TCEgress {
		return flow.Egress
	}
	return flow.Ingress
}

// Mode is the way a program is attached to an interface.
type Mode string

// The ways of tc, and those of XDP.
const (
	ModeTCX        Mode = "tcx"
	ModeClsact     Mode = "clsact"
	ModeXDP        Mode = "xdp"         // in the driver
	ModeXDPBound   Mode = "xdp-bound"   // in the driver, whose hints it reads
	ModeXDPGeneric Mode = "xdp-generic" // after the driver, for each skb
)

// hook is one program on one interface.
type hook struct {
	Hook
	mode    Mode
	netns   uint32        // number of its namespace
	program *ebpf.Program // that runs
	bound   bool          // it is bound to the device
	stages  []*Stage      // that run here
	update  func(*ebpf.Program) error
	close   func() error
	keep    func(path string) error  // pins it, and has close undo that; nil: it cannot outlive this process
	leave   func() error             // closes it without taking the program off
	kept    bool                     // it is pinned
	ahead   func() ([]string, error) // programs of others that run before; nil: there can be none
}

// inside makes a hook usable from any namespace. A filter is found by its
// interface, a link is not, but the programs before it are.
func (h *hook) inside(do func(func() error) error) *hook {
	out := *h
	if h.mode == ModeClsact {
		out.close = func() error { return do(h.close) }
		out.update = func(p *ebpf.Program) error { return do(func() error { return h.update(p) }) }
	}
	if h.ahead == nil {
		return &out
	}
	out.ahead = func() (names []string, err error) {
		err = do(func() (err error) {
			names, err = h.ahead()
			return err
		})
		return names, err
	}
	return &out
}

// attachTC attaches by TCX, or by clsact where the kernel has none or the
// configuration asks for it.
func attachTC(direction flow.Direction) func(*ebpf.Program, int, how) (*hook, error) {
	return func(p *ebpf.Program, ifindex int, h how) (*hook, error) {
		if h.clsact || !kernel.TCX.Has() {
			return attachClsact(ifindex, direction, p)
		}
		return attachTCX(ifindex, direction, p)
	}
}

// attachXDP attaches in the driver, or behind it where the driver has no XDP.
// The link ends with this process.
func attachXDP(p *ebpf.Program, ifindex int, h how) (*hook, error) {
	opts := link.XDPOptions{Program: p, Interface: ifindex, Flags: link.XDPDriverMode}
	mode := ModeXDP
	l, err := link.AttachXDP(opts)
	if errors.Is(err, unix.EOPNOTSUPP) && !h.driverOnly && !h.bound {
		opts.Flags, mode = link.XDPGenericMode, ModeXDPGeneric
		l, err = link.AttachXDP(opts)
	}
	if err != nil {
		return nil, err
	}
	return linkHook(l, mode), nil
}

// linkHook is a hook that ends with the last reference to its link: that of this process, or its pin.
func linkHook(l link.Link, mode Mode) *hook {
	return &hook{
		mode: mode, update: l.Update, keep: l.Pin, leave: l.Close,
		close: func() error { return errors.Join(l.Unpin(), l.Close()) },
	}
}

// attachTCX stands first at ingress and last at egress: what it counts is what
// is on the wire. Where others are at egress already it stands first there too,
// since a program that ends the chain would hide its packets. The link ends with
// this process, however it ends.
func attachTCX(ifindex int, direction flow.Direction, program *ebpf.Program) (*hook, error) {
	opts := link.TCXOptions{
		Interface: ifindex, Program: program,
		Attach: ebpf.AttachTCXIngress, Anchor: link.Head(),
	}
	if direction == flow.Egress {
		opts.Attach = ebpf.AttachTCXEgress
		others, err := foreignTCX(ifindex, direction, 0)
		if err != nil {
			return nil, err
		}
		if len(others) == 0 {
			opts.Anchor = link.Tail()
		}
	}
	l, err := link.AttachTCX(opts)
	if err != nil {
		return nil, err
	}
	info, err := l.Info()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return tcxHook(l, ifindex, direction, info.ID), nil
}

func tcxHook(l link.Link, ifindex int, direction flow.Direction, id link.ID) *hook {
	h := linkHook(l, ModeTCX)
	h.ahead = func() ([]string, error) { return foreignTCX(ifindex, direction, id) }
	return h
}

// wanted reports whether the target's directions include a hook: only tc hooks
// belong to a direction.
func (t *Target) wanted(h HookType) bool {
	if len(t.Directions) == 0 || h == XDP {
		return true
	}
	return slices.ContainsFunc(t.Directions, func(d flow.Direction) bool { return HookOf(d) == h })
}
