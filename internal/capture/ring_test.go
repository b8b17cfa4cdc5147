package capture

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/test/packet"
)

// TestCasesOnVeth: every packet of the table, whole and cut at every length,
// is counted off the wire as it is out of the table, VLAN tags included.
func TestCasesOnVeth(t *testing.T) {
	for _, tunnels := range []packet.Tunnels{0, packet.AllTunnels} {
		a, b := quietPair(t, 8000)
		cfg := config(tunnels)
		cfg.SnapLen = 8192
		c := load(t, cfg, Deps{}, b)
		in := a.sender()

		want := newMeter(cfg, rand.Uint32)
		sent := 0
		for _, tc := range packet.Cases() {
			for _, tc := range append(packet.Truncations(tc), tc) {
				for _, f := range tc.Frames {
					data, ok := onWire(f)
					if !ok {
						continue
					}
					must(t, in.Send(data))
					sent++
					direct := asReceived(data)
					want.add(&direct, place{b.iface, flow.Ingress}, 1)
				}
			}
		}
		expected := map[flow.Key]flow.Counts{}
		for _, d := range want.flows() {
			d.First, d.Last = 0, 0
			expected[d.Key] = d.Counts
		}
		if sent < 10000 || len(expected) < 40 {
			t.Fatalf("%d frames of %d flows sent: the table has more", sent, len(expected))
		}
		arrived(t, c, uint64(sent))
		if diff := gocmp.Diff(expected, drained(t, c)); diff != "" {
			t.Errorf("flows (-want +got):\n%s", diff)
		}
		reasons := map[string]uint64{}
		for reason, a := range want.amounts() {
			reasons[reason] = a.Packets
		}
		if got := uncounted(t, c); !maps.Equal(got, reasons) {
			t.Errorf("reasons: got %v, want %v", got, reasons)
		}
	}
}

// untagMin is how long a tagged frame must be for the kernel not to drop it as
// it takes the tag out (skb_vlan_untag).
const untagMin = etherLen + tagLen + 2

// onWire is the frame with its accelerated tag put in, if it gets through.
func onWire(f packet.Frame) ([]byte, bool) {
	if f.L3 || f.GSO.Segments > 0 || len(f.Data) < etherLen || len(f.Data) > 8000 {
		return nil, false
	}
	data := f.Data
	if f.Tag != nil {
		tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, f.Tag.TPID), f.Tag.TCI)
		data = slices.Concat(f.Data[:12], tag, f.Data[12:])
	}
	return data, !isTagged(data) || len(data) >= untagMin
}

func isTagged(data []byte) bool {
	tpid := binary.BigEndian.Uint16(data[12:])
	return tpid == typeVLAN || tpid == typeQinQ
}

// asReceived takes the outermost tag out, as the kernel does on receipt.
func asReceived(data []byte) frame {
	f := frame{data: data, length: len(data)}
	if isTagged(data) {
		f.tagged, f.tci, f.outside = true, binary.BigEndian.Uint16(data[14:]), tagLen
		f.data = slices.Concat(data[:12], data[16:])
		f.length = len(f.data)
	}
	return f
}

