package query

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/waymark-net/waymark/internal/digest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops"
)

// Hosts that a flow passes have records of the same packets. An answer about several hosts counts a flow where it is nearest
// to its source: a first pass over the records finds that host for each flow, among all records that are meant.

// Sighting is what a record says about where its packets come from.
type Sighting struct {
	Flow    Digest
	Copies  bool // packets may come to several hosts
	Netns   string
	Egress  bool
	TTL     uint8
	Packets uint64 // that were not seen before at the host
	First   int64  // ns since the Unix epoch
}

// Sighter is an engine that knows of each record what it says about that.
type Sighter interface {
	Engine
	// Sightings calls each with those of the records that a checked plan means, as long as it returns true. It is an error if
	// the budget ends before.
	Sightings(ctx context.Context, p *Plan, before uint64, each func([]Sighting) bool) error
}

// SightingsAtOnce is how many of them are best taken at once: the processor waits for their flows at the same time.
const SightingsAtOnce = 1 << 8

// flowSecrets are of this process: whoever chooses flows does not know their digests.
var flowSecrets = func() (s [10]uint64) {
	for i := range s {
		s[i] = rand.Uint64() | 1
	}
	return s
}()

// FlowDigest stands for addresses of 16 bytes (of IPv4, mapped to IPv6), ports and protocol, as Digest does for keys.
func FlowDigest(src, dst []byte, sport, dport uint16, proto uint8) Digest {
	s := &flowSecrets
	ends := uint64(sport)<<24 | uint64(dport)<<8 | uint64(proto)
	a, b := binary.BigEndian.Uint64(src), binary.BigEndian.Uint64(src[8:])
	c, d := binary.BigEndian.Uint64(dst), binary.BigEndian.Uint64(dst[8:])
	return Digest{
		product(product(a^s[0], b^s[1])^ends^s[2], product(c^s[3], d^s[4])),
		product(product(a^s[5], b^s[6])^ends^s[7], product(c^s[8], d^s[9])),
	}
}

