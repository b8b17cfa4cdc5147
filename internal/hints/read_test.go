package hints

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/hints/hintstest"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// reader has the programs of a test at a receiving interface.
type reader struct {
	coll *ebpf.Collection
	do   func(func() error) error
}

// newReader loads all programs, those in bound for a device.
func newReader(t testing.TB, do func(func() error) error, device int, set func(*ebpf.CollectionSpec) error) *reader {
	t.Helper()
	r := &reader{do: do}
	err := do(func() error {
		spec, err := hintstest.Load()
		if err != nil {
			return err
		}
		bound := spec.Programs["hints_bound"]
		bound.Ifindex = uint32(device)
		bound.Flags |= unix.BPF_F_XDP_DEV_BOUND_ONLY
		if set != nil {
			if err := set(spec); err != nil {
				return err
			}
		}
		if !kernel.XDPHints.Has() {
			delete(spec.Programs, "hints_bound")
		}
		r.coll, err = ebpf.NewCollection(spec)
		return err
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(r.coll.Close)
	return r
}

// attach runs a program at XDP of an interface until the test ends, and one at tc behind it.
func (r *reader) attach(t testing.TB, program string, iface int, mode link.XDPAttachFlags) {
	t.Helper()
	if err := r.tryAttach(t, program, iface, mode); err != nil {
		t.Fatal(err)
	}
}

func (r *reader) tryAttach(t testing.TB, program string, iface int, mode link.XDPAttachFlags) error {
	return r.do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: r.coll.Programs[program], Interface: iface, Flags: mode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
}

func (r *reader) attachTC(t testing.TB, program string, iface int, where ebpf.AttachType) {
	t.Helper()
	if !kernel.TCX.Has() {
		t.Skip("programs at tc are attached by TCX here: Linux 6.6")
	}
	err := r.do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: r.coll.Programs[program], Interface: iface, Attach: where})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// next takes what a program saw of the next packet.
func next[T any](t testing.TB, queue *ebpf.Map) (s T) {
	t.Helper()
	await.Success(t, func() error { return queue.LookupAndDelete(nil, &s) })
	return s
}

func (r *reader) seen(t testing.TB) hintstest.Seen {
	t.Helper()
	return next[hintstest.Seen](t, r.coll.Maps["hints_queue"])
}

// counted are the packets by kind.
func (r *reader) counted(t testing.TB) Rates {
	t.Helper()
	rates, err := ReadCounts(r.coll.Maps["hints_counts"], 0)
	if err != nil {
		t.Fatal(err)
	}
	return rates
}

func needBinding(t testing.TB) {
	t.Helper()
	if !kernel.XDPHints.Has() {
		t.Skip("programs that are bound to a device: Linux 6.3")
	}
}

// TestHashOfSockets: the hash of a frame that a socket sent is the driver's, and the skb has the same at tc; the
// time that veth has, 0, is none.
func TestHashOfSockets(t *testing.T) {
	needBinding(t)
	l := labtest.New(t, lab.Config{Topology: "pair"})
	sender, receiver := l.Hosts()[0], l.Hosts()[1]
	var iface *net.Interface
	if err := receiver.Do(func() (err error) {
		iface, err = net.InterfaceByName(receiver.Interfaces[0].Name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, receiver.Do, iface.Index, nil)
	r.attach(t, "hints_bound", iface.Index, link.XDPDriverMode)
	r.attachTC(t, "hints_tc", iface.Index, ebpf.AttachTCXIngress)
	for _, to := range []string{receiver.Addr4().String(), receiver.Addr6().String()} {
		first := uint32(0)
		for i := range 5 {
			last := 0xfeed0000 + uint32(i)
			if err := sender.Do(func() error {
				c, err := net.Dial("udp", net.JoinHostPort(to, fmt.Sprint(7000+i)))
				if err != nil {
					return err
				}
				defer c.Close()
				_, err = c.Write(binary.NativeEndian.AppendUint32(nil, last))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			s, skb := r.data(t, last)
			if s.H.Source != [3]hintstest.Source{hintstest.Computed, hintstest.Driver, hintstest.Absent} || !s.H.HashL4 {
				t.Fatalf("%+v", s)
			}
			if s.H.Hash != skb.Hash || s.H.Hash == first {
				t.Errorf("hash %#x at XDP, %#x at tc; %#x of another flow", s.H.Hash, skb.Hash, first)
			}
			first = s.H.Hash
			if s.H.Time == 0 || s.Now < s.H.Time || s.Now-s.H.Time > uint64(await.Patience) {
				t.Errorf("received at %d, read at %d", s.H.Time, s.Now)
			}
		}
	}
	c := r.counted(t)
	if c[Hash].Present < 10 || c[Time].Present != 0 || c[Time].Absent != c[Hash].Present+c[Hash].Absent || c[VLAN].Present != 0 {
		t.Errorf("%+v", c)
	}
}

// data is what XDP and tc had of the packet that ends with a word: neighbours are solicited meanwhile.
func (r *reader) data(t testing.TB, last uint32) (s hintstest.Seen, skb hintstest.SKB) {
	t.Helper()
	for s.Last != last {
		s = r.seen(t)
	}
	for skb.Last != last {
		skb = next[hintstest.SKB](t, r.coll.Maps["hints_skbs"])
	}
	return s, skb
}

var (
	frame  = packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1000, 2000).Payload(100).Bytes()
	tagged = packet.Eth().VLAN(7).IPv4("192.0.2.1", "192.0.2.2").UDP(1000, 2000).Payload(100).Bytes()
)

// TestFramesWithoutSKB: of a frame that comes from another XDP program, veth knows nothing, and all is computed.
func TestFramesWithoutSKB(t *testing.T) {
	needBinding(t)
	v := datapathtest.NewVeth(t)
	r := newReader(t, v.Do, v.To, func(spec *ebpf.CollectionSpec) error {
		return spec.Variables["redirect_to"].Set(uint32(v.From))
	})
	r.attach(t, "hints_bound", v.To, link.XDPDriverMode)
	hashes := map[bool]uint32{}
	for _, f := range [][]byte{frame, tagged} {
		if err := v.Do(func() error {
			_, err := r.coll.Programs["hints_redirect"].Run(&ebpf.RunOptions{Data: f, Repeat: 1, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		s := r.seen(t)
		isTagged := len(f) == len(tagged)
		want := [3]hintstest.Source{hintstest.Computed, hintstest.Computed, hintstest.Absent}
		if isTagged {
			want[VLAN] = hintstest.Computed
		}
		if s.H.Source != want || !s.H.HashL4 || s.H.HashType != 0 || s.H.Time == 0 || isTagged != (s.H.VlanTci == 7) {
			t.Errorf("%+v, want sources %v", s, want)
		}
		hashes[isTagged] = s.H.Hash
	}
	if hashes[true] != hashes[false] || hashes[true] == 0 {
		t.Errorf("hashes of a flow with and without tag: %v", hashes)
	}
	if c := r.counted(t); c != (Rates{{Absent: 2}, {Absent: 2}, {Absent: 2}}) {
		t.Errorf("%+v", c)
	}
}

// TestRawFrames: a frame of a packet socket is an skb, of which veth computes the hash; it is that of the skb.
func TestRawFrames(t *testing.T) {
	needBinding(t)
	v := datapathtest.NewVeth(t)
	r := newReader(t, v.Do, v.To, nil)
	r.attach(t, "hints_bound", v.To, link.XDPDriverMode)
	r.attachTC(t, "hints_tc", v.To, ebpf.AttachTCXIngress)
	v.Send(t, frame)
	s, skb := r.seen(t), next[hintstest.SKB](t, r.coll.Maps["hints_skbs"])
	if s.H.Source != [3]hintstest.Source{hintstest.Computed, hintstest.Driver, hintstest.Absent} || s.H.Hash != skb.Hash || !s.H.HashL4 {
		t.Errorf("%+v, at tc %+v", s, skb)
	}
	// No ports, no hash of a flow.
	v.Send(t, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").ICMP(8, 0, 1, 1).Bytes())
	if s := r.seen(t); s.H.Source[Hash] != hintstest.Computed || s.H.HashL4 {
		t.Errorf("ICMP: %+v", s)
	}
}

// TestAcceleratedTag: a tag that the sender's driver left out of the frame is a hint; tc has the same one.
func TestAcceleratedTag(t *testing.T) {
	needBinding(t)
	v := datapathtest.NewVeth(t)
	const tci = 5<<13 | 42
	r := newReader(t, v.Do, v.To, func(spec *ebpf.CollectionSpec) error { return spec.Variables["push_tci"].Set(uint16(tci)) })
	r.attach(t, "hints_bound", v.To, link.XDPDriverMode)
	r.attachTC(t, "hints_push", v.From, ebpf.AttachTCXEgress)
	r.attachTC(t, "hints_tc", v.To, ebpf.AttachTCXIngress)
	v.Send(t, frame)
	s, skb := r.seen(t), next[hintstest.SKB](t, r.coll.Maps["hints_skbs"])
	if s.H.Source[VLAN] != hintstest.Driver || s.H.VlanTci != tci || s.H.VlanProto != 0x0081 {
		t.Errorf("%+v", s)
	}
	if skb.VlanPresent != 1 || skb.VlanTci != tci || skb.VlanProto != 0x0081 {
		t.Errorf("at tc: %+v", skb)
	}
	if c := r.counted(t); c[VLAN] != (Rate{Present: 1}) {
		t.Errorf("%+v", c)
	}
}

// TestUnboundTwin: the same source without the driver, in the driver's place and after it.
func TestUnboundTwin(t *testing.T) {
	for _, mode := range []link.XDPAttachFlags{link.XDPDriverMode, link.XDPGenericMode} {
		v := datapathtest.NewVeth(t)
		r := newReader(t, v.Do, v.To, nil)
		r.attach(t, "hints_unbound", v.To, mode)
		v.Send(t, tagged)
		s := r.seen(t)
		want := [3]hintstest.Source{hintstest.Computed, hintstest.Computed, hintstest.Computed}
		if s.H.Source != want || !s.H.HashL4 || s.H.VlanTci != 7 || s.H.VlanProto != 0x0081 || s.H.Time == 0 {
			t.Errorf("mode %d: %+v", mode, s)
		}
	}
}

// TestRefusals: what the kernel refuses of a bound program: the generic mode, another device, and a driver without hints.
func TestRefusals(t *testing.T) {
	needBinding(t)
	v := datapathtest.NewVeth(t)
	r := newReader(t, v.Do, v.To, nil)
	if err := r.tryAttach(t, "hints_bound", v.To, link.XDPGenericMode); !errors.Is(err, unix.EINVAL) {
		t.Errorf("generic: %v", err)
	}
	if err := r.tryAttach(t, "hints_bound", v.From, link.XDPDriverMode); !errors.Is(err, unix.EINVAL) {
		t.Errorf("another device: %v", err)
	}
	err := v.Do(func() error {
		spec, err := hintstest.Load()
		if err != nil {
			return err
		}
		one := &ebpf.CollectionSpec{Maps: spec.Maps, Programs: map[string]*ebpf.ProgramSpec{"hints_bound": spec.Programs["hints_bound"]}, Types: spec.Types, Variables: spec.Variables, ByteOrder: spec.ByteOrder}
		coll, err := ebpf.NewCollection(one)
		if err == nil {
			coll.Close()
		}
		return err
	})
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("calls of the driver in a program that is bound to none: %v", err)
	}
}
