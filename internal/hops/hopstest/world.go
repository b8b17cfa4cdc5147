// Package hopstest makes networks that packets of one flow pass one by one. Output: the records of each host, and what is true.
// Callers: tests of what several hosts counted.
package hopstest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Began is when the first packet is sent.
var Began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// World is a network that packets of one flow pass one by one. Each host has a clock of its own.
type World struct {
	rand  *rand.Rand
	clock map[string]time.Duration

	Records map[Interval]*flow.Record
	Truth   []Truth
	Links   []Link
}

// Interval is one of a point.
type Interval struct {
	Host, Iface string
	Direction   flow.Direction
	Tunnel      flow.Tunnel
	Number      int64 // of ten seconds each, since the Unix epoch
}

// Truth is a part of the path as it is.
type Truth struct {
	Kind           string // "link" or "host"
	From, To       string
	Sent, Received uint64
}

// packet is one on its way.
type packet struct {
	at     time.Time
	ttl    uint8
	tunnel flow.Tunnel
}

// New is a network without packets yet.
func New(r *rand.Rand) *World {
	return &World{rand: r, clock: map[string]time.Duration{}, Records: map[Interval]*flow.Record{}}
}

func (w *World) count(p *packet, host, iface string, d flow.Direction) {
	if _, ok := w.clock[host]; !ok {
		w.clock[host] = time.Duration(w.rand.Int64N(int64(4*time.Second))) - 2*time.Second
	}
	at := p.at.Add(w.clock[host])
	key := Interval{host, iface, d, p.tunnel, at.Unix() / 10}
	r := w.Records[key]
	if r == nil {
		r = &flow.Record{
			Iface: iface, Direction: d, Family: 4, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.0.1"),
			Proto: 17, SrcPort: 4000, DstPort: 53, Tunnel: p.tunnel, TTLMin: p.ttl, TTLMax: p.ttl, First: at, Last: at,
		}
		w.Records[key] = r
	}
	r.Packets, r.Bytes = r.Packets+1, r.Bytes+100
	r.TTLMin, r.TTLMax = min(r.TTLMin, p.ttl), max(r.TTLMax, p.ttl)
	r.Last = at
}

// Link joins two interfaces.
type Link struct{ HostA, IfaceA, HostB, IfaceB string }

// Hop is a host that packets come to, or several that they are divided between.
type Hop struct {
	Names  []string
	Bridge bool        // leaves the hop limit as it is
	Tunnel flow.Tunnel // what it sends is inside it
	Longer bool        // the way over the second one has one more router
	Double bool        // a bridge over the interface counts, too: br0
}

// Draw is a way with one to four routers between two hosts.
func Draw(r *rand.Rand) (way []Hop, known bool) {
	way = []Hop{{Names: []string{"alpha"}, Double: r.IntN(3) == 0}}
	n := 1 + r.IntN(4)
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("r%d", (i*7)%10) // names say nothing about the order
		switch kind := r.IntN(6); {
		case kind == 0:
			way = append(way, Hop{Names: []string{name}, Bridge: true})
		case kind == 1:
			way = append(way, Hop{Names: []string{name, name + "b"}})
		case kind == 2:
			way = append(way, Hop{Names: []string{name, name + "b"}, Longer: true})
			known = true
		case kind == 3 && i+1 < n: // a tunnel, over a router that leaves the inner hop limit as it is
			way = append(way, Hop{Names: []string{name}, Tunnel: flow.TunnelVXLAN}, Hop{Names: []string{"under" + name}, Bridge: true, Tunnel: flow.TunnelVXLAN})
		default:
			way = append(way, Hop{Names: []string{name}, Double: r.IntN(4) == 0})
		}
	}
	way = append(way, Hop{Names: []string{"omega"}})
	for i := 1; i < len(way); i++ {
		known = known || way[i].Bridge && (way[i-1].Bridge || i > 1 && way[i-2].Bridge)
		// Two next to two, or bridges next to each other, are distinguished by links alone.
		known = known || len(way[i].Names) > 1 && len(way[i-1].Names) > 1
	}
	return way, known || r.IntN(2) == 0
}

// Run sends packets, and keeps what is true.
func (w *World) Run(way []Hop, n int) {
	sums := map[string]*Truth{}
	var order []string
	add := func(kind, from, to string, arrived bool) {
		key := string(kind) + from + ">" + to
		if sums[key] == nil {
			sums[key] = &Truth{Kind: kind, From: from, To: to}
			order = append(order, key)
		}
		sums[key].Sent++
		if arrived {
			sums[key].Received++
		}
	}
	chance := map[string]float64{}
	lost := func(link string) bool {
		if _, ok := chance[link]; !ok {
			chance[link] = []float64{0, 0.0005, 0.01, 0.2}[w.rand.IntN(4)]
		}
		return w.rand.Float64() < chance[link]
	}
	linked := map[string]bool{}
	// over takes a packet over a link; interfaces are named after the host on the other side.
	over := func(p *packet, from, to string, fromDouble, toDouble bool) bool {
		if fromDouble {
			w.count(p, from, "br0", flow.Egress)
		}
		w.count(p, from, "to-"+to, flow.Egress)
		arrived := !lost(from + to)
		add("link", from, to, arrived)
		if !linked[from+to] {
			linked[from+to] = true
			w.Links = append(w.Links, Link{from, "to-" + to, to, "to-" + from})
		}
		if !arrived {
			return false
		}
		w.count(p, to, "to-"+from, flow.Ingress)
		if toDouble {
			w.count(p, to, "br0", flow.Ingress)
		}
		return true
	}
	for i := range n {
		p := &packet{at: Began.Add(time.Duration(i) * 40 * time.Second / time.Duration(n)), ttl: 64}
		from := way[0].Names[0]
		for k := 1; k < len(way); k++ {
			h, last := &way[k], k == len(way)-1
			to := h.Names[w.rand.IntN(len(h.Names))]
			if !over(p, from, to, way[k-1].Double, h.Double) {
				break
			}
			if last {
				break
			}
			// Of what a host forwards, it loses one in a thousand.
			forwarded := w.rand.IntN(1000) != 0
			add("host", to, to, forwarded)
			if !forwarded {
				break
			}
			if !h.Bridge {
				p.ttl--
			}
			if p.tunnel = h.Tunnel; h.Longer && to == h.Names[1] {
				if !over(p, to, to+"x", false, false) {
					break
				}
				add("host", to+"x", to+"x", true)
				to += "x"
				p.ttl--
			}
			from, p.at = to, p.at.Add(time.Millisecond)
		}
	}
	for _, key := range order {
		w.Truth = append(w.Truth, *sums[key])
	}
}
