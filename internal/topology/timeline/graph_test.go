package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/topology"
)

// known is a host with a bridge on eth0, a container behind it, a tunnel, and neighbours.
func known() Sources {
	node := func(netns, name, kind string, index uint32, mac string) topology.Node {
		return topology.Node{Link: topology.Link{Netns: netns, Name: name, Kind: kind, IfIndex: index, MTU: 1500, Up: true, MAC: mac}}
	}
	ref := func(netns, name string, index uint32) *topology.Ref {
		return &topology.Ref{Netns: netns, Name: name, IfIndex: index, Known: true}
	}
	eth0, br0, v1, c0 := node("", "eth0", "physical", 2, "02:00:00:00:00:02"), node("", "br0", "bridge", 3, "02:00:00:00:00:02"),
		node("", "v1", "veth", 4, "02:00:00:00:00:04"), node("blue", "eth0", "veth", 2, "02:00:00:00:00:05")
	eth0.Master, v1.Master = ref("", "br0", 3), ref("", "br0", 3)
	v1.Peer, c0.Peer = ref("blue", "eth0", 2), ref("", "v1", 4)
	br0.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	vx := node("", "vx0", "vxlan", 5, "02:00:00:00:00:06")
	vx.Parent, vx.Remote = ref("", "br0", 3), netip.MustParseAddr("198.51.100.9")
	hidden := node("", "v9", "veth", 9, "02:00:00:00:00:09")
	hidden.Peer = &topology.Ref{IfIndex: 7}
	return Sources{
		Host: "alpha", Neighbours: 2,
		Links: topology.Graph{
			Netns: []string{"", "blue"}, Nodes: []topology.Node{eth0, br0, v1, c0, vx, hidden},
			Neighbours: []topology.Neighbour{
				{IfIndex: 3, MAC: "02:00:00:00:01:01", Addr: netip.MustParseAddr("192.0.2.7"), Source: topology.ARP},
				{IfIndex: 3, MAC: "02:00:00:00:01:01", Addr: netip.MustParseAddr("fe80::7"), Source: topology.NDP},
				{IfIndex: 2, MAC: "02:00:00:00:01:01", Source: topology.FDB},
				{IfIndex: 3, MAC: "02:00:00:00:00:05", Addr: netip.MustParseAddr("192.0.2.5"), Source: topology.ARP}, // the container
				{IfIndex: 5, MAC: "02:00:00:00:02:02", Addr: netip.MustParseAddr("198.51.100.2"), Source: topology.Tunnel},
			},
		},
		Announced: []Announcement{{IfIndex: 2, Chassis: "02:00:00:00:03:03", MAC: "02:00:00:00:03:03", Name: "switch1", Port: "ge-0/0/1"}},
		Traces:    [][]string{{"1", "2", "3"}, {"1", "4", "3"}},
	}
}

const knownTree = `host alpha
└─ br0 bridge 02:00:00:00:00:02 192.0.2.1/24
   ├─ eth0 physical 02:00:00:00:00:02
   │  ├─ neighbour 02:00:00:00:01:01 192.0.2.7 fe80::7 (arp, fdb, ndp)
   │  └─ neighbour switch1 02:00:00:00:03:03 port ge-0/0/1 (lldp)
   ├─ v1 veth 02:00:00:00:00:04 ⇄ blue/eth0
   └─ vx0 vxlan 02:00:00:00:00:06
      └─ neighbour 198.51.100.2 02:00:00:00:02:02 198.51.100.2 (tunnel)
`

