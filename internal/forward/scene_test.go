package forward

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/soak"
)

// twinPorts makes the ports, of which a scene makes what routes.
const twinPorts = `link set lo up
link set in address 02:00:00:00:00:01
link set out0 address 02:00:00:00:00:02
link set out1 address 02:00:00:00:00:03
link set out1 mtu 1400
link set in mtu 1600
link set in up
link set out0 up
link set out1 up
`

// vlanKind makes a VLAN interface, on another interface.
const vlanKind = "below type veth peer name far; link below name probe type vlan id 1"

// scene is how the ports of a router are interfaces that route.
type scene struct {
	name   string
	kind   string // of interfaces that not all kernels have, as words of ip link add
	in     string
	out    [2]string
	setup  string
	routes []string                              // in setup, what replaces what
	tags   []func(packet.Builder) packet.Builder // of frames; the first one is routed
	sysctl string
	// passed are reasons for which packets have to go to the kernel.
	passed []abiForwardResult
}

// tagged begins a frame, of one of the tags of the scene.
func (s scene) tagged(n int) packet.Builder {
	b := packet.Eth()
	if len(s.tags) == 0 {
		return b
	}
	if n >= len(s.tags) {
		n = 0
	}
	return s.tags[n](b)
}

func tag(vid uint16) func(packet.Builder) packet.Builder {
	return func(b packet.Builder) packet.Builder { return b.VLAN(vid) }
}

func noTag(b packet.Builder) packet.Builder { return b }

func twoTags(b packet.Builder) packet.Builder { return b.QinQ(10).VLAN(10) }

var scenes = []scene{
	{
		name: "plain", in: "in", out: [2]string{"out0", "out1"},
		passed: []abiForwardResult{
			abiForwardResultFORWARD_BLACKHOLE, abiForwardResultFORWARD_PROHIBIT, abiForwardResultFORWARD_UNREACHABLE, abiForwardResultFORWARD_NOT_FORWARDED,
			abiForwardResultFORWARD_TTL, abiForwardResultFORWARD_TOO_BIG, abiForwardResultFORWARD_OPTIONS, abiForwardResultFORWARD_FRAGMENT, abiForwardResultFORWARD_VLAN,
			abiForwardResultFORWARD_ADDRESS, abiForwardResultFORWARD_MALFORMED, abiForwardResultFORWARD_SOURCE, abiForwardResultFORWARD_NO_NEIGHBOUR, abiForwardResultFORWARD_CHECKSUM,
			abiForwardResultFORWARD_ICMP_ERROR,
		},
	},
	{
		name: "paths by ports", in: "in", out: [2]string{"out0", "out1"}, sysctl: "net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1",
		passed: []abiForwardResult{abiForwardResultFORWARD_ICMP_ERROR},
	},
	{
		name: "bridges", in: "br-in", out: [2]string{"br-out", "br-out"}, kind: "probe type bridge",
		setup: `link add br-in type bridge
link add br-out type bridge
link set in master br-in
link set out0 master br-out
link set out1 master br-out
link set br-in address 02:00:00:00:00:01
link set br-in up
link set br-out up
bridge fdb add 02:00:00:00:01:01 dev out0 master static
bridge fdb add 02:00:00:00:01:02 dev out1 master static
`,
		passed: []abiForwardResult{abiForwardResultFORWARD_UNLEARNED, abiForwardResultFORWARD_OTHER_MAC, abiForwardResultFORWARD_VLAN},
	},
	{
		name: "VLAN interfaces", in: "in.10", out: [2]string{"out0.20", "out1.30"}, kind: vlanKind,
		setup: `link add link in name in.10 type vlan id 10
link add link in name in.11 type vlan id 11
link add link out0 name out0.20 type vlan id 20
link add link out1 name out1.30 type vlan proto 802.1ad id 30
link set in.10 up
link set in.11 up
link set out0.20 up
link set out1.30 up
`,
		tags: []func(packet.Builder) packet.Builder{
			tag(10), tag(10 | 5<<13), tag(11), tag(12), noTag, twoTags, tag(0),
		},
		passed: []abiForwardResult{abiForwardResultFORWARD_VLAN, abiForwardResultFORWARD_TOO_BIG},
	},
	{
		name: "a bridge of VLANs", in: "brv.10", out: [2]string{"brv.20", "brv.30"}, kind: "probe type bridge vlan_filtering 1",
		setup: `link add brv type bridge vlan_filtering 1 vlan_default_pvid 0
link set in master brv
link set out0 master brv
link set out1 master brv
link set brv address 02:00:00:00:00:01
bridge vlan add vid 10 dev in
bridge vlan add vid 11 dev in pvid untagged
bridge vlan add vid 20 dev out0 pvid untagged
bridge vlan add vid 30 dev out1
bridge vlan add vid 10 dev brv self
bridge vlan add vid 11 dev brv self
bridge vlan add vid 20 dev brv self
bridge vlan add vid 30 dev brv self
link set brv up
link add link brv name brv.10 type vlan id 10
link add link brv name brv.11 type vlan id 11
link add link brv name brv.20 type vlan id 20
link add link brv name brv.30 type vlan id 30
link set brv.10 up
link set brv.11 up
link set brv.20 up
link set brv.30 up
bridge fdb add 02:00:00:00:01:01 dev out0 master static vlan 20
bridge fdb add 02:00:00:00:01:02 dev out1 master static vlan 30
`,
		tags:   []func(packet.Builder) packet.Builder{tag(10), noTag, tag(20), twoTags, tag(10 | 3<<13)},
		passed: []abiForwardResult{abiForwardResultFORWARD_UNLEARNED, abiForwardResultFORWARD_OTHER_MAC, abiForwardResultFORWARD_VLAN},
	},
	{
		name: "VLANs below and above bridges", in: "br-in", out: [2]string{"br0.20", "br1"}, kind: vlanKind,
		setup: `link add link in name in.10 type vlan id 10
link add link out1 name out1.30 type vlan id 30
link add br-in type bridge
link add br0 type bridge
link add br1 type bridge
link set in.10 master br-in
link set out0 master br0
link set out1.30 master br1
link set in.10 up
link set out1.30 up
link set br-in address 02:00:00:00:00:01
link set br-in up
link set br0 up
link set br1 up
link add link br0 name br0.20 type vlan id 20
link set br0.20 up
bridge fdb add 02:00:00:00:01:01 dev out0 master static
bridge fdb add 02:00:00:00:01:02 dev out1.30 master static
`,
		tags:   []func(packet.Builder) packet.Builder{tag(10), noTag, tag(20), twoTags},
		passed: []abiForwardResult{abiForwardResultFORWARD_UNLEARNED, abiForwardResultFORWARD_VLAN},
	},
	{
		name: "a VRF, from which a route leads out", in: "in", out: [2]string{"out0", "out1"}, kind: "probe type vrf table 10",
		setup: `link add red type vrf table 10
link set red up
link set in master red
link set out0 master red
`,
		routes: []string{
			"route add ", "route add vrf red ", "via 10.9.2.2", "via 10.9.2.2 dev out1 onlink", "via 2001:db8:9:2::2", "via 2001:db8:9:2::2 dev out1 onlink",
		},
		passed: []abiForwardResult{abiForwardResultFORWARD_BLACKHOLE, abiForwardResultFORWARD_NOT_FORWARDED},
	},
}

