package verdict_test

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/verdict"
)

// world is a client and two servers behind a router, in namespaces of one agent, whose records are
// generated: of each flow at each interface, with the noise of healthy networks.
//
//	alpha/eth0 — router/west   router/east — beta/eth0   router/south — gamma/eth0
type world struct {
	random  *rand.Rand
	history *store.Store
	ledger  *verdict.Ledger
	now     time.Time
	ports   uint16
	open    []connection // long connections
	carry   map[string]uint64
	gate    uint64 // packets dropped by the rule so far
	lost    uint64 // of the agent
	sent    uint64 // segments
	again   uint64
	speeds  map[string]uint64
	stuck   []verdict.Connection
	hops    [2]struct{ n, sum uint64 } // of IOAM: node 2, and its link to node 3
	places  []verdict.Place
}

// fault is what is wrong in an interval; the zero fault is a healthy network.
type fault struct {
	server, link time.Duration // of beta; between router and beta
	loss         float64       // likewise
	fill         uint64        // bytes a second of one flow to beta
	dead         bool          // beta does not answer
	stuck        bool          // and has no new connections
	drops        uint64        // of the gate
	agent        uint64        // records that an exporter lost
	node, behind time.Duration // node 2 and its link take longer
	again        float64       // share of the segments that alpha sends again
	noMarks      bool          // nothing carries PDM
}

const scan = 10 * time.Second

// hop is an interface in the world, and what is on its other end.
type hop struct {
	netns, iface string
	index        uint32
	out          bool
	limit        uint8
}

func newWorld(seed uint64) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 1)), history: store.New(store.Default()), ledger: verdict.NewLedger(),
		now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), ports: 40000, carry: map[string]uint64{}, speeds: map[string]uint64{},
	}
	for _, h := range wayTo("beta") {
		w.place(h)
	}
	for _, h := range wayTo("gamma") {
		w.place(h)
	}
	w.ledger.Add(w.now, w.counters())
	for range 3 {
		w.open = append(w.open, w.connect("beta"), w.connect("gamma"))
	}
	return w
}

// place is known in both directions.
func (w *world) place(h hop) {
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		w.places = append(w.places, verdict.Place{Netns: h.netns, Iface: h.iface, IfIndex: h.index, Direction: d, Since: w.now.Add(-time.Second)})
	}
}

// wayTo are the interfaces on the way from alpha to a server.
func wayTo(server string) []hop {
	port := map[string]hop{"beta": {"router", "east", 3, true, 63}, "gamma": {"router", "south", 4, true, 63}}[server]
	return []hop{{"alpha", "eth0", 1, true, 64}, {"router", "west", 2, false, 64}, port, {server, "eth0", 5, false, 63}}
}

// wayFrom is the way back.
func wayFrom(server string) (way []hop) {
	to := wayTo(server)
	for i := len(to) - 1; i >= 0; i-- {
		h := to[i]
		h.out = !h.out
		h.limit = 64
		if i < 2 {
			h.limit = 63
		}
		way = append(way, h)
	}
	return way
}

var addrs = map[string]netip.Addr{
	"alpha": netip.MustParseAddr("2001:db8:1::1"), "beta": netip.MustParseAddr("2001:db8:2::2"), "gamma": netip.MustParseAddr("2001:db8:3::3"),
}

func wiring() *flow.Wiring {
	at := func(netns string, index uint32) flow.Port { return flow.Port{Netns: netns, IfIndex: index} }
	peers := map[flow.Port]flow.Port{}
	for a, b := range map[flow.Port]flow.Port{at("alpha", 1): at("router", 2), at("router", 3): at("beta", 5), at("router", 4): at("gamma", 5)} {
		peers[a], peers[b] = b, a
	}
	return &flow.Wiring{Peers: peers}
}

// connection is a TCP connection of alpha.
type connection struct {
	server string
	port   uint16
	rate   float64 // packets a second, each way
}

func (w *world) connect(server string) connection {
	w.ports++
	if w.ports < 40000 {
		w.ports = 40000
	}
	return connection{server, w.ports, 2 + 40*w.random.Float64()}
}

// jitter is a delay around a median, now and then several times as long.
func (w *world) jitter(median time.Duration) time.Duration {
	f := 1 + 0.3*w.random.NormFloat64()
	if w.random.IntN(100) == 0 {
		f *= 8
	}
	return time.Duration(max(0.3, f) * float64(median))
}

