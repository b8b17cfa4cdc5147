package datapath

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/inband/room"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/wire/pdm"
)

var labs atomic.Uint32

// newTrafficLab is a lab that goes with the test.
func newTrafficLab(t testing.TB, cfg lab.Config) *lab.Lab {
	t.Helper()
	cfg.Prefix = fmt.Sprintf("wmpt%d-%d-", os.Getpid(), labs.Add(1))
	l, err := lab.Up(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// markingHost is a host of a lab whose packets are marked, with room for it.
type markingHost struct {
	*lab.Host
	*Datapath
	index int

	start  netlink.LinkStatistics // of the interface, when it was attached
	counts map[flow.Direction]flow.Counts
	pdm    map[flow.Direction]*flow.PDM
	lost   map[string]uint64 // packets passed over, by reason
	whole  bool              // bursts travel whole, as far as the interface sees
	base   [2][2]uint64      // what tally had at the start
}

// mark attaches a probe that marks to a host's first interface.
func mark(t testing.TB, h *lab.Host, cfg PDM, mode room.Mode, policies ...policy.Policy) *markingHost {
	t.Helper()
	m := &markingHost{
		Host: h, Datapath: load(t, Config{MaxEntries: 4096, PDM: &cfg}),
		counts: map[flow.Direction]flow.Counts{}, pdm: map[flow.Direction]*flow.PDM{}, whole: true,
	}
	name := h.Interfaces[0].Name
	if err := h.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			m.index = l.Attrs().Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	keeper := room.New(room.Config{Mode: mode, Packets: cfg.Packets, File: t.TempDir() + "/room.json"},
		room.Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
	if err := keeper.Reserve(room.Link{Netns: h.Netns, Name: name, Index: m.index}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := keeper.Restore(); err != nil {
			t.Error(err)
		}
	})
	if len(policies) == 0 {
		policies = []policy.Policy{everything}
	}
	if err := m.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Attach(Target{Iface: flow.NewIface(0, uint32(m.index)), Name: name, Do: h.Do}); err != nil {
		t.Fatal(err)
	}
	m.begin(t)
	return m
}

// begin notes what the interface and the probe have counted, at a moment when
// neither counts.
func (m *markingHost) begin(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		before := m.statistics(t)
		m.drain(t)
		m.counts = map[flow.Direction]flow.Counts{}
		for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
			m.base[d][0], m.base[d][1] = 0, 0
			m.base[d][0], m.base[d][1] = m.tally(t, d)
		}
		if m.start = m.statistics(t); m.start == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the interface is never silent")
		}
	}
}

