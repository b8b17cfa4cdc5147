package topology

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

const netlinkRoute = unix.NETLINK_ROUTE

// Counters are an interface's own counts since it was made (rtnl_link_stats64).
// A GSO burst counts as one packet on virtual interfaces.
type Counters struct {
	RxPackets, RxBytes, RxDropped uint64
	TxPackets, TxBytes, TxDropped uint64
}

// Counters reads the kernel's counters of an interface that exists.
func (r *Registry) Counters(i flow.Iface) (Counters, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s, ok := r.spaces[i.Netns()]
	if !ok {
		return Counters{}, fmt.Errorf("counters of interface %d: network namespace number %d is gone", i.IfIndex(), i.Netns())
	}
	link, err := s.handle.LinkByIndex(int(s.indexOf(i)))
	if err != nil {
		return Counters{}, fmt.Errorf("counters of interface %d in network namespace %q: %w", s.indexOf(i), s.name, err)
	}
	return countersOf(link), nil
}

func countersOf(link netlink.Link) Counters {
	st := link.Attrs().Statistics
	if st == nil {
		return Counters{}
	}
	return Counters{
		RxPackets: st.RxPackets, RxBytes: st.RxBytes, RxDropped: st.RxDropped,
		TxPackets: st.TxPackets, TxBytes: st.TxBytes, TxDropped: st.TxDropped,
	}
}
