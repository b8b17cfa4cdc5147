package ioam

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// hopOf is the newest hop of the only trace of a Hop-by-Hop header.
func hopOf(t testing.TB, header []byte) wire.Hop {
	t.Helper()
	found, err := wire.FindInHeader(0, header)
	if err != nil || len(found) != 1 {
		t.Fatalf("%d options, %v: % x", len(found), err, header)
	}
	body, err := found[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	hops, err := body.(*wire.Trace).Hops()
	if err != nil || len(hops) == 0 {
		t.Fatalf("%d hops, %v: % x", len(hops), err, header)
	}
	return hops[len(hops)-1]
}

// A trace has the bytes that wait where its packet leaves, as the kernel counts them: of a class that sends next to
// nothing, which does not delay the packet itself.
func TestQueueDepth(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
	athos, exit := l.Host("athos"), "to-porthos"
	r := waymarkNode(t, athos, Config{Time: wire.POSIX, Transit: TransitTC}, "to-alpha", exit)
	c := ioamtest.NewCourier(t, l.Host("alpha"), l.Host("beta"))
	tr := space(t, spaceA, wire.QueueDepth|wire.BufferOccupancy|wire.InterfaceIDs, 1)
	header, err := wire.AppendHeader(nil, 0, tr)
	if err != nil {
		t.Fatal(err)
	}
	said := func() wire.Hop { return hopOf(t, c.Carry(t, header)) }
	if err := r.measureQueues(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "a trace to say that nothing waits", func() bool { return said().QueueDepth == 0 })

	run := func(argv ...string) string {
		out, err := athos.Run(t.Context(), argv...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
		return out
	}
	run("tc", "qdisc", "add", "dev", exit, "root", "handle", "1:", "htb", "default", "1")
	run("tc", "class", "add", "dev", exit, "parent", "1:", "classid", "1:1", "htb", "rate", "1gbit")
	run("tc", "class", "add", "dev", exit, "parent", "1:", "classid", "1:2", "htb", "rate", "8bit", "burst", "1500", "cburst", "1500")
	if err := athos.Do(func() error {
		flood, err := net.ListenUDP("udp6", nil) // not connected: nobody listens at beta
		if err != nil {
			return err
		}
		defer flood.Close()
		raw, err := flood.SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, 1<<16|2) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		for range 20 {
			if _, err := flood.WriteToUDPAddrPort(make([]byte, 1000), netip.AddrPortFrom(l.Host("beta").Addr6(), 9)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Backlog uint32 }
	if err := json.Unmarshal([]byte(run("tc", "-s", "-j", "qdisc", "show", "dev", exit)), &listed); err != nil || len(listed) != 1 || listed[0].Backlog < 15000 {
		t.Fatalf("%+v, %v", listed, err)
	}
	await.True(t, "a trace to say what waits", func() bool { return said().QueueDepth == listed[0].Backlog })
	if hop := said(); hop.BufferOccupancy != wire.Unavailable32 || hop.Egress != toID {
		t.Errorf("%+v", hop)
	}

	// Nobody reads the queue any more.
	if err := r.core.Do(func() error {
		r.indexes = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "a trace to say that the depth is not known", func() bool { return said().QueueDepth == wire.Unavailable32 })
}

// What the agent does not come round to read is not available.
func TestQueueTooOld(t *testing.T) {
	h := newHost(t, Config{Transit: TransitTC}, node())
	frame := carrying(t, space(t, spaceA, wire.QueueDepth|wire.BufferOccupancy, 3))
	h.inside(t, func() {
		for _, want := range [][2]uint32{{depth, occupancy}, {wire.Unavailable32, wire.Unavailable32}} {
			out, _ := h.tc(t, "test_through", frame)
			if hop := hopOf(t, out[prefix+40:len(out)-28]); hop.QueueDepth != want[0] || hop.BufferOccupancy != want[1] {
				t.Errorf("%+v, want %#x", hop, want)
			}
			h.queued(t, 1)
		}
	})
}

// What waits is that of the root, memory the sum of all disciplines that count it.
func TestQueueMemory(t *testing.T) {
	word := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	discipline := func(index int32, parent uint32, kind string, backlog uint32, app []byte) []byte {
		stats := nl.NewRtAttr(nl.TCA_STATS2, nil)
		stats.AddRtAttr(nl.TCA_STATS_QUEUE, append(word(7), word(backlog)...))
		stats.AddRtAttr(nl.TCA_STATS_APP, app)
		m := (&nl.TcMsg{Ifindex: index, Parent: parent}).Serialize()
		return append(append(m, nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)).Serialize()...), stats.Serialize()...)
	}
	codel := func(memory uint32) []byte { return append(make([]byte, 4+7*4), word(memory)...) }
	cake := nl.NewRtAttr(4, word(6000)).Serialize()
	got, err := queuesOf([][]byte{
		discipline(1, netlink.HANDLE_ROOT, "mq", 70, nil), discipline(1, 1, "fq_codel", 30, codel(5000)), discipline(1, 2, "fq_codel", 40, codel(500)),
		discipline(2, netlink.HANDLE_ROOT, "cake", 80, cake), discipline(3, netlink.HANDLE_ROOT, "pfifo", 90, codel(1)), discipline(3, 0xfffffff1, "clsact", 5, nil),
	})
	want := map[int]abiIoamQueue{1: {Depth: 70, Occupancy: 5500}, 2: {Depth: 80, Occupancy: 6000}, 3: {Depth: 90, Occupancy: wire.Unavailable32}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := queuesOf([][]byte{make([]byte, nl.SizeofTcMsg)}); !errors.Is(err, errNoQueue) {
		t.Errorf("%v", err)
	}
}

// offsets of fields in struct __sk_buff, in words: 64 bits take two.
const (
	ctxIngress  = 9
	ctxIfindex  = 10
	ctxSegments = 41
	ctxSegment  = 44
	ctxHwtstamp = 46
)

// The receive time is that of the NIC, whatever its clock shows: a packet that took 5 ms longer to the program arrived 5 ms
// before it was seen. Packets without such a time have the kernel's.
func TestReceiveTimeOfNIC(t *testing.T) {
	h := newHost(t, Config{Transit: TransitTC, Time: wire.PTP, NICTime: true}, node())
	frame := carrying(t, space(t, spaceA, wire.TimestampSeconds|wire.TimestampFraction, 3))
	const late, window = 5 * time.Millisecond, 100 * time.Millisecond
	received := func(nic int64) time.Time {
		var ctx [48]uint32
		ctx[ctxIfindex], ctx[ctxHwtstamp], ctx[ctxHwtstamp+1] = uint32(h.veth.From), uint32(nic), uint32(nic>>32)
		out, _ := h.run(t, h.program(t, "test_in"), ctx, frame)
		hop := hopOf(t, out[prefix+40:len(out)-28])
		at, ok := wire.PTP.Join(hop.Seconds, hop.Fraction, time.Now())
		if !ok {
			t.Fatalf("%+v", hop)
		}
		return at
	}
	h.inside(t, func() {
		for _, clockAt := range []int64{1, 1 << 60} { // the NIC's, when the test begins
			for try := 0; ; try++ {
				before := time.Now()
				first := received(clockAt)
				after := time.Now()
				second := received(clockAt - int64(late))
				between := func(at, from, to time.Time) bool { // as exactly as the node follows the wall clock
					return !at.Before(from.Add(-time.Millisecond)) && !at.After(to.Add(time.Millisecond))
				}
				if time.Since(before) > window && try < 50 {
					// The first is of an older window, where the machine is busy. To another try it would be a packet that came
					// sooner with the same time.
					h.forgetNIC(t)
					continue
				}
				if !between(first, before, after) || !between(second, before.Add(-late), after.Add(-late)) {
					t.Errorf("received at %v and %v, run from %v to %v", first, second, before, after)
				}
				break
			}
			before := time.Now()
			if at := received(0); at.Before(before.Add(-time.Millisecond)) || time.Since(at) < -time.Millisecond {
				t.Errorf("without a time of the NIC: %v, run at %v", at, before)
			}
			// The clock was set: nothing is known until the next packet.
			before = time.Now()
			if at := received(clockAt - int64(time.Hour)); at.Before(before.Add(-time.Millisecond)) || time.Since(at) < -time.Millisecond {
				t.Errorf("a clock that was set: %v, run at %v", at, before)
			}
			h.forgetNIC(t)
		}
	})
}

// forgetNIC clears what is known of the clock.
func (h *host) forgetNIC(t testing.TB) {
	t.Helper()
	var key uint32
	var value [24]byte
	nics := h.node.maps["ioam_nics"]
	for nics.NextKey(nil, &key) == nil {
		if err := nics.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
	if err := nics.Lookup(key, &value); err == nil || key == 0 {
		t.Errorf("clock of interface %d: %v, want %v", key, err, ebpf.ErrKeyNotExist)
	}
}

// What a reading takes, of three interfaces.
func BenchmarkQueues(b *testing.B) {
	l := datapathtest.NewLab(b, lab.Config{Topology: "chain", MTU: 1500})
	r := waymarkNode(b, l.Host("athos"), Config{Transit: TransitTC}, "to-alpha", "to-porthos")
	for b.Loop() {
		if err := r.measureQueues(); err != nil {
			b.Fatal(err)
		}
	}
}
