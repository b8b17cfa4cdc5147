package ioam

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/lab"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// A burst that a device takes at once leaves as one frame, whatever would be inserted: with options if it is no longer than
// the device takes with them, else without, and counted. So it is by the device's own limit, too.
func TestBurstsStayWhole(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	if err := l.SetOffloads(marktest.AllOffloads, true); err != nil {
		t.Fatal(err)
	}
	b := &burster{inserter: pool.inserts(t, l.Host("alpha"), headroom.None, false, traceOf(t, 1)), t: t, to: l.Host("beta")}
	b.open()
	const usual, less = 65536, 20000
	for _, limit := range []int{usual, less} {
		if err := b.Do(func() error { return netlink.LinkSetGSOMaxSize(b.link(), limit) }); err != nil {
			t.Fatal(err)
		}
		for nodes := 1; nodes <= wire.MaxTraceSpace/4; nodes += 2 {
			b.inserts(limit, traceOf(t, nodes))
		}
		in := traceOf(t, 4)
		in.Tunnel = b.tunnel()
		b.inserts(limit, in)
	}
}

// inserts sends bursts that are just as long as the device takes with the insertion, and longer.
func (b *burster) inserts(limit int, in Insertion) {
	b.t.Helper()
	b.own.Insertions, b.own.ClosedDomain = []Insertion{in}, true // closed: datagrams, too
	if err := b.node.Apply(b.own); err != nil {
		b.t.Fatal(err)
	}
	b.leaves(limit-1, in.Size(), true)
	b.leaves(limit, in.Size(), false)
}

// tunnel leads to where packets get lost without an error.
func (b *burster) tunnel() *Tunnel {
	b.t.Helper()
	end := b.to.Addr6().As16()
	end[15] = 0x99
	marktest.Command(b.t, b.Host, "ip", "neigh", "replace", netip.AddrFrom16(end).String(),
		"lladdr", linkOf(b.t, b.to, b.to.Interfaces[0].Name).HardwareAddr.String(), "dev", b.Interfaces[0].Name)
	return &Tunnel{Source: b.Addr6(), Destination: netip.AddrFrom16(end)}
}

// traceOf inserts a trace with space for so many node ids.
func traceOf(t testing.TB, nodes int) Insertion {
	t.Helper()
	return insertionTo("::/0", space(t, spaceA, wire.HopLimitNodeID, nodes))
}

// burster sends bursts of any length.
type burster struct {
	*inserter
	t      *testing.T
	to     *lab.Host
	socket int
}

func (b *burster) open() {
	b.t.Helper()
	if err := b.Do(func() (err error) {
		b.socket, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = unix.Close(b.socket) })
	if err := unix.SetsockoptInt(b.socket, unix.SOL_UDP, unix.UDP_SEGMENT, segment); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.SetsockoptInt(b.socket, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20); err != nil {
		b.t.Fatal(err)
	}
	b.send(100) // finds the neighbor
}

// segment is the payload of each datagram of a burst, of at most 64: with the longest options, it fits the MTU.
const segment = 1100

// link is the interface where bursts leave.
func (b *burster) link() netlink.Link {
	b.t.Helper()
	l, err := netlink.LinkByName(b.Interfaces[0].Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// sent is how many frames have left.
func (b *burster) sent() (frames uint64) {
	b.t.Helper()
	if err := b.Do(func() error {
		frames = b.link().Attrs().Statistics.TxPackets
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return frames
}

func (b *burster) send(payload int) {
	b.t.Helper()
	to := unix.SockaddrInet6{Addr: b.to.Addr6().As16(), Port: 9}
	if err := unix.Sendto(b.socket, make([]byte, payload), 0, &to); err != nil {
		b.t.Fatalf("a burst of %d bytes: %v", payload, err)
	}
}

// leaves sends a burst that is so long with its link header and the options.
func (b *burster) leaves(length, options int, fits bool) {
	b.t.Helper()
	const headers, most = 14 + 40 + 8, 5 // frames: neighbor discovery, too
	what := fmt.Sprintf("a burst of %d bytes, %d of them of options", length, options)
	before, frames := b.outcome(b.t), b.sent()
	payload := length - options - headers
	b.send(payload)
	after := b.outcome(b.t)
	segments := uint64(payload+segment-1) / segment
	marked, passed := after.Marked-before.Marked, after.Passed["too_long"]-before.Passed["too_long"]
	if fits && (marked != segments || passed > 0) || !fits && (marked > 0 || passed != segments) {
		b.t.Errorf("%s: %d of %d segments have options; %+v, before %+v", what, marked, segments, after, before)
	}
	if n := b.sent() - frames; n < 1 || n > most {
		b.t.Errorf("%s left as %d frames", what, n)
	}
}
