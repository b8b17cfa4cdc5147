package forward

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// knownFrames are of some flows, several times each: what is asked about the first of a flow is known for the others.
func knownFrames() (frames [][]byte) {
	for range 3 {
		for _, src := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
			for _, dst := range []string{"198.51.100.1", "198.51.100.200"} {
				for _, size := range []int{10, 700, 1330} {
					frames = append(frames, packet.Eth().IPv4(src, dst).UDP(1, 2).Payload(size).Bytes(), packet.Eth().IPv4(src, dst).TCP(3, 4).Payload(size).Bytes())
				}
			}
		}
		for _, dst := range []string{"2001:db8:b::1", "2001:db8:b:8000::1"} {
			for _, size := range []int{10, 1200} {
				frames = append(frames, packet.Eth().IPv6("2001:db8:a::1", dst).UDP(1, 2).Payload(size).Bytes(), packet.Eth().IPv6("2001:db8:a::2", dst).TCP(3, 4).Payload(size).Bytes())
			}
		}
	}
	for i := range frames {
		frames[i] = toRouter(frames[i])
	}
	return append(frames, scenes[0].last(0), scenes[0].last(1))
}

// nextTick returns in another tick of the kernel's timer.
func nextTick(t *testing.T) {
	t.Helper()
	now := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	before := now()
	await.True(t, "the next tick", func() bool { return now() != before })
}

// TestKnown: what the kernel's tables have said is of no effect after a change of routes, rules and neighbours, nor in the tick
// after one of links: what leaves is what leaves the kernel's twin.
func TestKnown(t *testing.T) {
	defer datapathtest.OnOneProcessor(t)() // each remembers what it has asked
	ours, kernels := newTwin(t, scenes[0]), newTwin(t, scenes[0])
	h := *ours.router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	r := newRouter(t, &h, Config{})
	follow(t, r)
	flags := func() (of uint32) {
		if err := r.do(func() error {
			of = r.ports[r.ifaces[0]].port.Flags
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return of
	}
	has := func(flag abiForwardFlag, want bool) func() bool {
		return func() bool { return flags()&uint32(flag) != 0 == want }
	}
	for _, change := range []struct {
		words    string      // of commands
		followed func() bool // by the agent; nil: at once
	}{
		{"ip route add 192.0.2.99 via 10.9.0.2", nil}, // of no packet
		{"ip route add 198.51.100.1/32 via 10.9.2.2", nil},
		{"ip route change 198.51.100.1/32 via 10.9.1.2", nil},
		{"ip -6 route add 2001:db8:b::1/128 via 2001:db8:9:2::2", nil},
		{"ip neigh replace 10.9.2.2 lladdr 02:00:00:00:01:77 dev out1 nud permanent", nil},
		{"ip -6 neigh replace 2001:db8:9:2::2 lladdr 02:00:00:00:01:77 dev out1 nud permanent", nil},
		{"ip route add 198.51.100.200/32 via 10.9.2.2 mtu lock 600", nil},
		{"ip route change 198.51.100.200/32 via 10.9.2.2", nil},
		{"ip route add blackhole 2001:db8:b:8000::1/128", nil},
		{"ip route add unreachable 198.51.100.200/32 metric 1", nil},
		{"ip route del unreachable 198.51.100.200/32 metric 1", nil},
		{"ip route add table 9 198.51.100.0/24 via 10.9.1.2", nil},
		{"ip rule add tos 0 to 198.51.100.200 ipproto tcp lookup 9", nil},
		{"ip route add 192.0.2.2/32 via 10.9.1.2", nil},
		{"sysctl -qw net.ipv4.conf.in.rp_filter=1", has(abiForwardFlagFORWARD_STRICT, true)},
		{"ip route del 192.0.2.2/32 via 10.9.1.2", nil},
		{"ip route add 192.0.2.3/32 via 10.9.2.2", nil},
		{"ip rule add from 198.51.100.200 to 192.0.2.1 blackhole", has(abiForwardFlagFORWARD_SOURCES, false)},
		{"ip rule del from 198.51.100.200 to 192.0.2.1 blackhole", has(abiForwardFlagFORWARD_SOURCES, true)},
		{"ip link set out0 address 02:00:00:00:00:55;ip neigh replace 10.9.1.2 lladdr 02:00:00:00:01:01 dev out0 nud permanent;ip -6 neigh replace 2001:db8:9:1::2 lladdr 02:00:00:00:01:01 dev out0 nud permanent", nil},
		{"ip link set out1 mtu 1300", nil},
	} {
		for _, tw := range []*twin{ours, kernels} {
			for command := range strings.SplitSeq(change.words, ";") { // a new address of an interface makes the kernel forget its neighbours
				run(t, tw.router, command)
			}
		}
		if change.followed != nil {
			await.True(t, change.words+" is followed", change.followed)
		}
		if words := strings.TrimPrefix(strings.TrimPrefix(change.words, "ip "), "-6 "); strings.HasPrefix(words, "link") || strings.HasPrefix(words, "sysctl") {
			nextTick(t)
		}
		for _, tw := range []*twin{ours, kernels} {
			if err := tw.sender.Send(knownFrames()...); err != nil {
				t.Fatal(err)
			}
		}
		got, want := ours.left(t), kernels.left(t)
		for n := range got {
			if !maps.Equal(got[n], want[n]) {
				t.Errorf("after %s, by %s leave\n%s\nand by that of the kernel's twin\n%s", change.words, twinPort[1+n], lines(got[n], want[n]), lines(want[n], got[n]))
			}
		}
	}
	if p := r.portOf(t, 0); p.Packets[0] < 1000 || slices.Max(p.Packets[1:]) > p.Packets[0] {
		t.Errorf("%v", p.Packets)
	}
}