// TestExact: 100,000 datagrams of 1,000 flows, drained meanwhile; every frame
// of the interfaces' own counters is in a flow, in both directions.
func TestExact(t *testing.T) {
	const packets, flows, payload = 100_000, 1000, 100
	a, b := quietPair(t, 1500)
	c := load(t, Default(), Deps{}, a, b)

	in := a.sender()
	data := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1000, 2000).Payload(payload).Bytes()
	stop, sum := make(chan struct{}), map[flow.Key]flow.Counts{}
	done := make(chan struct{})
	add := func() {
		for k, more := range drained(t, c) {
			s := sum[k]
			s.Packets += more.Packets
			s.Bytes += more.Bytes
			s.PayloadBytes += more.PayloadBytes
			s.WireBytes += more.WireBytes
			s.Frames += more.Frames
			s.FrameBytes += more.FrameBytes
			sum[k] = s
		}
	}
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				add()
			}
		}
	}()
	for i := range packets {
		if i%20_000 == 0 { // the rings hold more
			arrived(t, c, uint64(2*i))
		}
		binary.BigEndian.PutUint16(data[14+40:], uint16(i%flows))
		must(t, in.Send(data))
	}
	arrived(t, c, 2*packets)
	close(stop)
	<-done
	add()

	if got := uncounted(t, c); len(got) > 0 {
		t.Errorf("not counted: %v", got)
	}
	if len(sum) != 2*flows {
		t.Errorf("%d flows, want %d at each end", len(sum), flows)
	}
	want := flow.Counts{Counters: flow.Counters{Packets: packets / flows}, Frames: packets / flows}
	want.PayloadBytes = want.Packets * payload
	want.Bytes = want.Packets * (40 + 8 + payload)
	want.WireBytes = want.Packets * (14 + 40 + 8 + payload)
	want.FrameBytes = want.WireBytes
	frames := map[flow.Direction]uint64{}
	for k, got := range sum {
		if got != want {
			t.Fatalf("%+v: got %+v, want %+v", k, got, want)
		}
		frames[k.Direction] += got.Frames
	}
	if tx := a.counters().TxPackets; frames[flow.Egress] != tx || tx != packets {
		t.Errorf("%d frames counted at egress, %d by the interface, %d sent", frames[flow.Egress], tx, packets)
	}
	if rx := b.counters().RxPackets; frames[flow.Ingress] != rx {
		t.Errorf("%d frames counted at ingress, %d by the interface", frames[flow.Ingress], rx)
	}
}

// What a full ring loses is counted; nothing is counted twice.
func TestFullRing(t *testing.T) {
	const packets = 20_000
	a, b := quietPair(t, 1500)
	cfg := Default()
	cfg.RingSize = 2 * blockSize
	c := load(t, cfg, Deps{}, a, b)

	in := a.sender()
	data := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Payload(200).Bytes()
	c.mu.Lock() // nobody reads
	for range packets {
		must(t, in.Send(data))
	}
	c.mu.Unlock()
	arrived(t, c, 2*packets)

	frames := map[flow.Iface]uint64{}
	for k, got := range drained(t, c) {
		frames[k.Iface] += got.Frames
	}
	all, err := c.Uncounted()
	must(t, err)
	var lost uint64
	for _, u := range all {
		if u.Reason != "ring_full" {
			t.Errorf("uncounted: %+v", u)
		}
		frames[u.Iface] += u.Frames
		lost += u.Frames
	}
	if lost == 0 || frames[a.iface] != packets || frames[b.iface] != packets {
		t.Errorf("%v frames counted and lost, %d lost, want %d each and some lost", frames, lost, packets)
	}
}

// Of a full table only interface, direction and protocol are kept; sums stay exact.
func TestFullTable(t *testing.T) {
	const packets, flows, capacity = 3000, 300, 100
	a, b := quietPair(t, 1500)
	cfg := Default()
	cfg.MaxEntries = capacity
	c := load(t, cfg, Deps{}, b)

	in := a.sender()
	data := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Payload(200).Bytes()
	for i := range packets {
		binary.BigEndian.PutUint16(data[14+20:], uint16(i%flows))
		must(t, in.Send(data))
	}
	arrived(t, c, packets)
	var kept, rest uint64
	must(t, c.Drain(func(d *flow.Delta) {
		if !d.Unattributed {
			kept += d.Packets
			return
		}
		rest += d.Packets
		want := flow.Key{Iface: b.iface, Direction: flow.Ingress, Proto: protoUDP}
		if d.Key != want || d.Bytes != d.Packets*228 {
			t.Errorf("unattributed: %+v", *d)
		}
	}))
	if kept != packets*capacity/flows || rest != packets-kept {
		t.Errorf("%d packets in flows and %d unattributed of %d, of which %d in %d have capacity", kept, rest, packets, capacity, flows)
	}
	if s := c.Stats(); s.Unattributed != rest || s.Entries != capacity {
		t.Errorf("stats %+v", s)
	}
}

