package forward

import (
	"slices"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// TestFollowsBridges: what a bridge learns, forgets and is configured takes effect, and so do ports that join and leave.
func TestFollowsBridges(t *testing.T) {
	s := scenes[slices.IndexFunc(scenes, func(s scene) bool { return s.name == "bridges" })]
	if !s.has(t) {
		t.Skip("this kernel makes no bridges")
	}
	tw := newTwin(t, s)
	h := *tw.router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	r := newRouter(t, &h, Config{})
	follow(t, r)
	frame := toRouter(packet.Eth().IPv4("192.0.2.1", "198.51.100.1").UDP(1000, 2000).Payload(100).Bytes())
	becomes := func(when string, want abiForwardResult) {
		t.Helper()
		t.Log(when)
		await.True(t, when+": "+Results[want].Name, func() bool {
			before := r.portOf(t, 0).Packets
			if err := tw.sender.Send(frame); err != nil {
				t.Fatal(err)
			}
			var now Port
			await.True(t, when+": the frame is counted", func() bool {
				now = r.portOf(t, 0)
				return now.Packets != before
			})
			return now.Packets[want] == before[want]+1
		})
	}
	buf := make([]byte, 65536)
	// After a change, some frames may still leave as before.
	leaves := func(when string, by int) {
		t.Helper()
		becomes(when, abiForwardResultFORWARD_DONE)
		for _, fd := range tw.sockets {
			for f := received(fd, buf); f != nil; f = received(fd, buf) {
				_ = f // it left before
			}
		}
		await.True(t, when+": the frame leaves by "+twinPort[1+by], func() bool {
			becomes(when, abiForwardResultFORWARD_DONE)
			f := received(tw.sockets[by], buf)
			return f != nil && len(f) == len(frame)
		})
	}
	leaves("at first", 0)
	ip(t, tw.router, "bridge fdb del 02:00:00:00:01:01 dev out0 master")
	becomes("the next hop is forgotten", abiForwardResultFORWARD_NO_STATION)
	ip(t, tw.router, "bridge fdb add 02:00:00:00:01:01 dev out1 master static")
	leaves("the next hop is elsewhere", 1)
	ip(t, tw.router, "bridge fdb replace 02:00:00:00:01:01 dev out0 master static")
	leaves("it is back", 0)

	ip(t, tw.router, "bridge fdb add 02:00:00:00:01:00 dev out0 master static") // of another bridge
	leaves("a sender that is known elsewhere, too", 0)
	ip(t, tw.router, "bridge link set dev in learning off")
	copy(frame[6:], []byte{2, 0, 0, 0, 1, 9})
	leaves("the port does not learn", 0)
	ip(t, tw.router, "bridge link set dev in learning on")
	becomes("it learns", abiForwardResultFORWARD_UNLEARNED)
	leaves("it has learned", 0)

	run(t, tw.router, "nft add table bridge wm")
	run(t, tw.router, "nft add chain bridge wm c { type filter hook input priority 0 ; policy drop ; }")
	becomes("rules for bridges", abiForwardResultFORWARD_UNRESOLVED)
	run(t, tw.router, "nft delete table bridge wm")
	leaves("no rules", 0)

	ip(t, tw.router, "link set in nomaster")
	ip(t, tw.router, "addr del 10.9.0.1/24 dev br-in")
	ip(t, tw.router, "addr add 10.9.0.1/24 dev in")
	ip(t, tw.router, "route add 192.0.2.0/24 via 10.9.0.2")
	leaves("the port has left the bridge", 0)
	ip(t, tw.router, "link set br-out down")
	becomes("the bridge is down", abiForwardResultFORWARD_NOT_FORWARDED) // there is no route
}
