// Package past generates the records of an hour in the life of a web server, to explore without
// waiting for one: visitors on eth0; a database, a cache, a backup and name servers on eth1. Input: a time and a
// seed. Output: the records of each scan interval, the same for the same seed. Callers: the
// demonstration, and tests of the console.
//
// What happens: a port scan that a rule drops (minute 15 to 18), a backup (25 to 40), and from
// minute 48 on a database that takes 40 ms longer and a service that does not answer.
package past

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

// Scan is the length of an interval.
const Scan = 10 * time.Second

// Length is that of the whole past.
const Length = time.Hour

// Host is the server's own addresses.
var (
	front  = netip.MustParseAddr("2001:db8:1::80")
	front4 = netip.MustParseAddr("192.0.2.80")
	back   = netip.MustParseAddr("2001:db8:2::80")
)

// service is one that the server asks.
type service struct {
	addr    netip.Addr
	port    uint16
	proto   uint8
	flows   int     // connections that stay open
	rate    float64 // answers a second on each
	size    uint64  // bytes of an answer
	server  time.Duration
	network time.Duration
}

var services = []service{
	{netip.MustParseAddr("2001:db8:2::5432"), 5432, 6, 5, 60, 2600, 3 * time.Millisecond, 350 * time.Microsecond},
	{netip.MustParseAddr("2001:db8:2::6379"), 6379, 6, 3, 160, 420, 180 * time.Microsecond, 300 * time.Microsecond},
	{netip.MustParseAddr("2001:db8:2::53"), 53, 17, 2, 9, 180, 700 * time.Microsecond, 400 * time.Microsecond},
	{netip.MustParseAddr("2001:db8:2::9090"), 9090, 6, 1, 2, 9000, 12 * time.Millisecond, 500 * time.Microsecond},
}

// Past is the hour.
type Past struct {
	random *rand.Rand
	begin  time.Time
}

// New makes one that ends at a time.
func New(end time.Time, seed uint64) *Past {
	return &Past{rand.New(rand.NewPCG(seed, 2)), end.Add(-Length).Truncate(Scan)}
}

// Intervals calls each with every interval in order, and the records in it.
func (p *Past) Intervals(each func(from, to time.Time, records []flow.Record)) {
	for at := time.Duration(0); at < Length; at += Scan {
		from := p.begin.Add(at)
		records := append(p.visitors(from, at), p.asked(from, at)...)
		for _, e := range events {
			if at >= e.from && at < e.to {
				records = append(records, e.records(p, from)...)
			}
		}
		each(from, from.Add(Scan), records)
	}
}

// events are what does not happen all the time.
var events = []struct {
	from, to time.Duration
	records  func(*Past, time.Time) []flow.Record
}{
	{15 * time.Minute, 18 * time.Minute, (*Past).portScan},
	{25 * time.Minute, 40 * time.Minute, (*Past).backup},
	{slowFrom, Length, (*Past).dead},
}

// slowFrom is when the database becomes slow.
const slowFrom = 48 * time.Minute

// visitors come more and fewer, as on a day.
func (p *Past) visitors(from time.Time, at time.Duration) (out []flow.Record) {
	wave := 1 + 0.6*math.Sin(2*math.Pi*float64(at)/float64(40*time.Minute))
	for range int(6 + 8*wave + 2*p.random.Float64()) {
		n := int(math.Min(60, 1+p.random.ExpFloat64()*9))
		src, dst, family := netip.MustParseAddr(fmt.Sprintf("2001:db8:a%d::%x", n%4, n)), front, uint8(6)
		if n%3 == 0 {
			src, dst, family = netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", n)), front4, 4
		}
		request := flow.Record{
			Iface: "eth0", IfIndex: 2, Direction: flow.Ingress, Family: family, Src: src, Dst: dst, Proto: 6,
			SrcPort: uint16(32768 + p.random.IntN(28000)), DstPort: 443, TCPFlags: 0x1b, TTLMin: 57, TTLMax: 57,
			Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
			RTT: flow.RTT{Responder: 40 * time.Microsecond, Initiator: p.about(time.Duration(8+n%30) * time.Millisecond)},
		}
		p.both(&out, request, from, 6+p.random.Uint64N(30), 420, uint64(400+p.random.IntN(22000)), nil)
	}
	return out
}