// TestBuild: neighbours are on the port that the bridge has learned, the container is no neighbour, and each node is in the
// tier behind those nearer to the network.
func TestBuild(t *testing.T) {
	g := Build(known())
	var b bytes.Buffer
	if err := WriteTree(&b, &g); err != nil {
		t.Fatal(err)
	}
	got := strings.Replace(b.String(), "├─ v9 veth 02:00:00:00:00:09\n", "", 1)
	for _, want := range []string{"netns blue\n└─ eth0 veth 02:00:00:00:00:05 ⇄ v1\n", "ioam path 1 → 2\n", "ioam path 4 → 3\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the tree lacks %q:\n%s", want, got)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(knownTree), "\n")[2:] {
		if text := strings.TrimLeft(line, " │├└─"); !strings.Contains(got, text+"\n") {
			t.Errorf("the tree lacks %q:\n%s", text, got)
		}
	}
	tiers := map[string]int{}
	for _, n := range g.Nodes {
		tiers[n.ID] = n.Tier
	}
	want := map[string]int{
		"neighbour//02:00:00:00:01:01": 0, "interface//eth0": 1, "interface//br0": 2, "interface//v1": 3, "interface/blue/eth0": 4, "interface//vx0": 3,
		"neighbour//02:00:00:00:03:03": 0, "neighbour//198.51.100.2": 0, "neighbour//198.51.100.9": 0, "interface//v9": 0, "host": -1, "netns/blue": -1, "ioam/1": 0, "ioam/2": 1, "ioam/4": 1, "ioam/3": 2,
	}
	if diff := cmp.Diff(want, tiers); diff != "" {
		t.Errorf("tiers (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := WriteDot(&b, &g); err != nil || !strings.Contains(b.String(), `"interface//v1" -- "interface/blue/eth0" [label="pair"];`) {
		t.Errorf("dot: %v %s", err, &b)
	}
}

// TestSamePicture: the same sources give the same graph to the byte, in whatever order they are; and a place does not depend on
// what is counted or hidden.
func TestSamePicture(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	want, err := json.Marshal(Build(known()))
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		s := known()
		r.Shuffle(len(s.Links.Nodes), func(i, j int) { s.Links.Nodes[i], s.Links.Nodes[j] = s.Links.Nodes[j], s.Links.Nodes[i] })
		r.Shuffle(len(s.Links.Neighbours), func(i, j int) {
			s.Links.Neighbours[i], s.Links.Neighbours[j] = s.Links.Neighbours[j], s.Links.Neighbours[i]
		})
		r.Shuffle(len(s.Traces), func(i, j int) { s.Traces[i], s.Traces[j] = s.Traces[j], s.Traces[i] })
		slices.Reverse(s.Links.Netns)
		got, err := json.Marshal(Build(s))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v\n%s\nwant %s", err, got, want)
		}
	}
}

// TestManyNeighbours: those beyond the bound are counted, and the same are shown each time.
func TestManyNeighbours(t *testing.T) {
	s := known()
	s.Links.Neighbours = nil
	for i := range 100 {
		s.Links.Neighbours = append(s.Links.Neighbours, topology.Neighbour{IfIndex: 3, MAC: fmt.Sprintf("02:00:00:00:09:%02x", i), Addr: netip.MustParseAddr("192.0.2.9"), Source: topology.ARP})
	}
	if g := Build(s); g.Hidden != 98 {
		t.Errorf("%d are hidden, want 98", g.Hidden)
	}
}

// TestRing: interfaces that hang together in a ring, as two bridges with two pairs, have places, too.
func TestRing(t *testing.T) {
	var s Sources
	s.Links.Netns = []string{""}
	for i, name := range []string{"a0", "a1", "b0", "b1"} {
		peer := []uint32{3, 4, 1, 2}[i]
		s.Links.Nodes = append(s.Links.Nodes, topology.Node{
			Link:   topology.Link{Name: name, Kind: "veth", IfIndex: uint32(i + 1)},
			Peer:   &topology.Ref{IfIndex: peer, Known: true},
			Master: &topology.Ref{IfIndex: 10 + uint32(i/2), Known: true},
		})
	}
	for i := range 2 {
		s.Links.Nodes = append(s.Links.Nodes, topology.Node{Link: topology.Link{Name: fmt.Sprintf("br%d", i), Kind: "bridge", IfIndex: uint32(10 + i)}})
	}
	g := Build(s)
	places := map[[2]int]bool{}
	for _, n := range g.Nodes {
		if places[[2]int{n.Tier, n.Order}] {
			t.Errorf("%s is at the place of another", n.ID)
		}
		places[[2]int{n.Tier, n.Order}] = true
	}
	if err := WriteTree(&bytes.Buffer{}, &g); err != nil {
		t.Error(err)
	}
}
