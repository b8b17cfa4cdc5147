package datapath

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// Dry is a frame that programs have tried, without counting, remembering or sending anything.
type Dry struct {
	Note  []byte // struct dry_note
	Frame []byte // as it would leave
}

// noteSize is that of struct dry_note, which begins with the key.
const noteSize = 32

// Decision is what a stage would do with a packet, and why.
type Decision struct {
	Stage  string `json:"stage"`
	Result string `json:"result"` // by the name under which such packets are counted
	To     string `json:"to"`     // interface, backend, client, kernel or dropped
	Doc    string `json:"reason"`

	OutIndex   uint32     `json:"-"`                    // of the interface where it would leave; 0: nowhere
	Out        string     `json:"out,omitempty"`        // its name
	NextHop    netip.Addr `json:"next_hop,omitzero"`    // of the route
	MTU        uint16     `json:"mtu,omitempty"`        // of the route; of a packet that is too big, what its sender gets
	Refresh    bool       `json:"refresh,omitempty"`    // the next packet to this neighbour is the kernel's, so that it asks for the neighbour
	Service    string     `json:"service,omitempty"`    //
	Backend    string     `json:"backend,omitempty"`    // its address
	Forwarding string     `json:"forwarding,omitempty"` // how packets get there: l2, ipip or gue
	Choice     string     `json:"choice,omitempty"`     // why this backend: connection_known, maglev or connection_id
}

// ToKernel is Decision.To of packets that a stage leaves to those behind it, and to the kernel at last.
const ToKernel = "kernel"

// MadeUp is a frame that somebody asks about.
type MadeUp struct {
	Data []byte
	// ToInterface: it gets the link address of the interface as its destination.
	ToInterface bool
}

// Explanation is what would become of a frame that arrives at an interface.
type Explanation struct {
	Decisions []Decision // one for each stage that it would meet; the last decides
	Sent      []byte     // the frame as it was tried
	Frame     []byte     // as it would leave
}

// Bounds of frames in a dry run.
const (
	minDryFrame = 14
	maxDryFrame = 9018
)

// newDryKey is a number that nobody else knows, and that no empty memory has.
func newDryKey() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:]) | 1
}

// Explain has the programs of an interface try frames. The error names interfaces where that is not possible.
func (c *Core) Explain(iface string, frames []MadeUp) (all []Explanation, err error) {
	err = c.Do(func() error {
		h, err := c.d.dryHook(iface)
		if err != nil {
			return err
		}
		program, err := c.d.dryProgram(h)
		if err != nil {
			return fmt.Errorf("a program for dry runs at %s: %w", iface, err)
		}
		return h.Target.Do(func() error {
			for n, f := range frames {
				one, err := c.d.explain(h, program, f)
				if err != nil {
					return fmt.Errorf("packet %d: %w", n+1, err)
				}
				all = append(all, one)
			}
			return nil
		})
	})
	return all, err
}

// dryHook is that at XDP of an interface by its name, as users see it.
func (d *Datapath) dryHook(iface string) (found *hook, err error) {
	var names []string
	for _, hooks := range d.hooks {
		for _, h := range hooks {
			if h.Type != XDP || !slices.ContainsFunc(d.stages, func(s *Stage) bool { return s.Explain != nil && s.uses(h.Hook) }) {
				continue
			}
			names = append(names, h.Target.String())
			switch {
			case h.Target.String() == iface:
				return h, nil
			case h.Target.Name == iface && found != nil:
				return nil, fmt.Errorf("several interfaces are named %s: write the namespace, too, as in %s and %s", iface, found.Target, h.Target)
			case h.Target.Name == iface:
				found = h
			}
		}
	}
	if found == nil {
		slices.Sort(names)
		where := "the agent has none at XDP"
		if len(names) > 0 {
			where = "there are " + strings.Join(names, ", ")
		}
		return nil, fmt.Errorf("%q is no interface where packets are forwarded or balanced: %s", iface, where)
	}
	return found, nil
}

// dryProgram is the one that runs at a hook, or its unbound copy over the same maps: the kernel tries no program that is bound to a
// device.
func (d *Datapath) dryProgram(h *hook) (*ebpf.Program, error) {
	if !h.bound {
		return h.program, nil
	}
	return d.load(Early, d.allFeatures(Early, d.variantOf(Early, h.Target)))
}

// explain tries a frame. The caller is in the namespace of the interface.
func (d *Datapath) explain(h *hook, program *ebpf.Program, f MadeUp) (e Explanation, err error) {
	if n := len(f.Data); n < minDryFrame || n > maxDryFrame {
		return e, fmt.Errorf("a frame has %d to %d bytes, and this one %d", minDryFrame, maxDryFrame, n)
	}
	e.Sent = bytes.Clone(f.Data)
	if f.ToInterface {
		l, err := netlink.LinkByIndex(int(h.Target.IfIndex))
		if err != nil {
			return e, fmt.Errorf("link address of %s: %w", h.Target, err)
		}
		copy(e.Sent[:6], l.Attrs().HardwareAddr)
	}
	in := append(binary.NativeEndian.AppendUint64(nil, d.dryKey), make([]byte, noteSize-8)...)
	in = append(in, e.Sent...)
	out := make([]byte, len(in)+256)
	opts := ebpf.RunOptions{Data: in, DataOut: out, Context: xdpContext{Data: noteSize, End: uint32(len(in)), Ingress: h.Target.IfIndex}}
	if _, err := program.Run(&opts); err != nil {
		return e, fmt.Errorf("the kernel does not try it at %s: %w", h.Target, err)
	}
	dry := &Dry{Note: opts.DataOut[:noteSize], Frame: opts.DataOut[noteSize:]}
	if len(opts.DataOut) < noteSize || !bytes.Equal(dry.Note[:8], in[:8]) {
		return e, errors.New("the program has left no note of it")
	}
	e.Frame = dry.Frame
	for _, s := range d.stages {
		if s.Explain == nil || !s.uses(h.Hook) {
			continue
		}
		if decision := s.Explain(h.Hook, dry); decision != nil {
			decision.Stage, decision.Out = s.Name, nameIn(decision.OutIndex)
			e.Decisions = append(e.Decisions, *decision)
		}
	}
	// What a stage takes comes to none behind it.
	slices.SortStableFunc(e.Decisions, func(a, b Decision) int { return passes(b) - passes(a) })
	return e, nil
}

// nameIn is the name of an interface in the namespace of the caller; empty: it is gone, or there is none.
func nameIn(index uint32) string {
	if index == 0 {
		return ""
	}
	l, err := netlink.LinkByIndex(int(index))
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}

func passes(d Decision) int {
	if d.To == ToKernel {
		return 1
	}
	return 0
}

// xdpContext is struct xdp_md, as the kernel takes it for a dry run.
type xdpContext struct{ Data, End, Meta, Ingress, Queue, Egress uint32 }
