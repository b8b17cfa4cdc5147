package hops

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a network that packets of one flow pass one by one. Each host has a clock of its own.
type world struct {
	rand    *rand.Rand
	clock   map[string]time.Duration
	records map[interval]*flow.Record
	truth   []truth
	links   []Link
}

// interval is one of a point.
type interval struct {
	host, iface string
	direction   flow.Direction
	tunnel      flow.Tunnel
	number      int64
}

// truth is a part of the path as it is.
type truth struct {
	kind           Kind
	from, to       string
	sent, received uint64
}

// packet is one on its way.
type packet struct {
	at     time.Time
	ttl    uint8
	tunnel flow.Tunnel
}

func newWorld(r *rand.Rand) *world {
	return &world{rand: r, clock: map[string]time.Duration{}, records: map[interval]*flow.Record{}}
}

func (w *world) count(p *packet, host, iface string, d flow.Direction) {
	if _, ok := w.clock[host]; !ok {
		w.clock[host] = time.Duration(w.rand.Int64N(int64(4*time.Second))) - 2*time.Second
	}
	at := p.at.Add(w.clock[host])
	key := interval{host, iface, d, p.tunnel, at.Unix() / 10}
	r := w.records[key]
	if r == nil {
		r = &flow.Record{
			Iface: iface, Direction: d, Family: 4, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.0.1"),
			Proto: 17, SrcPort: 4000, DstPort: 53, Tunnel: p.tunnel, TTLMin: p.ttl, TTLMax: p.ttl, First: at, Last: at,
		}
		w.records[key] = r
	}
	r.Packets, r.Bytes = r.Packets+1, r.Bytes+100
	r.TTLMin, r.TTLMax = min(r.TTLMin, p.ttl), max(r.TTLMax, p.ttl)
	r.Last = at
}

// hop is a host that packets come to, or several that they are divided between.
type hop struct {
	names  []string
	bridge bool        // leaves the hop limit as it is
	tunnel flow.Tunnel // what it sends is inside it
	longer bool        // the way over the second one has one more router
	double bool        // a bridge over the interface counts, too
}

// draw is a way with one to four routers between two hosts.
func draw(r *rand.Rand) (way []hop, known bool) {
	way = []hop{{names: []string{"alpha"}, double: r.IntN(3) == 0}}
	n := 1 + r.IntN(4)
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("r%d", (i*7)%10) // names say nothing about the order
		switch kind := r.IntN(6); {
		case kind == 0:
			way = append(way, hop{names: []string{name}, bridge: true})
		case kind == 1:
			way = append(way, hop{names: []string{name, name + "b"}})
		case kind == 2:
			way = append(way, hop{names: []string{name, name + "b"}, longer: true})
			known = true
		case kind == 3 && i+1 < n: // a tunnel, over a router that leaves the inner hop limit as it is
			way = append(way, hop{names: []string{name}, tunnel: flow.TunnelVXLAN}, hop{names: []string{"under" + name}, bridge: true, tunnel: flow.TunnelVXLAN})
		default:
			way = append(way, hop{names: []string{name}, double: r.IntN(4) == 0})
		}
	}
	way = append(way, hop{names: []string{"omega"}})
	for i := 1; i < len(way); i++ {
		known = known || way[i].bridge && (way[i-1].bridge || i > 1 && way[i-2].bridge)
		// Two next to two, or bridges next to each other, are distinguished by links alone.
		known = known || len(way[i].names) > 1 && len(way[i-1].names) > 1
	}
	return way, known || r.IntN(2) == 0
}