// product is one of which each bit depends on all bits of both.
func product(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// flowOf is the digest of a record's flow.
func flowOf(r *flow.Record) Digest {
	src, dst := r.Src.As16(), r.Dst.As16()
	return FlowDigest(src[:], dst[:], r.SrcPort, r.DstPort, r.Proto)
}

// Nearest finds the host that a flow is nearest to its source at.
type Nearest struct {
	most   int
	hosts  []string
	nodes  []node
	flows  digest.Table
	last   []int32        // of each flow: the sight that was added last
	sights [][]sight      // sightsChunk each
	count  int            // of sights
	copies map[int32]bool // flows whose packets may come to several hosts
	why    string         // not all flows are known

	// What is found: of each flow the number of its host, −1 where only one host saw it, or −2 less the number of a list.
	at             []int32
	lists          [][]int32 // of hosts that have parts of a flow
	shared, unsure uint64
	behind         uint64 // flows of which a further host counted clearly more
	settled        bool
}

// node is a network namespace of a host.
type node struct {
	host  int32
	netns string
}

// sight is what a node counted of a flow.
type sight struct {
	hops.Sight
	node, before int32 // before: the one of the same flow that was added before; −1: none
}

// sightsChunk is how many are allocated at once.
const sightsChunk = 1 << 12

func (n *Nearest) sight(i int32) *sight { return &n.sights[i/sightsChunk][i%sightsChunk] }

// onlyHere is the host of flows that one host alone saw.
const onlyHere = -1

// NewNearest is for the flows of one answer, or of several that follow each other.
func NewNearest(b Budget) *Nearest {
	b.fill()
	return &Nearest{most: b.Flows, copies: map[int32]bool{}}
}

func (n *Nearest) host(name string) int32 {
	for i := range n.hosts {
		if n.hosts[i] == name {
			return int32(i)
		}
	}
	n.hosts = append(n.hosts, name)
	return int32(len(n.hosts) - 1)
}

// Of takes what a host has; the function returns false if there is no more space.
func (n *Nearest) Of(host string) func([]Sighting) bool {
	number, last := n.host(host), int32(-1)
	n.settled = false
	var digests [SightingsAtOnce]Digest
	var flows [SightingsAtOnce]int32
	return func(list []Sighting) bool {
		for len(list) > 0 {
			part := list[:min(len(list), SightingsAtOnce)]
			list = list[len(part):]
			for i := range part {
				digests[i] = part[i].Flow
			}
			n.flows.Find(digests[:len(part)], flows[:len(part)])
			for i := range part {
				if last < 0 || n.nodes[last].netns != part[i].Netns {
					last = n.node(node{number, part[i].Netns})
				}
				if !n.add(last, flows[i], &part[i]) {
					return false
				}
			}
		}
		return true
	}
}

func (n *Nearest) node(of node) int32 {
	for i := range n.nodes {
		if n.nodes[i] == of {
			return int32(i)
		}
	}
	n.nodes = append(n.nodes, of)
	return int32(len(n.nodes) - 1)
}

// add takes a sighting of a flow with a number; −1: it had none before those that are taken at once.
func (n *Nearest) add(at, flow int32, s *Sighting) bool {
	if flow < 0 {
		flow = n.flows.One(s.Flow)
	}
	before := int32(-1)
	if flow >= 0 {
		before = n.last[flow]
	}
	to := before
	for to >= 0 && n.sight(to).node != at {
		to = n.sight(to).before
	}
	if to < 0 {
		if n.count >= n.most {
			n.Fail(fmt.Sprintf("there are more flows than the %d that are compared between hosts; ask for less time, or filter", n.most))
			return false
		}
		if flow < 0 {
			flow = n.flows.Add(s.Flow)
			n.last = append(n.last, 0)
		}
		if to = int32(n.count); to%sightsChunk == 0 {
			n.sights = append(n.sights, make([]sight, sightsChunk))
		}
		n.count++
		*n.sight(to) = sight{node: at, before: before}
		if n.last[flow] = to; s.Copies {
			n.copies[flow] = true
		}
	}
	side := &n.sight(to).In
	if s.Egress {
		side = &n.sight(to).Out
	}
	side.Add(s.TTL, s.Packets, s.First)
	return true
}

// Fail has packets count at each host that saw them.
func (n *Nearest) Fail(why string) {
	if n.why == "" {
		n.why = why
	}
}

// settle finds the hosts, once no more is added.
func (n *Nearest) settle() {
	if n.settled {
		return
	}
	n.at, n.lists, n.settled = make([]int32, 0, len(n.last)), nil, true
	n.shared, n.unsure, n.behind = 0, 0, 0
	if n.why != "" {
		return
	}
	var seen []hops.Sight
	var of []int32
	for flow, last := range n.last {
		if n.oneHost(last) {
			n.at = append(n.at, onlyHere)
			continue
		}
		seen, of = seen[:0], of[:0]
		for i := last; i >= 0; i = n.sight(i).before {
			seen, of = append(seen, n.sight(i).Sight), append(of, n.nodes[n.sight(i).node].host)
		}
		sources, unsure := hops.Sources(seen, n.copies[int32(flow)])
		if n.shared++; unsure {
			n.unsure++
		}
		if fewer(seen, sources) {
			n.behind++
		}
		n.at = append(n.at, n.list(sources, of))
	}
}

// fewer reports whether some other node counted more than the sources of a flow, by over a sixteenth: ends of intervals make
// differences of a few packets.
func fewer(seen []hops.Sight, sources []int) bool {
	var first, other uint64
	for i := range seen {
		packets := max(seen[i].In.Packets, seen[i].Out.Packets)
		if slices.Contains(sources, i) {
			first += packets
		} else {
			other = max(other, packets)
		}
	}
	return other > first+first/16
}

func (n *Nearest) oneHost(last int32) bool {
	host := n.nodes[n.sight(last).node].host
	for i := last; i >= 0; i = n.sight(i).before {
		if n.nodes[n.sight(i).node].host != host {
			return false
		}
	}
	return true
}

// list is the number of the host of some sources, or of a list of hosts.
func (n *Nearest) list(sources []int, of []int32) int32 {
	first, several := of[sources[0]], false
	for _, i := range sources {
		several = several || of[i] != first
	}
	if !several {
		return first
	}
	var hosts []int32
	for _, i := range sources {
		hosts = append(hosts, of[i])
	}
	n.lists = append(n.lists, hosts)
	return onlyHere - int32(len(n.lists))
}

// forget leaves what was found alone.
func (n *Nearest) forget() {
	n.settle()
	n.last, n.sights, n.copies = nil, nil, nil
}

// CountNearest has a plan count each flow at one host, unless Everywhere is set or that is not known.
func (p *Plan) CountNearest(n *Nearest) {
	if n.settle(); n.why == "" && n.shared > 0 && !p.Everywhere {
		p.nearest = n
	}
}

// Nearest reports what is known of the hosts that flows count at.
func (a *Answer) Nearest(n *Nearest) {
	if n.settle(); n.why != "" {
		a.EachHost = "packets count at each host that saw them: " + n.why
		return
	}
	a.Shared, a.Unsure, a.Behind = n.shared, n.unsure, n.behind
}

// Away finds flows of a host that count at another one.
type Away struct {
	nearest *Nearest
	host    int32
	flow    [1]Digest
	is      [1]byte
}

// away is of the host whose records an engine has; nil: all of its flows count there.
func (p *Plan) away() *Away {
	if p.nearest == nil {
		return nil
	}
	return &Away{nearest: p.nearest, host: p.nearest.host(p.host)}
}

// Mark writes 1 for each flow that counts at another host, else 0.
func (a *Away) Mark(flows []Digest, marks []byte) {
	var numbers [SightingsAtOnce]int32
	for len(flows) > 0 {
		n := min(len(flows), len(numbers))
		a.nearest.flows.Find(flows[:n], numbers[:n])
		for i, number := range numbers[:n] {
			marks[i] = 0
			if number >= 0 && a.elsewhere(a.nearest.at[number]) {
				marks[i] = 1
			}
		}
		flows, marks = flows[n:], marks[n:]
	}
}

func (a *Away) elsewhere(at int32) bool {
	if at >= onlyHere {
		return at != onlyHere && at != a.host
	}
	return !slices.Contains(a.nearest.lists[onlyHere-1-at], a.host)
}

// record reports whether the flow of a record counts at another host.
func (a *Away) record(r *flow.Record) bool {
	if a == nil || r.Unattributed {
		return false
	}
	a.flow[0] = flowOf(r)
	a.Mark(a.flow[:], a.is[:])
	return a.is[0] != 0
}
