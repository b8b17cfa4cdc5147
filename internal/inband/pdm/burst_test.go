package pdm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/wire/pdm"
)

// UDP bursts (UDP_SEGMENT): one mark for all of it, or none, but never a datagram
// that does not arrive.
func TestMarkedBursts(t *testing.T) {
	const bursts, segments = 50, 8
	for _, c := range []struct {
		packets  bool
		segment  int
		offloads bool
		checksum bool // left to the device
		options  int  // of the socket: packets have extension headers
		reason   string
	}{
		{segment: 1000, offloads: true, checksum: true},
		{segment: 1000, checksum: true},
		{segment: 1500 - 48 - pdm.HeaderSize, offloads: true, checksum: true},
		{segment: 1500 - 48 - pdm.HeaderSize, checksum: true},
		{packets: true, segment: 1000, offloads: true, checksum: true, reason: "burst"},
		{packets: true, segment: 1000, checksum: true, reason: "burst"},
		{segment: 1000, reason: "burst_checksum"},
		{segment: 1000, offloads: true, checksum: true, options: unix.IPV6_HOPOPTS, reason: "burst_checksum"},
		{segment: 1000, offloads: true, checksum: true, options: unix.IPV6_DSTOPTS, reason: "burst_checksum"},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
			cfg := unlimited()
			cfg.Packets = c.packets
			a, b := mark(t, l.Host("alpha"), cfg, headroom.Interface), mark(t, l.Host("beta"), cfg, headroom.Interface)
			if err := errors.Join(l.SetOffloads(lab.TSO|lab.USO|lab.GSO, c.offloads), l.SetOffloads(lab.TxChecksum, c.checksum)); err != nil {
				t.Fatal(err)
			}
			a.know(t, b.Addr6(), marktest.BurstPort)
			if c.segment > 1200 { // TCP shows that such long packets arrive
				if _, err := traffic.Bulk(t.Context(), a.Host, b.Host, traffic.BulkConfig{To: netip.AddrPortFrom(b.Addr6(), 0), Bytes: 4 << 20}); err != nil {
					t.Fatal(err)
				}
			}
			before := marktest.Faults(t, b.Host)
			if err := marktest.Bursts(t, a.Host, b.Host, bursts, segments, c.segment, c.options); errors.Is(err, unix.EIO) && c.reason == "burst_checksum" {
				return // kernels before 6.11 refuse to send it
			} else if err != nil {
				t.Fatal(err)
			}
			if moved := marktest.NewFaults(before, marktest.Faults(t, b.Host)); len(moved) > 0 {
				t.Errorf("packets that could not be used: %v", moved)
			}
			a.whole = c.offloads && c.options == 0 && !c.packets
			a.settle(t)
			b.settle(t)
			if c.reason != "" {
				if a.unmarked()[c.reason] != bursts*segments {
					t.Errorf("passed over %v, want %d packets: %s", a.unmarked(), bursts*segments, c.reason)
				}
				return
			}
			sent, got := a.reported(flow.Egress), b.reported(flow.Ingress)
			if sent.Sent < bursts || a.unmarked()["burst"]+a.unmarked()["mtu"]+a.unmarked()["burst_checksum"]+a.unmarked()["burst_tunnel"] > 0 {
				t.Errorf("%d marked, passed over %v", sent.Sent, a.unmarked())
			}
			if got.Lost != 0 || got.Duplicates != 0 || got.Received+b.unread()["no_state"] < sent.Sent {
				t.Errorf("of %d marks was read %+v, passed over %v", sent.Sent, got, b.unread())
			}
		})
	}
}

// Linux routers pass marked bursts on: they read the header that carries the mark
// as if it were TCP's. And where a link further on takes less than the interface
// does, a router says so about packets that the stack had made small enough:
// marking gives way.
func TestMarkedTrafficThroughRouters(t *testing.T) {
	for _, narrow := range []int{1500, 1400} {
		for _, packets := range []bool{false, true} {
			t.Run(fmt.Sprintf("MTU %d, packets %t", narrow, packets), func(t *testing.T) {
				testThroughRouters(t, narrow, packets)
			})
		}
	}
}

func testThroughRouters(t *testing.T, narrow int, packets bool) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
	for _, ends := range [][2]string{{"athos", "to-porthos"}, {"porthos", "to-athos"}} {
		if err := l.Host(ends[0]).Do(func() error { return marktest.SetMTU(ends[1], narrow) }); err != nil {
			t.Fatal(err)
		}
	}
	cfg := unlimited()
	cfg.Packets = packets
	a, b := mark(t, l.Host("alpha"), cfg, headroom.Interface), mark(t, l.Host("beta"), cfg, headroom.Interface)
	// Each host serves at a port of its own: what is learned of one service says nothing of another.
	ports := map[*markingHost]uint16{a: 7000, b: 7001}
	bulk := func(from, to *markingHost) traffic.BulkResult {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := traffic.Bulk(ctx, from.Host, to.Host, traffic.BulkConfig{To: netip.AddrPortFrom(to.Addr6(), ports[to]), Bytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("4 MiB took %v, %d segments of %d were sent again", r.Duration, r.Sender.Retransmits, r.Sender.SegmentsOut)
		return r
	}
	results := []traffic.BulkResult{bulk(a, b), bulk(b, a), bulk(a, b), bulk(b, a)}
	for _, h := range []*markingHost{a, b} {
		h.settle(t)
		// Bursts are cut to what fits, so that they need not stay unmarked.
		if n := h.unmarked()["path_mtu"] + h.unmarked()["mss"]; n > 0 && narrow == 1500 || n == 0 && narrow < 1500 && packets {
			t.Errorf("%s passed over %v", h.Name, h.unmarked())
		}
		if p := h.reported(flow.Egress); p.Sent == 0 {
			t.Errorf("%s marked nothing", h.Name)
		}
	}
	// What this machine loses of an unmarked transfer, marked ones may lose, too.
	for _, h := range []*markingHost{a, b} {
		if err := h.marker.SetPolicies(nil); err != nil {
			t.Fatal(err)
		}
	}
	unmarked := bulk(a, b)
	most := resentMost + unmarked.Sender.Retransmits
	if narrow < 1500 { // what is sent before the path's MTU is known is sent again
		most += 100
	}
	for i, r := range results {
		if r.Duration > 5*time.Second+4*unmarked.Duration || r.Sender.Retransmits > most {
			t.Errorf("transfer %d took %v, %d segments were sent again; unmarked %v, %d",
				i, r.Duration, r.Sender.Retransmits, unmarked.Duration, unmarked.Sender.Retransmits)
		}
	}
}