// run adds intervals.
func (w *world) run(n int, f fault) {
	for range n {
		iv := w.history.Begin(w.now)
		for _, c := range w.open {
			w.talk(iv, c, f, false)
		}
		for range 8 {
			if f.stuck {
				break
			}
			server := []string{"beta", "gamma"}[w.random.IntN(2)]
			w.talk(iv, w.connect(server), f, true)
		}
		if f.fill > 0 {
			w.fill(iv, f.fill)
		}
		w.stuck = nil
		for _, c := range w.open {
			if f.stuck && c.server == "beta" {
				end := verdict.Flow{Proto: "tcp", Src: addrs["alpha"], SrcPort: c.port, Dst: addrs["beta"], DstPort: 443}
				w.stuck = append(w.stuck, verdict.Connection{Flow: end, Sent: 100, Retransmitted: 5, Timeouts: 5, Open: 3})
			}
		}
		w.gate, w.lost = w.gate+f.drops, w.lost+f.agent
		segments := 3000 + w.random.Uint64N(2000)
		w.sent += segments
		w.again += uint64((f.again + 0.002*w.random.Float64()) * float64(segments))
		for i, more := range []time.Duration{f.node, f.behind} {
			w.hops[i].n += 100
			w.hops[i].sum += 100 * uint64(w.jitter(50*time.Microsecond)+more)
		}
		w.now = w.now.Add(scan)
		w.ledger.Add(w.now, w.counters())
		iv.End(w.now)
	}
}

func (w *world) counters() []verdict.Counter {
	hop := verdict.Where{Path: "0c1b4b1e2f60", Nodes: "1-2-3", Hop: 2, Src: addrs["alpha"], Dst: addrs["beta"]}
	link := hop
	link.Link = true
	return []verdict.Counter{
		{Kind: verdict.PathDelay, ID: "node", N: w.hops[0].n, Of: int64(w.hops[0].sum), Where: hop},
		{Kind: verdict.PathDelay, ID: "link", N: w.hops[1].n, Of: int64(w.hops[1].sum), Where: link},
		{Kind: verdict.GateDrops, ID: "7", N: w.gate, Where: verdict.Where{Rule: 7, RuleText: "drop tcp dst port 23"}},
		{Kind: verdict.AgentLosses, ID: "exporter ipfix queue_full", N: w.lost, Where: verdict.Where{Part: "exporter ipfix", Reason: "queue_full"}},
		{Kind: verdict.Retransmissions, ID: "alpha", N: w.again, Of: int64(w.sent), Older: true, Where: verdict.Where{Netns: "alpha"}},
	}
}

// talk adds the records of a connection in an interval: requests and answers.
func (w *world) talk(iv *store.Interval, c connection, f fault, begins bool) {
	fault := f
	if c.server != "beta" {
		fault.server, fault.link, fault.loss, fault.dead = 0, 0, 0, false
	}
	start := w.now.Add(time.Duration(w.random.Int64N(int64(scan / 4))))
	end := w.now.Add(scan - time.Duration(w.random.Int64N(int64(scan/4))))
	if !begins {
		start = w.now.Add(time.Duration(w.random.Int64N(int64(time.Second))))
		end = w.now.Add(scan - time.Duration(w.random.Int64N(int64(50*time.Millisecond))))
	}
	request := flow.Record{
		Family: 6, Proto: 6, Src: addrs["alpha"], Dst: addrs[c.server], SrcPort: c.port, DstPort: 443,
		First: start, Last: end, TCPFlags: 0x18, Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
	}
	packets := uint64(c.rate*end.Sub(start).Seconds()) + 4
	if begins {
		request.TCPFlags = 0x1b
	}
	if fault.dead && begins {
		packets, request.TCPFlags = 4, 0x02
	}
	request.Packets, request.Bytes = packets, packets*200
	network := w.jitter(400*time.Microsecond) + 2*fault.link
	if begins && !fault.dead {
		request.RTT = flow.RTT{Responder: network, Initiator: 30 * time.Microsecond}
	}
	w.pass(iv, request, wayTo(c.server), fault)
	if fault.dead {
		return
	}
	answer := request
	answer.Src, answer.Dst, answer.SrcPort, answer.DstPort = request.Dst, request.Src, request.DstPort, request.SrcPort
	answer.Initiator, answer.RTT = flow.InitiatorDst, flow.RTT{}
	answer.First = start.Add(network / 2)
	answer.Bytes = packets * 900
	if !f.noMarks {
		answer.PDM = w.marks(packets/2, network, w.server(fault))
	}
	w.pass(iv, answer, wayFrom(c.server), fault)
}

