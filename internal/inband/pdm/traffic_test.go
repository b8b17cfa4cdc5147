package pdm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/wire/pdm"
)

const allOffloads = marktest.AllOffloads

// resentMost is how many segments of marktest.Transfers() may be sent again.
var resentMost = marktest.ResentMost(8 << 20)

// No connection may slow down or die because marking is on: whatever the MTU,
// the offloads, the mode and the direction; nor is a packet miscounted.
func TestMarkedTraffic(t *testing.T) {
	for _, mtu := range []int{1280, 1500, 9000} {
		for _, packets := range []bool{false, true} {
			for _, offloads := range []bool{true, false} {
				t.Run(fmt.Sprintf("MTU %d, packets %t, offloads %t", mtu, packets, offloads), func(t *testing.T) {
					marktest.Attempt(t, func(t *testing.T) string { return testMarkedTraffic(t, mtu, packets, offloads) })
				})
			}
		}
	}
}

// testMarkedTraffic is disturbed where a flow falls back.
func testMarkedTraffic(t *testing.T, mtu int, packets, offloads bool) (disturbed string) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: mtu})
	if err := l.SetOffloads(allOffloads, offloads); err != nil {
		t.Fatal(err)
	}
	reserve := headroom.Interface
	if mtu == 1280 {
		reserve = headroom.None
	}
	cfg := unlimited()
	cfg.Packets = packets
	a, b := mark(t, l.Host("alpha"), cfg, reserve), mark(t, l.Host("beta"), cfg, reserve)
	before := [2]map[string]uint64{marktest.Faults(t, a.Host), marktest.Faults(t, b.Host)}
	if resent := marktest.Transfers(t, a.Host, b.Host, mtu, pdm.HeaderSize); resent > resentMost {
		t.Errorf("%d segments were sent again", resent)
	}
	for i, h := range []*markingHost{a, b} {
		if moved := marktest.NewFaults(before[i], marktest.Faults(t, h.Host)); len(moved) > 0 {
			t.Errorf("%s could not use packets: %v", h.Name, moved)
		}
		h.whole = offloads
		h.settle(t)
	}
	for _, way := range [][2]*markingHost{{a, b}, {b, a}} {
		sent, got := way[0].reported(flow.Egress), way[1].reported(flow.Ingress)
		// UDP that goes one way has no state at its end, and so is not read.
		read := got.Received + way[1].unread()["no_state"]
		// Where a processor that the machine below stopped holds a state, packets of the flow are not read. The next one that
		// is read tells of most of them.
		contended := way[1].unread()["contended"]
		if contended > 10+read/100 {
			t.Errorf("%s did not read %d packets whose state another processor held, and %d others", way[1].Name, contended, read)
		}
		t.Logf("%s to %s: %d marked, %d read, %d contended; passed over %v", way[0].Name, way[1].Name, sent.Sent, read, contended, way[0].unmarked())
		if got.Lost > int64(resentMost)+int64(contended) || got.Duplicates != 0 || got.Suspicious != 0 {
			t.Errorf("%s misread marks: %+v", way[1].Name, got)
		}
		exact := packets || offloads // else segments share the mark of their burst
		if came := read + uint64(got.Lost); sent.Sent == 0 || came+contended < sent.Sent || exact && came > sent.Sent {
			t.Errorf("%s marked %d packets, %s read %d, and lost %d", way[0].Name, sent.Sent, way[1].Name, read, got.Lost)
		}
		// Transfers one way are acknowledged, which tells of the path, but not
		// answered, which would tell of the server.
		if got.Network.Count == 0 {
			t.Errorf("%s learned no round trips: %+v", way[1].Name, got)
		}
		// Datagrams of the interface's own size are fragments once headroom is
		// reserved. Window updates repeat an acknowledgment; what is longer than all
		// that arrived so far is marked one at a time.
		may := []string{"address", "neighbor", "fragment", "resent", "dup_ack", "unproven"}
		if reserve == headroom.None {
			may = append(may, "mtu")
		}
		for reason, n := range way[0].unmarked() {
			if reason == "fallback" {
				disturbed = fmt.Sprintf("%s fell back, and passed over %d packets", way[0].Name, n)
			} else if !slices.Contains(may, reason) {
				t.Errorf("%s passed over %d packets: %s", way[0].Name, n, reason)
			}
		}
		for reason, n := range way[1].unread() {
			if reason != "no_state" && reason != "contended" {
				t.Errorf("%s did not read %d packets: %s", way[1].Name, n, reason)
			}
		}
	}
	return disturbed
}

