package datapath

import (
	"fmt"

	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/memory"
)

// perFlow is the memory of a flow in both epochs, octets.
const perFlow = uint64(2 * setSize / ways)

// DefaultMaxEntries is 524288, or what 1 % of the machine's memory or a quarter
// of the control group's limit holds, if that is less. A limit is for this
// service, and so a larger part of it.
func DefaultMaxEntries() uint32 {
	most := uint64(524288)
	if machine, err := memory.Machine(); err == nil {
		most = min(most, machine/100/perFlow)
	}
	if group, err := memory.Group(); err == nil && group > 0 {
		most = min(most, group/4/perFlow)
	}
	return uint32(max(most, 1))
}

// besides is what the agent takes besides table and ring, octets: its heap, the
// programs, and the verifier while it looks at them. Measured: 24 MiB.
const besides = 32 << 20

// fits reports a table and a ring that the control group has no room for: the
// kernel would not refuse them but kill the agent.
func (d *Datapath) fits() error {
	group, err := memory.Group()
	if err != nil || group == 0 {
		return nil // not known is as good as none
	}
	flows := uint64(d.cpus) * uint64(d.sets) * uint64(ways)
	table, ring := flows*perFlow, uint64(d.cfg.RingSize)
	if table+ring+besides <= group {
		return nil
	}
	return fmt.Errorf("%w: memory: a table of %d flows takes %d MiB, its ring %d MiB and the agent %d MiB, and the control group allows %d MiB: "+
		"lower flow.max_entries or flow.ring_size, or raise the limit (MemoryMax= of the service)",
		kernel.ErrMissing, flows, table>>20, ring>>20, besides>>20, group>>20)
}
