package forward

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/forward/l2"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// standIns are interfaces that the kernel routes to, and which the agent takes for VLAN interfaces: not all kernels have those. In
// TestTwin are real ones.
var standIns = scene{
	in: "in.10", out: [2]string{"out0.20", "out1.30"},
	setup: `link add in.10 type veth peer name x0
link set x0 up
link add out0.20 type veth peer name x1
link set x1 up
link add out1.30 type veth peer name x2
link set x2 up
link set in.10 address 02:00:00:00:00:01
link set out0.20 address 02:00:00:00:00:02
link set out1.30 address 02:00:00:00:00:03
link set in.10 up
link set out0.20 up
link set out1.30 up
addr add 10.9.7.1/24 dev out0
neigh add 10.9.7.2 lladdr 02:00:00:00:01:07 dev out0 nud permanent
route add 192.88.0.0/24 via 10.9.7.2
`,
}

// readStandIns is l2.Read, with the stand-ins as VLAN interfaces.
func readStandIns(ports map[uint32]bool) (*l2.State, error) {
	s, err := l2.Read(ports)
	if err != nil {
		return nil, err
	}
	for name, proto := range map[string]uint16{"in.10": unix.ETH_P_8021Q, "out0.20": unix.ETH_P_8021Q, "out1.30": unix.ETH_P_8021AD} {
		below, vid, _ := strings.Cut(name, ".")
		for _, l := range s.Links {
			if l.Name != name {
				continue
			}
			l.Kind, l.Tag.Proto = "vlan", proto
			if _, err := fmt.Sscan(vid, &l.Tag.VID); err != nil {
				return nil, err
			}
			for _, p := range s.Links {
				if p.Name == below {
					l.Parent = p.Index
				}
			}
		}
	}
	return s, nil
}