// One packet in two is counted, the others are reported.
func TestSampling(t *testing.T) {
	const packets = 1000
	a, b := quietPair(t, 1500)
	cfg := Default()
	cfg.Sampling = 2
	n := uint32(0)
	alternate := func() uint32 { n++; return n % 2 * math.MaxUint32 }
	c := load(t, cfg, Deps{Random: alternate}, b)
	in := a.sender()
	for range packets {
		must(t, in.Send(packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()))
	}
	arrived(t, c, packets)
	got := drained(t, c)
	if k := keysOf(got); len(k) != 1 || got[k[0]].Packets != packets/2 {
		t.Errorf("counted %+v, want %d packets in one flow", got, packets/2)
	}
	if lost := uncounted(t, c); lost["sampled_out"] != packets/2 || len(lost) != 1 {
		t.Errorf("uncounted %v, want %d sampled out", lost, packets/2)
	}
}

// An interface that goes down and up again is counted on; one that is gone can
// be detached from, and what it received is still there.
func TestInterfaceGoesAway(t *testing.T) {
	a, b := quietPair(t, 1500)
	c := load(t, Default(), Deps{}, b)
	data := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()
	must(t, a.sender().Send(data))
	arrived(t, c, 1)
	b.do(func() error { return errors.Join(netlink.LinkSetDown(b.link), netlink.LinkSetUp(b.link)) })
	must(t, a.sender().Send(data))
	arrived(t, c, 2)
	for k, got := range drained(t, c) {
		if got.Packets != 2 {
			t.Errorf("%+v: %d packets around the interface going down, want 2", k, got.Packets)
		}
	}
	must(t, a.sender().Send(data))
	arrived(t, c, 3)
	b.do(func() error { return netlink.LinkDel(b.link) })
	must(t, c.Detach(b.iface))
	if got := drained(t, c); len(got) != 1 {
		t.Errorf("%d flows after the interface was deleted, want the one before", len(got))
	}
	must(t, c.Detach(b.iface))
}

func TestAttachErrors(t *testing.T) {
	_, b := quietPair(t, 1500)
	c := load(t, Default(), Deps{}, b)
	twice := c.Attach(b.target())
	missing := b.target()
	missing.Iface = flow.NewIface(1, 4_000_000)
	gone := c.Attach(missing)
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"attached already":     {twice, "attaching to " + b.target().Name + ": attached already"},
		"no such interface":    {gone, "no such device"},
		"before Load":          {New(Default(), Deps{}).Attach(b.target()), "not loaded"},
		"loaded a second time": {c.Load(), "loaded already"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", name, tt.err, tt.want)
		}
	}
}

// After Close nothing is left that the kernel feeds, and the last counts are there.
func TestClose(t *testing.T) {
	a, b := quietPair(t, 1500)
	c := load(t, Default(), Deps{}, b)
	must(t, a.sender().Send(packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()))
	arrived(t, c, 1)
	must(t, c.Close())
	if got := drained(t, c); len(got) != 1 {
		t.Errorf("%d flows after Close, want the one before", len(got))
	}
	if err := c.Attach(b.target()); err == nil {
		t.Error("attached after Close")
	}
}

// CAP_NET_RAW is all the probe needs; without it the error tells the remedy.
func TestPrivileges(t *testing.T) {
	a, b := quietPair(t, 1500)
	var c *Capture
	b.do(func() error { // on a thread of its own, which is not used again
		must(t, setCapabilities(1<<unix.CAP_NET_RAW))
		c = New(Default(), Deps{})
		target := b.target()
		target.Do = nil
		return errors.Join(c.Load(), c.Attach(target))
	})
	must(t, a.sender().Send(packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()))
	arrived(t, c, 1)
	if got := drained(t, c); len(got) != 1 {
		t.Errorf("%d flows, want 1", len(got))
	}
	must(t, c.Close())

	b.do(func() error {
		must(t, setCapabilities(0))
		err := New(Default(), Deps{}).Load()
		if !errors.Is(err, kernel.ErrMissing) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
			t.Errorf("without privileges: %v, want ErrMissing and a remedy", err)
		}
		return nil
	})
}

// setCapabilities leaves the calling thread these alone.
func setCapabilities(set uint32) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: set, Permitted: set}}
	return unix.Capset(&header, &data[0])
}