// Without space, what would be too large goes as it is, and nothing else changes.
func TestMarkedTrafficWithoutSpace(t *testing.T) {
	for _, packets := range []bool{false, true} {
		l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
		cfg := unlimited()
		cfg.Packets = packets
		a, b := mark(t, l.Host("alpha"), cfg, headroom.None), mark(t, l.Host("beta"), cfg, headroom.None)
		if resent := marktest.Transfers(t, a.Host, b.Host, 1500, pdm.HeaderSize); resent > resentMost {
			t.Errorf("packets %t: %d segments were sent again", packets, resent)
		}
		for _, h := range []*markingHost{a, b} {
			h.settle(t)
			if packets && h.unmarked()["mtu"] == 0 { // bursts of TCP are cut
				t.Errorf("%s passed over %v, but none for its size", h.Name, h.unmarked())
			}
			if p := h.reported(flow.Ingress); p.Received == 0 || p.Lost > int64(resentMost) || p.Duplicates != 0 {
				t.Errorf("%s read %+v", h.Name, p)
			}
		}
	}
}

// A peer that knows nothing of PDM talks with a host that marks as with any other.
func TestMarkedTrafficToAPeerWithoutPDM(t *testing.T) {
	for _, mtu := range []int{1280, 1500, 9000} {
		l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: mtu})
		reserve := headroom.Interface
		if mtu == 1280 {
			reserve = headroom.None
		}
		a, b := mark(t, l.Host("alpha"), unlimited(), reserve), l.Host("beta")
		before := marktest.Faults(t, b)
		if resent := marktest.Transfers(t, a.Host, b, mtu, pdm.HeaderSize); resent > resentMost {
			t.Errorf("MTU %d: %d segments were sent again", mtu, resent)
		}
		if moved := marktest.NewFaults(before, marktest.Faults(t, b)); len(moved) > 0 {
			t.Errorf("MTU %d: the peer could not use packets: %v", mtu, moved)
		}
		a.settle(t)
		if sent, got := a.reported(flow.Egress), a.reported(flow.Ingress); sent.Sent == 0 || got.Received != 0 {
			t.Errorf("MTU %d: %d marked, %d read", mtu, sent.Sent, got.Received)
		}
	}
}

// Options that are removed leave packets as the stack would have got them.
func TestStrippedTraffic(t *testing.T) {
	for _, offloads := range []bool{true, false} {
		t.Run(fmt.Sprintf("offloads %t", offloads), func(t *testing.T) { testStrippedTraffic(t, offloads) })
	}
}

func testStrippedTraffic(t *testing.T, offloads bool) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	if err := l.SetOffloads(allOffloads, offloads); err != nil {
		t.Fatal(err)
	}
	cfg := unlimited()
	cfg.Strip = true
	a, b := mark(t, l.Host("alpha"), cfg, headroom.Interface), mark(t, l.Host("beta"), cfg, headroom.Interface)
	before := [2]map[string]uint64{marktest.Faults(t, a.Host), marktest.Faults(t, b.Host)}
	if resent := marktest.Transfers(t, a.Host, b.Host, 1500, pdm.HeaderSize); resent > resentMost {
		t.Errorf("%d segments were sent again", resent)
	}
	for i, h := range []*markingHost{a, b} {
		if moved := marktest.NewFaults(before[i], marktest.Faults(t, h.Host)); len(moved) > 0 {
			t.Errorf("%s could not use packets: %v", h.Name, moved)
		}
		h.whole = offloads
		h.settle(t)
		s, err := h.marker.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if s.Read == 0 || s.Stripped < s.Read || h.unread()["not_stripped"] > 0 {
			t.Errorf("%s read %d and stripped %d, passed over %v", h.Name, s.Read, s.Stripped, h.unread())
		}
	}
}
