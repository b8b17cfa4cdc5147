package service

import (
	"cmp"
	"maps"
	"sync"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

// totals sums what marks reported since the agent started, by interface and class
// of protocols.
type totals struct {
	mu  sync.Mutex
	sum map[totalKey]*flow.PDM
}

type totalKey struct {
	iface    flow.Iface
	protocol string
}

func newTotals() *totals { return &totals{sum: map[totalKey]*flow.PDM{}} }

// observe adds up what a stage drains.
func (t *totals) observe(s *datapath.Stage) *datapath.Stage {
	drain := s.Drain
	s.Drain = func(e datapath.Epoch, emit func(*flow.Delta)) error {
		return drain(e, func(d *flow.Delta) {
			t.add(d)
			emit(d)
		})
	}
	s.Forget = t.forget
	return s
}

func (t *totals) add(d *flow.Delta) {
	if d.PDM == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k := totalKey{d.Iface, flow.ProtoClass(d.Proto)}
	if t.sum[k] == nil {
		t.sum[k] = &flow.PDM{}
	}
	t.sum[k].Add(d.PDM)
}

// forget drops what was reported on an interface.
func (t *totals) forget(i flow.Iface) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.sum, func(k totalKey, _ *flow.PDM) bool { return k.iface == i })
	return nil
}

// pdm are the sums in the form of a record.
func (t *Total) pdm() *flow.PDM {
	return &flow.PDM{
		Sent: t.Sent, Received: t.Received, Lost: t.Lost, Reordered: t.Reordered, Duplicates: t.Duplicates,
		Suspicious: t.Suspicious, Discarded: t.Discarded, Server: t.Server, Network: t.Network,
	}
}

// list is the totals by name, in a fixed order. Interfaces that had the same name
// one after the other are one.
func (t *totals) list(name func(flow.Iface) (name, netns string)) []Total {
	t.mu.Lock()
	defer t.mu.Unlock()
	type place struct{ netns, iface, protocol string }
	sums := map[place]*flow.PDM{}
	for k, s := range t.sum {
		iface, netns := name(k.iface)
		at := place{netns, iface, k.protocol}
		if sums[at] == nil {
			sums[at] = &flow.PDM{}
		}
		sums[at].Add(s)
	}
	out := make([]Total, 0, len(sums))
	for at, s := range sums {
		out = append(out, Total{
			Netns: at.netns, Iface: at.iface, Protocol: at.protocol,
			Sent: s.Sent, Received: s.Received, Lost: s.Lost, Reordered: s.Reordered, Duplicates: s.Duplicates,
			Suspicious: s.Suspicious, Discarded: s.Discarded, Server: s.Server, Network: s.Network,
		})
	}
	order.By(out, func(x, y Total) int {
		return cmp.Or(cmp.Compare(x.Netns, y.Netns), cmp.Compare(x.Iface, y.Iface), cmp.Compare(x.Protocol, y.Protocol))
	})
	return out
}