// server is the median time at a server.
func (w *world) server(f fault) time.Duration { return 3*time.Millisecond + f.server }

func (w *world) marks(n uint64, network, server time.Duration) *flow.PDM {
	var s, net inband.Histogram
	for range n {
		s.Add(uint64(w.jitter(server)))
		net.Add(uint64(w.jitter(network)))
	}
	return &flow.PDM{Received: n, Server: flow.DelaysOf(&s), Network: flow.DelaysOf(&net)}
}

// pass adds a record at each interface of a way. Where the interval ends, a few packets are still
// on the way: they count in the next one.
func (w *world) pass(iv *store.Interval, r flow.Record, way []hop, f fault) {
	marks := r.PDM
	lost := uint64(0)
	for i, h := range way {
		at := r
		at.Netns, at.Iface, at.IfIndex, at.TTLMin, at.TTLMax = h.netns, h.iface, h.index, h.limit, h.limit
		at.Direction, at.PDM = flow.Ingress, nil
		if h.out {
			at.Direction = flow.Egress
		}
		faulty := i > 0 && (h.netns == "beta" || way[i-1].netns == "beta")
		if faulty && i%2 == 1 { // over the link
			lost += w.losses(r.Packets, f.loss)
			r.First = r.First.Add(f.link)
			if f.link > 0 {
				at.First, at.Last = r.First, at.Last.Add(f.link)
			}
		}
		if lost >= r.Packets {
			return
		}
		at.Packets -= lost
		if marks != nil && i == len(way)-1 {
			at.PDM = marks
			at.PDM.Lost = int64(lost)
		}
		if i > 0 && i%2 == 1 && w.now.Add(scan).Sub(r.Last) < 50*time.Millisecond && r.Packets > 20 {
			key := r.Src.String() + r.Dst.String() + string(rune(r.SrcPort)) + string(rune(r.DstPort)) + h.netns
			behind := w.random.Uint64N(2)
			at.Packets += w.carry[key]
			at.Packets -= behind
			w.carry[key] = behind
		}
		at.WireBytes = at.Bytes + 14*at.Packets
		iv.Add(&at)
	}
}

// losses are those of so many packets: one in 10,000 where nothing is wrong.
func (w *world) losses(packets uint64, share float64) (n uint64) {
	for at := w.random.ExpFloat64(); at < float64(packets)*(share+0.0001); at += w.random.ExpFloat64() {
		n++
	}
	return min(n, packets)
}

// fill adds a flow that fills the link to beta.
func (w *world) fill(iv *store.Interval, perSecond uint64) {
	bytes := perSecond * uint64(scan.Seconds())
	r := flow.Record{
		Family: 6, Proto: 17, Src: addrs["alpha"], Dst: addrs["beta"], SrcPort: 5000, DstPort: 9000, First: w.now, Last: w.now.Add(scan),
		Counters: flow.Counters{Packets: bytes / 1400, Bytes: bytes}, Initiator: flow.InitiatorSrc,
	}
	w.pass(iv, r, wayTo("beta"), fault{})
}

// examine asks for the last ten minutes.
func (w *world) examine(t testing.TB, change ...func(*config.Why)) verdict.Answer {
	t.Helper()
	return w.ask(t, verdict.Request{}, change...)
}

func (w *world) ask(t testing.TB, r verdict.Request, change ...func(*config.Why)) verdict.Answer {
	t.Helper()
	cfg := config.Default().Why
	for _, f := range change {
		f(&cfg)
	}
	a, err := w.examiner(cfg).Examine(context.Background(), r, w.now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) examiner(cfg config.Why) *verdict.Examiner { return verdict.New(w.deps(cfg)) }

func (w *world) deps(cfg config.Why) verdict.Deps {
	return verdict.Deps{
		Host: "here", Sampling: 1, History: w.history, Ledger: w.ledger, Wiring: wiring,
		Thresholds: func() verdict.Thresholds { return verdict.ThresholdsOf(&cfg) },
		Places:     func() []verdict.Place { return w.places },
		Speed:      func(netns, iface string) uint64 { return w.speeds[netns+"/"+iface] },
		Connections: func(string) ([]verdict.Connection, error) {
			return append(w.stuck, verdict.Connection{Flow: verdict.Flow{Proto: "tcp", Src: addrs["alpha"], SrcPort: 40001, Dst: addrs["gamma"], DstPort: 443}, Sent: 100, Retransmitted: 60}), nil
		},
		Conditions: func() []verdict.Condition { return nil },
	}
}