// TestTags: tags are pushed, popped and rewritten, with their protocol; what has two, or only a priority, or does not fit goes to
// the kernel; flows of both ports have the tags and their bytes.
func TestTags(t *testing.T) {
	tw := newTwin(t, standIns)
	h := *tw.router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	r := newRouter(t, &h, Config{read: readStandIns})
	follow(t, r)
	const sport = 1000
	to := func(b packet.Builder, dst string, size int) []byte {
		if netip.MustParseAddr(dst).Is6() {
			return toRouter(b.IPv6("2001:db8:a::1", dst).TTL(9).UDP(sport, 2000).Payload(size).Bytes())
		}
		return toRouter(b.IPv4("192.0.2.1", dst).TTL(9).UDP(sport, 2000).Payload(size).Bytes())
	}
	// left is a frame as it leaves: the last byte of both addresses of the link, and its tag.
	left := func(b packet.Builder, dst string, size int, from, next byte) string {
		f := to(b, dst, size)
		copy(f, []byte{2, 0, 0, 0, 1, next, 2, 0, 0, 0, 0, from})
		at := len(f) - len(untagged(f)) + 14
		if f[at]>>4 == 6 {
			f[at+7]--
		} else {
			f[at+8]--
			sum4(f[at-14:])
		}
		return hex.EncodeToString(f)
	}
	eth := packet.Eth()
	one := eth.VLAN(10)
	for _, c := range []struct {
		name  string
		frame []byte
		want  string // empty: it goes to the kernel
		out   int    // the port where it leaves
		why   abiForwardResult
		in    [2]uint16 // tags of both flows
	}{
		{name: "rewritten", frame: to(one, "198.51.100.1", 100), want: left(eth.VLAN(20), "198.51.100.1", 100, 2, 1), in: [2]uint16{10, 20}},
		{name: "rewritten, IPv6", frame: to(one, "2001:db8:b::1", 100), want: left(eth.VLAN(20), "2001:db8:b::1", 100, 2, 1), in: [2]uint16{10, 20}},
		{name: "another protocol", frame: to(one, "198.51.100.200", 100), want: left(eth.QinQ(30), "198.51.100.200", 100, 3, 2), out: 1, in: [2]uint16{10, 30}},
		{name: "pushed", frame: to(eth, "198.51.100.1", 100), want: left(eth.VLAN(20), "198.51.100.1", 100, 2, 1), in: [2]uint16{0, 20}},
		{name: "popped", frame: to(one, "192.88.0.1", 100), want: left(eth, "192.88.0.1", 100, 2, 7), in: [2]uint16{10, 0}},
		{name: "a priority goes", frame: to(eth.VLAN(5<<13|10), "198.51.100.1", 100), want: left(eth.VLAN(20), "198.51.100.1", 100, 2, 1), in: [2]uint16{10, 20}},
		{name: "padding goes", frame: append(to(one, "198.51.100.1", 1), make([]byte, 20)...), want: left(eth.VLAN(20), "198.51.100.1", 1, 2, 1), in: [2]uint16{10, 20}},
		{name: "two tags", frame: to(eth.VLAN(10).VLAN(10), "198.51.100.1", 100), why: abiForwardResultFORWARD_VLAN},
		{name: "two tags, QinQ", frame: to(eth.QinQ(10).VLAN(10), "198.51.100.1", 100), why: abiForwardResultFORWARD_VLAN},
		{name: "the other protocol", frame: to(eth.QinQ(10), "198.51.100.1", 100), why: abiForwardResultFORWARD_VLAN},
		{name: "another VLAN", frame: to(eth.VLAN(11), "198.51.100.1", 100), why: abiForwardResultFORWARD_VLAN},
		{name: "only a priority", frame: to(eth.VLAN(3<<13), "198.51.100.1", 100), why: abiForwardResultFORWARD_VLAN},
		{name: "fits the interface, not the port", frame: to(one, "198.51.100.200", 1400), why: abiForwardResultFORWARD_TOO_BIG},
		{name: "just fits", frame: to(one, "198.51.100.200", 1400-28), want: left(eth.QinQ(30), "198.51.100.200", 1400-28, 3, 2), out: 1, in: [2]uint16{10, 30}},
		{name: "for others", frame: append([]byte{2, 0, 0, 0, 9, 9}, to(one, "198.51.100.1", 100)[6:]...), why: abiForwardResultFORWARD_OTHER_MAC},
	} {
		t.Run(c.name, func(t *testing.T) {
			buf := make([]byte, 65536)
			await.True(t, "the frame", func() bool { // one of some goes to the kernel, for the neighbour
				if err := r.dp.Drain(func(*flow.Delta) {}); err != nil {
					t.Fatal(err)
				}
				before := r.portOf(t, 0).Packets
				if err := tw.sender.Send(c.frame); err != nil {
					t.Fatal(err)
				}
				var now Port
				await.True(t, "the frame is counted", func() bool {
					now = r.portOf(t, 0)
					return now.Packets != before
				})
				if c.want == "" {
					return now.Packets[c.why] == before[c.why]+1
				}
				return now.Packets[abiForwardResultFORWARD_DONE] == before[abiForwardResultFORWARD_DONE]+1
			})
			if c.want == "" {
				return
			}
			await.True(t, "it leaves", func() bool {
				f := received(tw.sockets[c.out], buf)
				if f != nil && len(untagged(f)) >= 38 && !isOwn(untagged(f)) {
					if got := hex.EncodeToString(f); got != c.want {
						t.Errorf("it left as\n%s\nwant\n%s", got, c.want)
					}
					return true
				}
				return false
			})
			flows := map[flow.Direction]flow.Delta{}
			if err := r.dp.Drain(func(d *flow.Delta) {
				if d.Forwarded > 0 {
					flows[d.Direction] = *d
				}
			}); err != nil {
				t.Fatal(err)
			}
			ports := [2]flow.Iface{r.ifaces[0], r.ifaces[1+c.out]}
			for n, direction := range []flow.Direction{flow.Ingress, flow.Egress} {
				d := flows[direction]
				header := uint64(14)
				if c.in[n] != 0 {
					header = 18
				}
				padding := uint64(0)
				if direction == flow.Ingress {
					padding = uint64(len(c.frame)) - header - d.Bytes
				}
				if d.Packets != 1 || d.VLAN != c.in[n] || d.InnerVLAN != 0 || d.Iface != ports[n] || d.Other != ports[1-n] || d.WireBytes != d.Bytes+header+padding || slices.Contains([]uint64{d.Bytes}, 0) {
					t.Errorf("flow %v: %+v", direction, d)
				}
			}
		})
	}
}