func (m *markingHost) statistics(t testing.TB) (s netlink.LinkStatistics) {
	t.Helper()
	if err := m.Do(func() error {
		l, err := netlink.LinkByIndex(m.index)
		if err == nil {
			s = *l.Attrs().Statistics
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (m *markingHost) drain(t testing.TB) {
	t.Helper()
	if err := m.Drain(func(d *flow.Delta) {
		c := m.counts[d.Direction]
		c.Add(&d.Counts)
		m.counts[d.Direction] = c
	}); err != nil {
		t.Fatal(err)
	}
	for d, c := range m.counts {
		m.pdm[d] = c.PDM
	}
	passed, err := m.PDMPassed()
	if err != nil {
		t.Fatal(err)
	}
	m.lost = map[string]uint64{}
	for _, p := range passed {
		m.lost[p.Reason] += p.Packets
	}
}

// tally is what the probe counted in a direction, as the interface counts:
// bursts as they are, or their segments.
func (m *markingHost) tally(t testing.TB, direction flow.Direction) (packets, bytes uint64) {
	t.Helper()
	list, err := m.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		if u.Direction == direction {
			packets, bytes = packets+u.Frames, bytes+u.Bytes
		}
	}
	packets, bytes = packets-m.base[direction][0], bytes-m.base[direction][1]
	c := m.counts[direction]
	if direction == flow.Egress && !m.whole {
		return packets + c.Packets, bytes + c.WireBytes
	}
	return packets + c.Frames, bytes + c.FrameBytes
}

// settle drains until what was counted is what the interface counted, to the
// octet: records tell what is on the wire, marks included. It begins anew then.
func (m *markingHost) settle(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		m.drain(t)
		now := m.statistics(t)
		var got [4]uint64
		got[0], got[1] = m.tally(t, flow.Ingress)
		got[2], got[3] = m.tally(t, flow.Egress)
		want := [4]uint64{
			now.RxPackets - m.start.RxPackets, now.RxBytes - m.start.RxBytes,
			now.TxPackets - m.start.TxPackets, now.TxBytes - m.start.TxBytes,
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s counted %d, its interface %d (packets and octets in, packets and octets out)", m.Name, got, want)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// faults are the host's counters of packets that it could not use.
func faults(t testing.TB, h *lab.Host) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	err := h.Do(func() error {
		six, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(six), "\n") {
			f := strings.Fields(line)
			if len(f) == 2 && (strings.Contains(f[0], "Csum") || slices.Contains([]string{"Ip6InHdrErrors", "Ip6InTooBigErrors", "Ip6InTruncatedPkts", "Ip6InUnknownProtos"}, f[0])) {
				out[f[0]], _ = strconv.ParseUint(f[1], 10, 64)
			}
		}
		four, err := os.Open("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		defer four.Close()
		for s := bufio.NewScanner(four); s.Scan(); {
			names := strings.Fields(s.Text())
			if !s.Scan() {
				break
			}
			for i, v := range strings.Fields(s.Text()) {
				if strings.Contains(names[i], "Csum") || names[0] == "Tcp:" && names[i] == "InErrs" {
					out[names[0]+names[i]], _ = strconv.ParseUint(v, 10, 64)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 8 {
		t.Fatalf("found only the counters %v", out)
	}
	return out
}

// newFaults are the counters that moved.
func newFaults(before, after map[string]uint64) map[string]uint64 {
	moved := map[string]uint64{}
	for name, n := range after {
		if n != before[name] {
			moved[name] = n - before[name]
		}
	}
	return moved
}

func (m *markingHost) told(d flow.Direction) flow.PDM {
	if p := m.pdm[d]; p != nil {
		return *p
	}
	return flow.PDM{}
}

// transfers moves octets both ways, by TCP and UDP, and says what was sent again.
func transfers(t testing.TB, from, to *lab.Host, mtu int) (resent uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, way := range [][2]*lab.Host{{from, to}, {to, from}} {
		addr := netip.AddrPortFrom(way[1].Addr6(), 0)
		bulk, err := traffic.Bulk(ctx, way[0], way[1], traffic.BulkConfig{To: addr, Bytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if bulk.Duration > 5*time.Second {
			t.Errorf("4 MiB took %v", bulk.Duration)
		}
		resent += bulk.Sender.Retransmits
		for _, size := range []int{100, mtu - 48 - pdm.HeaderSize, mtu - 48} {
			r, err := traffic.Datagrams(ctx, way[0], way[1], traffic.DatagramConfig{To: addr, Count: 200, Size: size, Flows: 2})
			if err != nil {
				t.Fatal(err)
			}
			if r.Distinct != 200 {
				t.Errorf("of 200 datagrams of %d octets came %d", size, r.Distinct)
			}
		}
	}
	return resent
}

const allOffloads = lab.TSO | lab.USO | lab.GSO | lab.GRO | lab.TxChecksum

// resentMost is how many segments may be sent again of the 6,000 or more of
// transfers(): now and then a timer is early, and a queue of veth runs over where
// bursts are cut to packets, marked or not.
func resentMost(packets, offloads bool) uint32 {
	if packets || !offloads {
		return 300
	}
	return 60
}

// No connection may slow down or die because marking is on: whatever the MTU,
// the offloads, the mode and the direction; nor is a packet miscounted.
func TestMarkedTraffic(t *testing.T) {
	for _, mtu := range []int{1280, 1500, 9000} {
		for _, packets := range []bool{false, true} {
			for _, offloads := range []bool{true, false} {
				t.Run(fmt.Sprintf("MTU %d, packets %t, offloads %t", mtu, packets, offloads), func(t *testing.T) {
					testMarkedTraffic(t, mtu, packets, offloads)
				})
			}
		}
	}
}

func testMarkedTraffic(t *testing.T, mtu int, packets, offloads bool) {
	l := newTrafficLab(t, lab.Config{Topology: "pair", MTU: mtu})
	if err := l.SetOffloads(allOffloads, offloads); err != nil {
		t.Fatal(err)
	}
	reserve := room.Interface
	if mtu == 1280 {
		reserve = room.None
	}
	cfg := DefaultPDM()
	cfg.Packets = packets
	a, b := mark(t, l.Host("alpha"), cfg, reserve), mark(t, l.Host("beta"), cfg, reserve)
	before := [2]map[string]uint64{faults(t, a.Host), faults(t, b.Host)}
	if resent := transfers(t, a.Host, b.Host, mtu); resent > resentMost(packets, offloads) {
		t.Errorf("%d segments were sent again", resent)
	}
	for i, h := range []*markingHost{a, b} {
		if moved := newFaults(before[i], faults(t, h.Host)); len(moved) > 0 {
			t.Errorf("%s could not use packets: %v", h.Name, moved)
		}
		h.whole = offloads
		h.settle(t)
	}
	for _, way := range [][2]*markingHost{{a, b}, {b, a}} {
		sent, got := way[0].told(flow.Egress), way[1].told(flow.Ingress)
		// UDP that goes one way has no state at its end, and so is not read.
		read := got.Received + way[1].lost["no_state"]
		t.Logf("%s to %s: %d marked, %d read; passed over %v", way[0].Name, way[1].Name, sent.Sent, read, way[0].lost)
		if got.Lost > int64(resentMost(packets, offloads)) || got.Duplicates != 0 || got.Suspicious != 0 {
			t.Errorf("%s misread marks: %+v", way[1].Name, got)
		}
		exact := packets || offloads // else segments share the mark of their burst
		if sent.Sent == 0 || read+uint64(got.Lost) < sent.Sent || exact && read+uint64(got.Lost) != sent.Sent {
			t.Errorf("%s marked %d packets, %s read %d", way[0].Name, sent.Sent, way[1].Name, read)
		}
		// Transfers one way are acknowledged, which tells of the path, but not
		// answered, which would tell of the server.
		if got.Network.Count == 0 {
			t.Errorf("%s learned no round trips: %+v", way[1].Name, got)
		}
		// Datagrams of the interface's own size are fragments once room is reserved.
		may := []string{"address", "neighbor", "no_state", "fragment"}
		if reserve == room.None {
			may = append(may, "mtu")
		}
		for reason, n := range way[0].lost {
			if !slices.Contains(may, reason) {
				t.Errorf("%s passed over %d packets: %s", way[0].Name, n, reason)
			}
		}
	}
}

// Without room, what would be too large goes as it is, and nothing else changes.
func TestMarkedTrafficWithoutRoom(t *testing.T) {
	for _, packets := range []bool{false, true} {
		l := newTrafficLab(t, lab.Config{Topology: "pair", MTU: 1500})
		cfg := DefaultPDM()
		cfg.Packets = packets
		a, b := mark(t, l.Host("alpha"), cfg, room.None), mark(t, l.Host("beta"), cfg, room.None)
		if resent := transfers(t, a.Host, b.Host, 1500); resent > resentMost(packets, true) {
			t.Errorf("packets %t: %d segments were sent again", packets, resent)
		}
		for _, h := range []*markingHost{a, b} {
			h.settle(t)
			if h.lost["mtu"] == 0 {
				t.Errorf("%s passed over %v, but none for its size", h.Name, h.lost)
			}
			if p := h.told(flow.Ingress); p.Received == 0 || p.Lost > int64(resentMost(packets, true)) || p.Duplicates != 0 {
				t.Errorf("%s read %+v", h.Name, p)
			}
		}
	}
}

// A peer that knows nothing of PDM talks with a host that marks as with any other.
func TestMarkedTrafficToAPeerWithoutPDM(t *testing.T) {
	for _, mtu := range []int{1280, 1500, 9000} {
		l := newTrafficLab(t, lab.Config{Topology: "pair", MTU: mtu})
		reserve := room.Interface
		if mtu == 1280 {
			reserve = room.None
		}
		a, b := mark(t, l.Host("alpha"), DefaultPDM(), reserve), l.Host("beta")
		before := faults(t, b)
		if resent := transfers(t, a.Host, b, mtu); resent > resentMost(false, true) {
			t.Errorf("MTU %d: %d segments were sent again", mtu, resent)
		}
		if moved := newFaults(before, faults(t, b)); len(moved) > 0 {
			t.Errorf("MTU %d: the peer could not use packets: %v", mtu, moved)
		}
		a.settle(t)
		if sent, got := a.told(flow.Egress), a.told(flow.Ingress); sent.Sent == 0 || got.Received != 0 {
			t.Errorf("MTU %d: %d marked, %d read", mtu, sent.Sent, got.Received)
		}
	}
}

// Options that are taken out leave packets as the stack would have got them.
func TestStrippedTraffic(t *testing.T) {
	for _, offloads := range []bool{true, false} {
		l := newTrafficLab(t, lab.Config{Topology: "pair", MTU: 1500})
		if err := l.SetOffloads(allOffloads, offloads); err != nil {
			t.Fatal(err)
		}
		cfg := DefaultPDM()
		cfg.Strip = true
		a, b := mark(t, l.Host("alpha"), cfg, room.Interface), mark(t, l.Host("beta"), cfg, room.Interface)
		before := [2]map[string]uint64{faults(t, a.Host), faults(t, b.Host)}
		if resent := transfers(t, a.Host, b.Host, 1500); resent > resentMost(false, offloads) {
			t.Errorf("offloads %t: %d segments were sent again", offloads, resent)
		}
		for i, h := range []*markingHost{a, b} {
			if moved := newFaults(before[i], faults(t, h.Host)); len(moved) > 0 {
				t.Errorf("offloads %t: %s could not use packets: %v", offloads, h.Name, moved)
			}
			h.whole = offloads
			h.settle(t)
			s, err := h.PDMStats()
			if err != nil {
				t.Fatal(err)
			}
			if s.Read == 0 || s.Stripped < s.Read || h.lost["not_stripped"] > 0 {
				t.Errorf("offloads %t: %s read %d and stripped %d, passed over %v", offloads, h.Name, s.Read, s.Stripped, h.lost)
			}
		}
	}
}

// UDP bursts (UDP_SEGMENT): one mark for all of it, or none, but never a datagram
// that does not arrive.
func TestMarkedBursts(t *testing.T) {
	const bursts, segments = 50, 8
	for _, c := range []struct {
		packets  bool
		segment  int
		offloads bool
		reason   string
	}{
		{false, 1000, true, ""},
		{false, 1000, false, ""},
		{false, 1500 - 48 - pdm.HeaderSize, true, ""},
		{false, 1500 - 48 - pdm.HeaderSize, false, ""},
		{true, 1000, true, "burst"},
		{true, 1000, false, "burst"},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			l := newTrafficLab(t, lab.Config{Topology: "pair", MTU: 1500})
			cfg := DefaultPDM()
			cfg.Packets = c.packets
			a, b := mark(t, l.Host("alpha"), cfg, room.Interface), mark(t, l.Host("beta"), cfg, room.Interface)
			if err := l.SetOffloads(lab.TSO|lab.USO|lab.GSO, c.offloads); err != nil {
				t.Fatal(err)
			}
			before := faults(t, b.Host)
			sendBursts(t, a.Host, b.Host, bursts, segments, c.segment)
			if moved := newFaults(before, faults(t, b.Host)); len(moved) > 0 {
				t.Errorf("packets that could not be used: %v", moved)
			}
			a.whole = c.offloads && !c.packets
			a.settle(t)
			b.settle(t)
			if c.reason != "" {
				if a.lost[c.reason] != bursts*segments {
					t.Errorf("passed over %v, want %d packets: %s", a.lost, bursts*segments, c.reason)
				}
				return
			}
			sent, got := a.told(flow.Egress), b.told(flow.Ingress)
			if sent.Sent < bursts || a.lost["burst"]+a.lost["mtu"] > 0 {
				t.Errorf("%d marked, passed over %v", sent.Sent, a.lost)
			}
			if got.Lost != 0 || got.Duplicates != 0 || got.Received+b.lost["no_state"] < sent.Sent {
				t.Errorf("of %d marks was read %+v, passed over %v", sent.Sent, got, b.lost)
			}
		})
	}
}

// sendBursts sends datagrams many at a time and checks that each arrives.
func sendBursts(t testing.TB, from, to *lab.Host, bursts, segments, size int) {
	t.Helper()
	var receiver *net.UDPConn
	if err := to.Do(func() (err error) {
		receiver, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Addr6(), 0)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	if err := receiver.SetReadBuffer(1 << 22); err != nil {
		t.Fatal(err)
	}
	received := map[string]int{}
	var sender *net.UDPConn
	if err := from.Do(func() (err error) {
		sender, err = net.DialUDP("udp", nil, receiver.LocalAddr().(*net.UDPAddr))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	raw, err := sender.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if ctl := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
	}); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	sent := map[string]int{}
	payload := make([]byte, segments*size)
	buf := make([]byte, 65536)
	for range bursts {
		if _, err := rand.Read(payload); err != nil {
			t.Fatal(err)
		}
		if _, err := sender.Write(payload); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(payload); at += size {
			sent[string(payload[at:at+size])]++
			if err := receiver.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := receiver.Read(buf)
			if err != nil {
				t.Fatalf("a datagram is missing: %v", err)
			}
			received[string(buf[:n])]++
		}
	}
	if !maps.Equal(sent, received) {
		t.Error("other datagrams arrived than were sent")
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
	l := newTrafficLab(t, lab.Config{Topology: "chain", MTU: 1500})
	for _, ends := range [][2]string{{"athos", "to-porthos"}, {"porthos", "to-athos"}} {
		if err := l.Host(ends[0]).Do(func() error { return setMTU(ends[1], narrow) }); err != nil {
			t.Fatal(err)
		}
	}
	cfg := DefaultPDM()
	cfg.Packets = packets
	a, b := mark(t, l.Host("alpha"), cfg, room.Interface), mark(t, l.Host("beta"), cfg, room.Interface)
	for round := range 4 {
		from, to := a, b
		if round%2 == 1 {
			from, to = b, a
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		bulk, err := traffic.Bulk(ctx, from.Host, to.Host, traffic.BulkConfig{To: netip.AddrPortFrom(to.Addr6(), 0), Bytes: 4 << 20})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		// What is sent before the path's MTU is known is sent again.
		most := resentMost(packets, true)
		if narrow < 1500 {
			most += 100
		}
		t.Logf("4 MiB took %v, %d segments of %d were sent again", bulk.Duration, bulk.Sender.Retransmits, bulk.Sender.SegmentsOut)
		if bulk.Duration > 5*time.Second || bulk.Sender.Retransmits > most {
			t.Errorf("round %d: 4 MiB took %v, %d segments were sent again", round, bulk.Duration, bulk.Sender.Retransmits)
		}
	}
	for _, h := range []*markingHost{a, b} {
		h.settle(t)
		// Bursts are cut to what fits, so that they need not stay unmarked.
		if n := h.lost["path_mtu"]; n > 0 && narrow == 1500 || n == 0 && narrow < 1500 && packets {
			t.Errorf("%s passed over %v", h.Name, h.lost)
		}
		if p := h.told(flow.Egress); p.Sent == 0 {
			t.Errorf("%s marked nothing", h.Name)
		}
	}
}