// asked are the services behind the server.
func (p *Past) asked(from time.Time, at time.Duration) (out []flow.Record) {
	for i := range services {
		s := &services[i]
		server := s.server
		if s.port == 5432 && at >= slowFrom {
			server += 40 * time.Millisecond
		}
		for n := range s.flows {
			request := flow.Record{
				Iface: "eth1", IfIndex: 3, Direction: flow.Egress, Family: 6, Src: back, Dst: s.addr, Proto: s.proto,
				SrcPort: uint16(40000 + 100*i + n), DstPort: s.port, TTLMin: 64, TTLMax: 64,
				Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
			}
			if s.proto == 6 {
				request.TCPFlags = 0x18
			}
			answers := uint64(s.rate * Scan.Seconds() * (0.7 + 0.6*p.random.Float64()) / (1 + server.Seconds()*20))
			p.both(&out, request, from, answers+1, 190, s.size, p.marks(answers/8+2, s.network, server))
		}
	}
	return out
}

// both adds a request and its answer.
func (p *Past) both(out *[]flow.Record, request flow.Record, from time.Time, packets, asks, answers uint64, marks *flow.PDM) {
	request.First, request.Last = from.Add(100*time.Millisecond), from.Add(Scan-200*time.Millisecond)
	request.Counters = counters(packets, packets*asks)
	answer := request
	answer.Src, answer.Dst, answer.SrcPort, answer.DstPort = request.Dst, request.Src, request.DstPort, request.SrcPort
	answer.Direction, answer.Initiator, answer.RTT, answer.PDM = 1-request.Direction, flow.InitiatorDst, flow.RTT{}, marks
	answer.Counters = counters(max(packets, packets*answers/1400), packets*answers)
	*out = append(*out, request, answer)
}

func counters(packets, bytes uint64) flow.Counters {
	return flow.Counters{Packets: packets, Bytes: bytes, PayloadBytes: bytes - min(bytes, 60*packets), WireBytes: bytes + 14*packets}
}

// marks are what PDM says of so many answers; one of a thousand packets is lost.
func (p *Past) marks(n uint64, network, server time.Duration) *flow.PDM {
	var s, net inband.Histogram
	for range n {
		s.Add(uint64(p.about(server)))
		net.Add(uint64(p.about(network)))
	}
	m := &flow.PDM{Sent: n, Received: n, Server: flow.DelaysOf(&s), Network: flow.DelaysOf(&net)}
	if p.random.IntN(40) == 0 {
		m.Lost = 1
	}
	return m
}

// about is a delay around a median, now and then several times as long.
func (p *Past) about(median time.Duration) time.Duration {
	f := 1 + 0.2*p.random.NormFloat64()
	if p.random.IntN(100) == 0 {
		f *= 5
	}
	return time.Duration(max(0.3, f) * float64(median))
}

// portScan is one source that tries ports, and what a rule drops of it.
func (p *Past) portScan(from time.Time) (out []flow.Record) {
	rule := &flow.Drop{Verdict: flow.VerdictDrop, Rule: 7, Text: "drop src 203.0.113.0/24"}
	for range 25 {
		r := flow.Record{
			Iface: "eth0", IfIndex: 2, Family: 4, Src: netip.MustParseAddr("203.0.113.66"), Dst: front4, Proto: 6,
			SrcPort: 51000, DstPort: uint16(1 + p.random.IntN(9000)), TCPFlags: 2, TTLMin: 44, TTLMax: 44,
			First: from, Last: from.Add(time.Second), Counters: counters(2, 88), Drop: rule,
		}
		r.Dropped, r.DroppedBytes = r.Packets, r.Bytes
		out = append(out, r)
	}
	return out
}

// backup is one flow that fills a link by half.
func (p *Past) backup(from time.Time) (out []flow.Record) {
	packets := 11_000 + p.random.Uint64N(3000)
	r := flow.Record{
		Iface: "eth1", IfIndex: 3, Direction: flow.Egress, Family: 6, Src: back, Dst: netip.MustParseAddr("2001:db8:2::873"), Proto: 6,
		SrcPort: 45873, DstPort: 873, TCPFlags: 0x18, TTLMin: 64, TTLMax: 64, Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
	}
	p.both(&out, r, from, packets, 1400, 40, nil)
	return out
}

// dead is a service that answers nobody.
func (p *Past) dead(from time.Time) (out []flow.Record) {
	for range 2 {
		out = append(out, flow.Record{
			Iface: "eth1", IfIndex: 3, Direction: flow.Egress, Family: 6, Src: back, Dst: netip.MustParseAddr("2001:db8:2::8080"), Proto: 6,
			SrcPort: uint16(46000 + p.random.IntN(2000)), DstPort: 8080, TCPFlags: 2, TTLMin: 64, TTLMax: 64,
			First: from, Last: from.Add(3 * time.Second), Counters: counters(3, 240), Initiator: flow.InitiatorSrc, InitiatorBy: flow.EvidenceHandshake,
		})
	}
	return out
}
