package query

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"

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
	// Sightings calls each for the records that a checked plan means, as long as it returns true. It is an error if the
	// budget ends before.
	Sightings(ctx context.Context, p *Plan, before uint64, each func(*Sighting) bool) error
}

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
	flows  map[Digest]int32 // the last of the sights of each
	sights []sight
	copies map[Digest]bool // flows whose packets may come to several hosts
	why    string          // not all flows are known

	at      map[Digest]int32 // flows of several hosts: the number of the one host, or −1 less the number of a list
	lists   [][]int32        // of hosts that have parts of a flow
	unsure  uint64
	settled bool
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

// NewNearest is for the flows of one answer, or of several that follow each other.
func NewNearest(b Budget) *Nearest {
	b.fill()
	return &Nearest{most: b.Flows, flows: map[Digest]int32{}, copies: map[Digest]bool{}}
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
func (n *Nearest) Of(host string) func(*Sighting) bool {
	number, last := n.host(host), int32(-1)
	n.settled = false
	return func(s *Sighting) bool {
		if last < 0 || n.nodes[last].netns != s.Netns {
			last = n.node(node{number, s.Netns})
		}
		return n.add(last, s)
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

func (n *Nearest) add(at int32, s *Sighting) bool {
	head, known := n.flows[s.Flow]
	if !known {
		head = -1
	}
	to := head
	for to >= 0 && n.sights[to].node != at {
		to = n.sights[to].before
	}
	if to < 0 {
		if len(n.sights) >= n.most {
			n.Fail(fmt.Sprintf("there are more flows than the %d that are compared between hosts; ask for less time, or filter", n.most))
			return false
		}
		to = int32(len(n.sights))
		n.sights = append(n.sights, sight{node: at, before: head})
		n.flows[s.Flow] = to
		if s.Copies {
			n.copies[s.Flow] = true
		}
	}
	side := &n.sights[to].In
	if s.Egress {
		side = &n.sights[to].Out
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
	n.at, n.lists, n.unsure, n.settled = map[Digest]int32{}, nil, 0, true
	if n.why != "" {
		return
	}
	var seen []hops.Sight
	var of []int32
	for flow, last := range n.flows {
		if n.oneHost(last) {
			continue
		}
		seen, of = seen[:0], of[:0]
		for i := last; i >= 0; i = n.sights[i].before {
			seen, of = append(seen, n.sights[i].Sight), append(of, n.nodes[n.sights[i].node].host)
		}
		sources, unsure := hops.Sources(seen, n.copies[flow])
		if unsure {
			n.unsure++
		}
		n.at[flow] = n.list(sources, of)
	}
}

func (n *Nearest) oneHost(last int32) bool {
	host := n.nodes[n.sights[last].node].host
	for i := last; i >= 0; i = n.sights[i].before {
		if n.nodes[n.sights[i].node].host != host {
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
	return -int32(len(n.lists))
}

// elsewhere reports whether the packets of a flow count at another host than this one.
func (n *Nearest) elsewhere(host int32, flow Digest) bool {
	at, several := n.at[flow]
	if !several {
		return false
	}
	if at >= 0 {
		return at != host
	}
	for _, one := range n.lists[-1-at] {
		if one == host {
			return false
		}
	}
	return true
}

// CountNearest has a plan count each flow at one host, unless Everywhere is set or that is not known.
func (p *Plan) CountNearest(n *Nearest) {
	if n.settle(); n.why == "" && len(n.at) > 0 && !p.Everywhere {
		p.nearest = n
	}
}

// Nearest reports what is known of the hosts that flows count at.
func (a *Answer) Nearest(n *Nearest) {
	if n.settle(); n.why != "" {
		a.EachHost = "packets count at each host that saw them: " + n.why
		return
	}
	a.Shared, a.Unsure = uint64(len(n.at)), n.unsure
}

// Away finds flows that count at another host than the one whose records an engine has; nil: each counts there.
func (g *Grouping) Away() func(Digest) bool { return g.away }

// away is Grouping.Away.
func (p *Plan) away() func(Digest) bool {
	if p.nearest == nil {
		return nil
	}
	host := p.nearest.host(p.host)
	return func(flow Digest) bool { return p.nearest.elsewhere(host, flow) }
}
