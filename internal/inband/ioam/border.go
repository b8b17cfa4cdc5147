package ioam

import (
	"fmt"
	"slices"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/topology"
)

// Border is what happens to packets with options of the node's namespaces at interfaces
// that have no role for them. Foreign namespaces pass.
type Border string

// The ways. Strip changes packets on their way, which RFC 8200 section 4 leaves to the
// nodes that they are addressed to.
const (
	BorderOff   Border = "off"
	BorderDrop  Border = "drop"
	BorderStrip Border = "strip"
)

var borders = map[Border]uint8{
	BorderDrop: uint8(abiIoamBorderIOAM_BORDER_DROP), BorderStrip: uint8(abiIoamBorderIOAM_BORDER_STRIP),
}

// stack is which interfaces of a namespace lie directly on which others, by index.
type stack map[int][]int

// stackable are the kinds of interfaces that pass on the frames of the one below.
var stackable = []string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}

func readStack() (stack, error) {
	links, err := topology.Links()
	if err != nil {
		return nil, fmt.Errorf("listing the interfaces: %w", err)
	}
	s := stack{}
	for _, l := range links {
		a := l.Attrs()
		s[a.Index] = append(s[a.Index], 0)[:len(s[a.Index])] // known, even where nothing lies on it
		if a.MasterIndex != 0 {
			s[a.Index] = append(s[a.Index], a.MasterIndex)
		}
		if a.ParentIndex != 0 && a.NetNsID < 0 && slices.Contains(stackable, l.Type()) {
			s[a.ParentIndex] = append(s[a.ParentIndex], a.Index)
		}
	}
	return s, nil
}

// carries reports whether one interface lies below another, at any depth.
func (s stack) carries(lower, upper int) bool {
	seen := []int{lower}
	for i := 0; i < len(seen); i++ {
		for _, above := range s[seen[i]] {
			if above == upper {
				return true
			}
			if !slices.Contains(seen, above) {
				seen = append(seen, above)
			}
		}
	}
	return false
}

// guards reports whether a hook of an interface that is not the node's is one of its borders.
func (r *Registrar) guards(h datapath.Hook) bool {
	return borders[r.cfg.Border] != 0 && h.Type != datapath.XDP && r.uses(h)
}

// place notes how the interfaces around a new one lie on each other.
func (r *Registrar) place(t *datapath.Target, listed bool) error {
	if borders[r.cfg.Border] == 0 {
		return nil
	}
	netns := t.Iface.Netns()
	if _, known := r.stacks[netns][int(t.IfIndex)]; known && !listed {
		return nil
	}
	return t.Do(func() error {
		s, err := readStack()
		r.stacks[netns] = s
		return err
	})
}

// borderOf is what the border does at an interface. One that shares its frames with an
// interface of the node, as a port of its bridge or as the device below its VLAN, is no
// border: these packets are in the domain.
func (r *Registrar) borderOf(i flow.Iface, name string, n *Node) uint8 {
	border := borders[r.cfg.Border]
	if len(n.Interfaces) == 0 {
		return 0 // the node is not known yet
	}
	if border == 0 || n.interfaceNamed(name) != nil {
		return border
	}
	s, own := r.stacks[i.Netns()], r.indexes[i]
	for other, its := range r.ifaces {
		if other.Netns() != i.Netns() || n.interfaceNamed(its) == nil {
			continue
		}
		if s.carries(own, r.indexes[other]) || s.carries(r.indexes[other], own) {
			return 0
		}
	}
	return border
}
