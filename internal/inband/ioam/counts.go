package ioam

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
)

// Count is how many packets had an option with which something special was done.
type Count struct {
	Iface     flow.Iface
	Direction flow.Direction
	Reason    string
	Namespace uint16
	Packets   uint64
}

// Stats are running totals since the start.
type Stats struct {
	Written   uint64 // options that this node's data were added to
	Completed uint64 // of these, with what only the egress knows
	Removed   uint64 // options that were removed where their namespace ends
	Unwrapped uint64 // packets whose outer IPv6 header was removed with them
	Proven    uint64 // packets whose proof of transit was found right
	Exported  uint64 // packets of which a record was exported (direct export)
	Unread    uint64 // records of these that nobody was there to read
	Looped    uint64 // packets of which a copy was made (loopback)
	Returned  uint64 // copies of packets of this node that came back to it
	Uncounted uint64 // options that did not fit into the counts by reason
}

// cpuTotals are the totals of all CPUs, of which struct ioam_cpu has those of one.
type cpuTotals struct {
	Paths   abiIoamPathTotals
	Options [len(abiIoamCpu{}.Options)]uint64 // by reason
}

func totals(m *ebpf.Map) (cpuTotals, error) {
	cpus := make([]cpuTotals, m.MaxEntries())
	var value abiIoamCpu
	for i := range cpus {
		if err := m.Lookup(uint32(i), &value); err != nil {
			return cpuTotals{}, fmt.Errorf("reading the totals of the IOAM node: %w", err)
		}
		cpus[i] = cpuTotals{Paths: value.Paths, Options: value.Options}
	}
	return datapath.Sum(cpus), nil
}

// Stats reads the totals.
func (r *Registrar) Stats() (s Stats, err error) {
	err = r.do(func() error {
		sum, err := totals(r.maps["ioam_cpus"])
		if err != nil {
			return err
		}
		for reason, to := range map[abiIoamReason]*uint64{
			abiIoamReasonIOAM_WRITTEN: &s.Written, abiIoamReasonIOAM_COMPLETED: &s.Completed, abiIoamReasonIOAM_REMOVED: &s.Removed,
			abiIoamReasonIOAM_UNWRAPPED: &s.Unwrapped, abiIoamReasonIOAM_PROVEN: &s.Proven, abiIoamReasonIOAM_EXPORTED: &s.Exported,
			abiIoamReasonIOAM_LOOPED: &s.Looped, abiIoamReasonIOAM_RETURNED: &s.Returned, abiIoamReasonIOAM_REASON_MAX: &s.Uncounted,
		} {
			*to = sum.Options[reason]
		}
		stayed, unread := r.direct.counts()
		s.Exported += stayed
		s.Unread = unread
		return nil
	})
	return s, err
}

// CopiesSent are the copies that were sent to the sources of packets, and those that could not be; and why none can be sent
// at all.
func (r *Registrar) CopiesSent() (sent, unsent uint64, err error) { return r.direct.looper.counts() }

// Counts reads the counts by reason.
func (r *Registrar) Counts() (out []Count, err error) {
	err = r.do(func() error {
		names, err := reasonNames()
		if err != nil {
			return err
		}
		var key abiIoamCountKey
		var perCPU []abiCountValue
		all := r.maps["ioam_counts"].Iterate()
		for all.Next(&key, &perCPU) {
			out = append(out, Count{
				Iface: flow.Iface(key.Iface), Direction: flow.Direction(key.Direction), Reason: names[key.Reason],
				Namespace: key.Space, Packets: datapath.Sum(perCPU).Packets,
			})
		}
		return all.Err()
	})
	return out, err
}

// reasonNames are the names of enum ioam_reason in bpf/ioam/abi.h, lower case and without
// the prefix; and those of enum mark_reason in bpf/mark/abi.h, for what was not inserted.
var reasonNames = sync.OnceValues(func() (map[uint8]string, error) {
	names, err := datapath.EnumNames(loadAbi, "ioam_reason", "IOAM_")
	if err != nil {
		return nil, err
	}
	refusals, err := datapath.EnumNames(loadAbi, "mark_reason", "MARK_")
	for no, name := range refusals {
		names[uint8(abiIoamReasonClassIOAM_REFUSED)+no] = "not_inserted_" + name
	}
	return names, err
})

// Reasons are the names that Counts may give.
func Reasons() ([]string, error) {
	names, err := reasonNames()
	if err != nil {
		return nil, err
	}
	names = maps.Clone(names)
	for _, no := range []abiIoamReason{
		abiIoamReasonIOAM_WRITTEN, abiIoamReasonIOAM_COMPLETED, abiIoamReasonIOAM_REMOVED, abiIoamReasonIOAM_UNWRAPPED, abiIoamReasonIOAM_PROVEN, abiIoamReasonIOAM_EXPORTED,
		abiIoamReasonIOAM_LOOPED, abiIoamReasonIOAM_RETURNED, abiIoamReasonIOAM_REASON_MAX,
	} {
		delete(names, uint8(no))
	}
	delete(names, uint8(abiIoamReasonClassIOAM_REFUSED)+uint8(abiMarkReasonMARK_REASON_MAX))
	return slices.Sorted(maps.Values(names)), nil
}