// has reports whether the kernel has what the scene needs.
func (s scene) has(t *testing.T) bool {
	t.Helper()
	if s.kind == "" {
		return true
	}
	h := labtest.NewHost(t)
	for words := range strings.SplitSeq(s.kind, "; ") {
		if _, err := h.Run(t.Context(), append([]string{"ip", "link", "add"}, strings.Fields(words)...)...); err != nil {
			return false
		}
	}
	_, err := exec.LookPath("bridge")
	return err == nil
}

// TestTwin: what leaves a router that forwards at XDP is, byte by byte and port by port, what leaves its twin, where the kernel
// does it all.
func TestTwin(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			if !s.has(t) {
				t.Skipf("this kernel makes no interface of %s", s.kind)
			}
			s.compare(t)
		})
	}
}

func (s scene) compare(t *testing.T) {
	ours, kernels := newTwin(t, s), newTwin(t, s)
	h := *ours.router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	r := newRouter(t, &h, Config{})
	follow(t, r)
	if p := r.portOf(t, 0); p.Off != "" {
		t.Fatalf("%+v", p)
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	var compared int
	const part = 200 // no more than a queue of veth holds
	times := soak.Times(2000, 1_000_000)
	if testing.Short() {
		times = 1000
	}
	for range times / part {
		var frames [][]byte
		for range part {
			frames = append(frames, s.randomFrame(random))
		}
		frames = append(frames, s.last(0), s.last(1))
		for _, tw := range []*twin{ours, kernels} {
			if err := tw.sender.Send(frames...); err != nil {
				t.Fatal(err)
			}
		}
		got, want := ours.left(t), kernels.left(t)
		for n := range got {
			if !maps.Equal(got[n], want[n]) {
				t.Fatalf("seed %d: by %s leave\n%s\nand by that of the kernel's twin\n%s", seed, twinPort[1+n], lines(got[n], want[n]), lines(want[n], got[n]))
			}
			compared += len(want[n])
		}
	}
	p := r.portOf(t, 0)
	if forwarded := int(p.Packets[0]); forwarded < compared/4 || compared < times/12 {
		t.Errorf("%d frames are compared, of which XDP forwarded %d: %s", compared, forwarded, becameOf(&p))
	}
	t.Logf("%d frames are compared; %s", compared, becameOf(&p))
	for _, result := range s.passed {
		if p.Packets[result] == 0 {
			t.Errorf("no packet is %s: %s", Results[result].Name, becameOf(&p))
		}
	}
}

// becameOf is what became of packets.
func becameOf(p *Port) string {
	var text []string
	for result, n := range p.Packets {
		if n > 0 {
			text = append(text, fmt.Sprintf("%s %d", Results[result].Name, n))
		}
	}
	return strings.Join(text, ", ")
}
