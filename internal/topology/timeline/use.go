package timeline

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/topology"
)

// Use is how much an interface is used at the moment. It is no part of a version.
type Use struct {
	ID          string  `json:"id"`
	RxBits      float64 `json:"rx_bits_per_second"`
	TxBits      float64 `json:"tx_bits_per_second"`
	RxDropped   float64 `json:"rx_dropped_per_second"`
	TxDropped   float64 `json:"tx_dropped_per_second"`
	Utilisation float64 `json:"utilisation,omitempty"` // of its speed, the larger direction; absent: its speed is not known
	// Lost are packets that left this end of a pair and did not arrive at the other, of Sent; both are counted at one moment,
	// so a few may be on their way.
	Lost uint64 `json:"lost,omitempty"`
	Sent uint64 `json:"sent,omitempty"`
}

// Meter turns counters into rates.
type Meter struct {
	mu     sync.Mutex
	before map[flow.Port]topology.Counters
	now    map[flow.Port]topology.Counters
	took   time.Duration
	at     time.Time
}

// Note takes in counters of one moment.
func (m *Meter) Note(at time.Time, counters map[flow.Port]topology.Counters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.now = m.now, counters
	m.took, m.at = at.Sub(m.at), at
}

// Use is that of the interfaces of a graph, between the last two moments.
func (m *Meter) Use(g *Graph, speed func(netns, iface string) uint64) []Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []Use{}
	if m.before == nil || m.took <= 0 {
		return list
	}
	growth, place := map[string]topology.Counters{}, map[string]int{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		port := flow.Port{Netns: n.netns(), IfIndex: n.IfIndex}
		now, ok := m.now[port]
		before, was := m.before[port]
		if n.Kind != Iface || !ok || !was || now.RxPackets < before.RxPackets || now.TxPackets < before.TxPackets {
			continue
		}
		d := difference(now, before)
		growth[n.ID], place[n.ID] = d, len(list)
		list = append(list, m.use(n, d, speed))
	}
	for _, e := range g.Edges {
		if e.Kind == Pair {
			lose(list, place, growth, e.From, e.To)
			lose(list, place, growth, e.To, e.From)
		}
	}
	slices.SortFunc(list, func(a, b Use) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func difference(now, before topology.Counters) topology.Counters {
	return topology.Counters{
		RxPackets: now.RxPackets - before.RxPackets, RxBytes: now.RxBytes - before.RxBytes, RxDropped: now.RxDropped - before.RxDropped,
		TxPackets: now.TxPackets - before.TxPackets, TxBytes: now.TxBytes - before.TxBytes, TxDropped: now.TxDropped - before.TxDropped,
	}
}

func (m *Meter) use(n *Node, d topology.Counters, speed func(netns, iface string) uint64) Use {
	per := func(count uint64) float64 { return float64(count) / m.took.Seconds() }
	u := Use{ID: n.ID, RxBits: 8 * per(d.RxBytes), TxBits: 8 * per(d.TxBytes), RxDropped: per(d.RxDropped), TxDropped: per(d.TxDropped)}
	if n.Link == "physical" || n.Link == "veth" {
		if s := speed(n.netns(), n.Name); s > 0 {
			u.Utilisation = max(u.RxBits, u.TxBits) / float64(s)
		}
	}
	return u
}

// lose compares what one end of a pair sent with what the other received.
func lose(list []Use, place map[string]int, growth map[string]topology.Counters, from, to string) {
	at, ok := place[from]
	other, there := growth[to]
	if !ok || !there {
		return
	}
	sent := growth[from].TxPackets
	list[at].Sent = sent
	list[at].Lost = sent - min(sent, other.RxPackets)
}

// netns is the name of the namespace that a node lies in.
func (n *Node) netns() string {
	if n.In == "host" {
		return ""
	}
	return n.In[min(len("netns/"), len(n.In)):]
}
