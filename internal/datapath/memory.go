package datapath

import "github.com/waymark-net/waymark/internal/memory"

// FlowBytes is what a flow takes of the kernel's memory, in both epochs.
const FlowBytes = uint64(2 * setSize / ways)

// DefaultMaxEntries is 524288, or what 1 % of the machine's memory holds, if that
// is less.
func DefaultMaxEntries() uint32 {
	most := uint64(524288)
	if machine, err := memory.Machine(); err == nil {
		most = min(most, machine/100/FlowBytes)
	}
	return uint32(max(most, 1))
}
