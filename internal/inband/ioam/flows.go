package ioam

import (
	"errors"
	"fmt"
	"slices"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Flows that options are inserted into, of which it is followed whether they arrive; see
// bpf/ioam/flow.h. A flow beyond these begins again with what is known of its service.
const maxFlows = 16384

// maxPaths is how many destinations and services are known to take options or not. The map
// is shared with PDM.
const maxPaths = 32768

// sharedMaps are those that the stage shares with other stages that insert into packets.
var sharedMaps = []string{"mark_paths", "mark_stats"}

// Reserve is the MTU headroom that insertions take on an interface: by how much packets grow at most
// that leave without an outer header.
func (n *Node) Reserve() (bytes int) {
	for i := range n.Insertions {
		if n.Insertions[i].Tunnel == nil {
			bytes = max(bytes, n.Insertions[i].Size())
		}
	}
	return bytes
}

// Inserts reports whether packets that leave by an interface get options without an outer header.
func (n *Node) Inserts(name string) bool {
	i := n.interfaceNamed(name)
	return i != nil && slices.ContainsFunc(n.Insertions, func(in Insertion) bool { return in.Tunnel == nil && in.AppliesTo(i) })
}

// setFlows sets sizes in an object whose program inserts.
func setFlows(s *datapath.Spec) error {
	if s.Maps["ioam_guards"] == nil { // at tc only
		return nil
	}
	return errors.Join(s.SetSizes(map[string]uint32{"ioam_guards": maxFlows, "mark_paths": maxPaths}),
		s.SetConstants(map[string]any{"cfg_mark_client_ports": kernel.ClientPorts()}))
}

// Arrivals are running totals of what became known of packets with options.
type Arrivals struct {
	Fallbacks uint64 // flows whose packets with options did not arrive, and that go without
	Blocked   uint64 // destinations, or services there, where none of them arrived
	Narrowed  uint64 // paths that turned out to take less than expected
}

// Arrivals reads these totals.
func (r *Registrar) Arrivals() (a Arrivals, err error) {
	err = r.do(func() error {
		shared, err := r.core.Maps(sharedMaps...)
		if err != nil {
			return err
		}
		for _, kind := range []uint32{uint32(abiMarkKindMARK_IOAM_HOP), uint32(abiMarkKindMARK_IOAM_DEST), uint32(abiMarkKindMARK_IOAM_OUTER)} {
			sum, err := datapath.Total[abiMarkTotals](shared["mark_stats"], kind)
			if err != nil {
				return fmt.Errorf("reading what became of packets with options: %w", err)
			}
			a.Fallbacks += sum.Fallbacks
			a.Blocked += sum.Blocked
			a.Narrowed += sum.Narrowed
		}
		return nil
	})
	return a, err
}