// run sends packets, and keeps what is true.
func (w *world) run(way []hop, n int) {
	sums := map[string]*truth{}
	var order []string
	add := func(kind Kind, from, to string, arrived bool) {
		key := string(kind) + from + ">" + to
		if sums[key] == nil {
			sums[key] = &truth{kind: kind, from: from, to: to}
			order = append(order, key)
		}
		sums[key].sent++
		if arrived {
			sums[key].received++
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
		add(OnLink, from, to, arrived)
		if !linked[from+to] {
			linked[from+to] = true
			w.links = append(w.links, Link{End{Node{from, ""}, "to-" + to}, End{Node{to, ""}, "to-" + from}})
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
		p := &packet{at: began.Add(time.Duration(i) * 40 * time.Second / time.Duration(n)), ttl: 64}
		from := way[0].names[0]
		for k := 1; k < len(way); k++ {
			h, last := &way[k], k == len(way)-1
			to := h.names[w.rand.IntN(len(h.names))]
			if !over(p, from, to, way[k-1].double, h.double) {
				break
			}
			if last {
				break
			}
			// Of what a host forwards, it loses one in a thousand.
			forwarded := w.rand.IntN(1000) != 0
			add(InHost, to, to, forwarded)
			if !forwarded {
				break
			}
			if !h.bridge {
				p.ttl--
			}
			if p.tunnel = h.tunnel; h.longer && to == h.names[1] {
				if !over(p, to, to+"x", false, false) {
					break
				}
				add(InHost, to+"x", to+"x", true)
				to += "x"
				p.ttl--
			}
			from, p.at = to, p.at.Add(time.Millisecond)
		}
	}
	for _, key := range order {
		w.truth = append(w.truth, *sums[key])
	}
}

func names(points []Point) string {
	var list []string
	for _, n := range nodes(points) {
		list = append(list, n.String())
	}
	slices.Sort(list)
	return strings.Join(list, "+")
}

// merged sums the true links that a part has between the same hosts.
func (w *world) merged(p *Part) (sent, received uint64, n int) {
	for _, t := range w.truth {
		if t.kind == p.Kind && slices.Contains(strings.Split(names(p.From), "+"), t.from) && slices.Contains(strings.Split(names(p.To), "+"), t.to) {
			sent, received, n = sent+t.sent, received+t.received, n+1
		}
	}
	return sent, received, n
}

// TestPathsOfCounts draws networks, and compares what is found with what packets did. With links, each link is found by itself.
func TestPathsOfCounts(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(r)
		way, known := draw(r)
		w.run(way, 4000)
		var points Points
		for key, record := range w.records {
			if err := points.Add(key.host, record); err != nil {
				t.Fatal(err)
			}
		}
		facts := &Facts{}
		if known {
			facts.Links = w.links
		}
		if problem := w.compareSources(t, way); problem != "" {
			t.Errorf("seed %d, way %+v: %s", seed, way, problem)
		}
		path := points.Find(facts)
		if problem := w.compare(&path, known); problem != "" {
			t.Errorf("seed %d, way %+v, links known: %v: %s", seed, way, known, problem)
			for i := range path.Parts {
				p := &path.Parts[i]
				t.Logf("  %s %s -> %s: %d, %d", p.Kind, names(p.From), names(p.To), p.Sent, p.Received)
			}
			for _, one := range w.truth {
				t.Logf("  true: %+v", one)
			}
		}
	}
}

func (w *world) compare(path *Path, known bool) string {
	if len(path.Unconfirmed) > 0 {
		return "not confirmed: " + strings.Join(path.Unconfirmed, ", ")
	}
	found, reached := 0, []string{"alpha"}
	for i := range path.Parts {
		p := &path.Parts[i]
		sent, received, n := w.merged(p)
		switch {
		case n == 0:
			return fmt.Sprintf("there is no %s %s -> %s", p.Kind, names(p.From), names(p.To))
		case known && n != 1:
			return fmt.Sprintf("%s %s -> %s are %d links", p.Kind, names(p.From), names(p.To), n)
		case p.Sent != sent || p.Received != received || p.Lost != sent-received || p.Gained != 0 || p.Margin != 0:
			return fmt.Sprintf("%s %s -> %s: %d of %d, want %d of %d; margin %d", p.Kind, names(p.From), names(p.To), p.Received, p.Sent, received, sent, p.Margin)
		}
		found += n
		for name := range strings.SplitSeq(names(p.From), "+") {
			if !slices.Contains(reached, name) {
				return fmt.Sprintf("%s %s -> %s stands before packets come to %s", p.Kind, names(p.From), names(p.To), name)
			}
		}
		reached = append(reached, strings.Split(names(p.To), "+")...)
	}
	if found != len(w.truth) {
		return fmt.Sprintf("%d of %d parts were found", found, len(w.truth))
	}
	return ""
}
