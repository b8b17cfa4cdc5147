package agent

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
)

// What an interface counts, and what the probe, with one error or none.
func TestCoverage(t *testing.T) {
	// 100 bursts of 10 segments with 104 bytes of headers, and 50 other packets.
	const (
		bursts, segments, headers = 100, 10, 104
		frames, packets           = bursts + 50, bursts*segments + 50
		frameBytes                = bursts*(headers+segments*1000) + 50*500
		repeated                  = bursts * (segments - 1) * headers
		wireBytes                 = frameBytes + repeated
	)
	right := amounts{frames: frames, packets: packets, frameBytes: frameBytes, wireBytes: wireBytes, link: etherHeader}
	with := func(f func(*amounts)) amounts {
		a := right
		f(&a)
		return a
	}
	short := with(func(a *amounts) { a.wireBytes -= bursts * (segments - 1) * 62 }) // inner headers not repeated
	exactly := func(n uint64) span { return span{n, n} }
	for _, c := range []struct {
		name           string
		ours           amounts
		packets, bytes span
		low, high      float64 // of coverage
	}{
		{"bursts counted whole", right, exactly(frames), exactly(frameBytes), 1, 1},
		{"bursts counted as segments", right, exactly(packets), exactly(wireBytes), 1, 1},
		{"some so, some so", right, exactly(frames + 450), exactly(frameBytes + repeated/2), 1, 1},
		{"read while packets come", right, span{frames - 5, frames + 9}, span{frameBytes - 9000, frameBytes + 9000}, 1, 1},
		{"segments, read while packets come", right, span{packets - 30, packets + 30}, span{wireBytes - 30000, wireBytes + 30000}, 1, 1},
		{"no link header", right, exactly(frames), exactly(frameBytes - frames*etherHeader), 1, 1},
		{"no link header, segments", right, exactly(packets), exactly(wireBytes - packets*etherHeader), 1, 1},
		{"tags that are not counted", with(func(a *amounts) { a.wireBytes += 4 * packets; a.slack = 4 * packets }), exactly(packets), exactly(wireBytes), 1, 1},
		{"no bursts", amounts{frames: 10, packets: 10, frameBytes: 1000, wireBytes: 1000, link: etherHeader}, exactly(10), exactly(1000), 1, 1},

		{"inner headers missing", short, exactly(packets), exactly(wireBytes), 0.94, 0.96},
		{"headers counted twice", with(func(a *amounts) { a.wireBytes += repeated }), exactly(packets), exactly(wireBytes), 1.05, 1.1},
		{"temporary header counted", with(func(a *amounts) { a.wireBytes += 8 * packets }), exactly(packets), exactly(wireBytes), 1.005, 1.01},
		{"bytes of frames wrong", with(func(a *amounts) { a.frameBytes += frames * 4 }), exactly(frames), exactly(frameBytes), 1.0001, 1.001},
		{"a tenth of the packets missing", with(func(a *amounts) { a.packets, a.frames = 900, 100 }), exactly(packets), exactly(wireBytes), 0.8, 0.9},
		{"one packet missing", with(func(a *amounts) { a.packets-- }), exactly(packets), exactly(wireBytes), 0.999, 0.99999},
		// Whatever the segments have, an interface that counts frames does not show it.
		{"inner headers missing, bursts counted whole", short, exactly(frames), exactly(frameBytes), 1, 1},
	} {
		if got := c.ours.coverage(c.packets, c.bytes); got < c.low || got > c.high {
			t.Errorf("%s: coverage %v, want %v to %v", c.name, got, c.low, c.high)
		}
	}
}

// TestCoverageOfBursts: BIG TCP, and TCP in a tunnel, on interfaces that count
// segments: coverage is 1, and would not be if the probe counted the headers of
// segments wrong.
func TestCoverageOfBursts(t *testing.T) {
	const size = 4_000_000
	l := newLab(t)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	if err := l.SetOffloads(lab.TSO|lab.USO, false); err != nil {
		t.Fatal(err)
	}
	inside := [2]netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")}
	for i, h := range []*lab.Host{alpha, beta} {
		other := []*lab.Host{beta, alpha}[i]
		if err := h.Do(func() error {
			below, err := netlink.LinkByName(h.Interfaces[0].Name)
			if err != nil {
				return err
			}
			tunnel := &netlink.Vxlan{
				LinkAttrs: netlink.LinkAttrs{Name: "vxlan"}, VxlanId: 7, Port: 4789, VtepDevIndex: below.Attrs().Index,
				SrcAddr: net.IP(h.Addr4().AsSlice()), Group: net.IP(other.Addr4().AsSlice()), Learning: true,
			}
			addr, err := netlink.ParseAddr(inside[i].String() + "/24")
			if err != nil {
				return err
			}
			addr.Flags = unix.IFA_F_NODAD
			return errors.Join(netlink.LinkSetGSOMaxSize(below, 150_000), netlink.LinkSetGROMaxSize(below, 150_000),
				netlink.LinkAdd(tunnel), netlink.AddrAdd(tunnel, addr), netlink.LinkSetUp(tunnel))
		}); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _ := agentConfig(t, "ebpf", alpha, beta)
	a := start(t, cfg)
	for _, to := range []netip.Addr{beta.Addr6(), inside[1]} {
		if _, err := traffic.Bulk(within(t, time.Minute), alpha, beta, traffic.BulkConfig{
			To: netip.AddrPortFrom(to, 0), Bytes: size,
		}); err != nil {
			t.Fatal(err)
		}
		waitCovered(t, a)
	}

	all, err := a.seenBy()
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for p, s := range all {
		if more := s.flows.Packets - s.flows.Frames; p.direction == flow.Egress && more > 1000 {
			s.flows.WireBytes -= 50 * more // as if the inner headers were not repeated
			all[p] = s
		}
	}
	for _, c := range a.hooks.compare(all) {
		if c.Coverage != 1 {
			wrong++
			t.Logf("with an error: coverage %v of %s %s", c.Coverage, c.Iface, c.Direction)
		}
	}
	if wrong == 0 {
		t.Error("coverage does not show that headers of segments are missing")
	}
}
