package pdm

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/wire"
	"github.com/waymark-net/waymark/test/await"
)

// What a path loses, doubles and swaps is what the numbers tell.
func TestMeasuredLoss(t *testing.T) {
	for attempt := 1; ; attempt++ {
		x := loseOnPath(t)
		t.Logf("%v", x)
		if x.truth.Dropped == 0 || x.truth.Duplicated == 0 || x.truth.Reordered == 0 {
			t.Fatal("the path did nothing of what it was asked")
		}
		if x.exact() {
			return
		}
		if !x.disturbed() || attempt == 5 {
			t.Fatal("the marks report something else")
		}
		t.Log("again: a busy machine disturbed the measurement")
	}
}

// lossDatagrams is how many a loss experiment sends: nothing happens to the last one, so it shows what happened to those before.
const lossDatagrams = 2010

// lossOnPath is what happened on a path, and what marks reported of it.
type lossOnPath struct {
	truth            wire.Counts
	got              flow.PDM
	sent             uint64            // with a mark
	unmarked, unread map[string]uint64 // by reason
}

func (x lossOnPath) String() string {
	return fmt.Sprintf("truth: %+v; reported: %d received, %d lost, %d duplicates, %d reordered; marked: %d; unmarked: %v; unread: %v",
		x.truth, x.got.Received, x.got.Lost, x.got.Duplicates, x.got.Reordered, x.sent, x.unmarked, x.unread)
}

func (x lossOnPath) exact() bool {
	return x.sent == lossDatagrams && x.got.Received == lossDatagrams-x.truth.Dropped+x.truth.Duplicated &&
		x.got.Lost == int64(x.truth.Dropped) && x.got.Duplicates == x.truth.Duplicated && x.got.Reordered == x.truth.Reordered
}

// disturbed: the path lost something that nobody asked it to lose, stood still for so long that marks stop, or the
// other processor held the state of a packet, perhaps of the last one.
func (x lossOnPath) disturbed() bool {
	return x.truth.Lost() > 0 || x.truth.LateMax > time.Second || x.unread["contended"] > 0 || x.unmarked["contended"] > 0
}

// loseOnPath sends datagrams with marks over a path that loses, doubles and swaps some.
func loseOnPath(t *testing.T) (x lossOnPath) {
	t.Helper()
	const port = 7000
	l := datapathtest.NewLab(t, lab.Config{Topology: "path", MTU: 1500})
	if err := l.SetOffloads(allOffloads, false); err != nil {
		t.Fatal(err)
	}
	cfg := wire.Default()
	cfg.AB.Match = wire.Port(unix.IPPROTO_UDP, port)
	cfg.AB.DropEvery, cfg.AB.DuplicateEvery, cfg.AB.ReorderEvery = 50, 70, 90
	path := relay(t, l, cfg)
	a, b := mark(t, l.Host("alpha"), unlimited(), headroom.Interface), mark(t, l.Host("beta"), unlimited(), headroom.Interface)
	listen := func(h *markingHost) *net.UDPConn {
		var c *net.UDPConn
		if err := h.Do(func() (err error) {
			c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.Addr6(), port)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a.know(t, b.Addr6(), port)
	from, to := listen(a), listen(b)
	// Beta sends first: from then on it has a state, and reads.
	if _, err := to.WriteTo([]byte("begin"), from.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if err := from.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	var received atomic.Uint64
	go func() {
		for buf := make([]byte, 64); ; received.Add(1) {
			if _, err := to.Read(buf); err != nil {
				return // the socket is closed
			}
		}
	}()
	for i := range lossDatagrams {
		if _, err := from.WriteTo(fmt.Appendf(nil, "datagram %d", i), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 { // no faster than the path forwards and beta receives
			await.True(t, "the path", func() bool {
				c := path.Stats().AB
				return c.Matched >= uint64(i+1) && received.Load()+c.Dropped+c.Lost()+2 >= uint64(i+1)+c.Duplicated
			})
		}
	}
	await.Success(t, func() error {
		c := path.Stats().AB
		if c.Matched+c.Lost() >= lossDatagrams && received.Load()+c.Lost()+c.Dropped >= lossDatagrams+c.Duplicated {
			return nil
		}
		return fmt.Errorf("%d datagrams received of %+v", received.Load(), c)
	})
	a.drain(t)
	b.drain(t)
	return lossOnPath{
		truth: path.Stats().AB, got: b.reported(flow.Ingress),
		sent: a.reported(flow.Egress).Sent, unmarked: a.unmarked(), unread: b.unread(),
	}
}
