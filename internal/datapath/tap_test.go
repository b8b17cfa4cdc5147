package datapath

import (
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/packet"
)

// tap is what a virtual machine is connected to. What is written to it arrives at
// the interface, GSO frames with a type, but without gso_segs.
type tap struct {
	host  *lab.Host
	file  *os.File
	index int
	uso   bool // it takes virtioUDP: Linux 6.2
}

// Types of GSO, of struct virtio_net_hdr.
const (
	virtioTCPv4 = 1
	virtioUFO   = 3
	virtioTCPv6 = 4
	virtioUDP   = 5
)

func newTap(t testing.TB) *tap {
	t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("no tap devices in this kernel")
	}
	v := &tap{host: labtest.NewHost(t)}
	t.Cleanup(func() {
		if v.file != nil {
			v.file.Close()
		}
	})
	link := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR, Queues: 1, NonPersist: true,
	}
	if err := v.do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		l, err := netlink.LinkByName("tap0")
		if err != nil {
			return err
		}
		v.file, v.index = link.Fds[0], l.Attrs().Index
		return errors.Join(netlink.LinkSetARPOff(l), netlink.LinkSetUp(l))
	}); err != nil {
		t.Fatal(err)
	}
	sample := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Payload(200).Bytes()
	v.uso = v.write(sample, virtioUDP, 100, 34) == nil
	return v
}

func (v *tap) do(f func() error) error { return v.host.Do(f) }

// write sends a frame with the header that a virtual machine puts before it.
func (v *tap) write(data []byte, kind uint8, size, transportAt int) error {
	const needsChecksum = 1
	sum := uint16(16)
	if kind == virtioUDP || kind == virtioUFO {
		sum = 6
	}
	head := []byte{needsChecksum, kind}
	for _, v := range []int{transportAt, size, transportAt, int(sum)} {
		head = binary.NativeEndian.AppendUint16(head, uint16(v))
	}
	_, err := v.file.Write(slices.Concat(head, data))
	return err
}

func (v *tap) send(t testing.TB, data []byte, kind uint8, size, transportAt int) {
	t.Helper()
	if err := v.write(data, kind, size, transportAt); err != nil {
		t.Fatalf("writing a frame of %d bytes, kind %d, segments of %d: %v", len(data), kind, size, err)
	}
}

// tapProbes are the probe as it is, the probe that looks into tunnels, and the
// one on packet sockets, all on a tap.
func (v *tap) probes(t testing.TB, tunnels []flow.Tunnel) map[string]flow.Probe {
	t.Helper()
	out := map[string]flow.Probe{}
	iface := flow.NewIface(0, uint32(v.index))
	for name, walk := range map[string]bool{"asks the kernel": false, "walks": true} {
		d := load(t, Config{MaxEntries: 4096, Tunnels: tunnels, WalkOnly: walk})
		if _, err := d.Attach(Target{Iface: iface, Name: "tap0", Do: v.do}); err != nil {
			t.Fatal(err)
		}
		out[name] = d
	}
	c := capture.New(capture.Config{MaxEntries: 4096, RingSize: 4 << 20, Tunnels: tunnels}, capture.Deps{})
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Attach(capture.Target{Iface: iface, Name: "tap0", Do: v.do}); err != nil {
		t.Fatal(err)
	}
	out["packet socket"] = c
	return out
}

// drainUntil waits until a probe has counted so many packets.
func drainUntil(t testing.TB, p flow.Probe, packets uint64, reported map[string]uint64) (map[flow.Key]flow.Counts, map[string]uint64) {
	t.Helper()
	counts := map[flow.Key]flow.Counts{}
	for deadline := time.Now().Add(time.Minute); ; {
		if err := p.Drain(func(d *flow.Delta) { sum(counts, d) }); err != nil {
			t.Fatal(err)
		}
		list, err := p.Uncounted()
		if err != nil {
			t.Fatal(err)
		}
		reasons := map[string]uint64{}
		for _, u := range list {
			reasons[strings.ToLower(u.Reason)] += u.Packets
		}
		maps.DeleteFunc(reasons, func(reason string, n uint64) bool { return n == reported[reason] })
		for reason := range reasons {
			reasons[reason] -= reported[reason]
		}
		if total(counts, reasons) >= packets || time.Now().After(deadline) {
			for reason, n := range reasons {
				reported[reason] += n
			}
			return counts, reasons
		}
	}
}

// What a virtual machine sends in bursts is counted as its segments by every
// probe, with any headers and tunnels, whichever flow of them is recorded.
func TestTapBursts(t *testing.T) {
	for _, tunnels := range [][]flow.Tunnel{nil, {flow.TunnelVXLAN, flow.TunnelGeneve, flow.TunnelGRE, flow.TunnelIPIP}} {
		v := newTap(t)
		probes := v.probes(t, tunnels)
		reported := map[string]map[string]uint64{}
		reference := load(t, Config{MaxEntries: 4096, Tunnels: tunnels})
		p := loaded(t, reference, Ingress)
		bursts := rapid.SliceOfN(packet.RandomBurst(), 5, 30)
		rapid.Check(t, func(rt *rapid.T) {
			want := map[flow.Key]flow.Counts{}
			packets := 0
			undo := datapathtest.OnOneProcessor(t)
			for _, b := range bursts.Draw(rt, "bursts") {
				kind := uint8(virtioUDP)
				if b.TCP {
					kind = virtioTCPv4
				} else if !v.uso {
					continue
				}
				v.send(t, b.Frame.Data, kind, int(b.Frame.GSO.Size), b.TransportAt)
				for _, s := range b.Segments {
					run(t, p, packet.Frame{Data: s})
					packets++
				}
			}
			fillBatches(t, reference)
			for _, d := range counted(t, reference) {
				d.Iface = flow.NewIface(0, uint32(v.index))
				sum(want, &d)
			}
			undo()
			for name, probe := range probes {
				if reported[name] == nil {
					reported[name] = map[string]uint64{}
				}
				got, reasons := drainUntil(t, probe, uint64(packets), reported[name])
				if diff := diffTimeless(want, got); diff != "" || len(reasons) > 0 {
					rt.Fatalf("%s (-segments +burst):\n%s\nnot counted: %v", name, diff, reasons)
				}
			}
		})
	}
}

// What only the type of GSO tells: UFO, which leaves as IP fragments. And false
// lengths: all segments are malformed.
func TestTapKinds(t *testing.T) {
	v := newTap(t)
	probes := v.probes(t, nil)
	delete(probes, "packet socket") // gets no UFO: the kernel has no type for its header any more
	reported := map[string]map[string]uint64{"asks the kernel": {}, "walks": {}}

	eth4 := packet.Eth().IPv4("192.0.2.1", "192.0.2.2")
	eth6 := packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	for _, c := range []struct {
		name          string
		frame         packet.Builder
		kind          uint8
		size, at      int
		want          flow.Counts
		malformed     uint64
		alsoByWalking bool
	}{
		{
			name: "ufo ipv4", frame: eth4.UDP(1, 2).Payload(14804), kind: virtioUFO, size: 1480, at: 34,
			want: flow.Counts{Counters: flow.Counters{Packets: 11, Fragments: 11, Bytes: 11*20 + 8 + 14804, WireBytes: 11*34 + 8 + 14804, PayloadBytes: 14804}},
		},
		{
			name: "ufo ipv6", frame: eth6.UDP(1, 2).Payload(14804), kind: virtioUFO, size: 1448, at: 54,
			want: flow.Counts{Counters: flow.Counters{Packets: 11, Fragments: 11, Bytes: 11*48 + 8 + 14804, WireBytes: 11*62 + 8 + 14804, PayloadBytes: 14804}},
		},
		{
			name: "uso", frame: eth4.UDP(1, 2).Payload(14800), kind: virtioUDP, size: 1480, at: 34, alsoByWalking: true,
			want: flow.Counts{Counters: flow.Counters{Packets: 10, Bytes: 10*28 + 14800, WireBytes: 10*42 + 14800, PayloadBytes: 14800}},
		},
		{
			name: "false length", frame: eth4.TotalLength(9).TCP(1, 2).Payload(14000), kind: virtioTCPv4, size: 1400, at: 34,
			malformed: 10, alsoByWalking: true,
		},
		{
			name: "false length, many headers", frame: eth6.PayloadLength(60000).DestOpts(packet.Option{Type: 1, Data: make([]byte, 100)}).TCP(1, 2).Payload(14000),
			kind: virtioTCPv6, size: 1400, at: 54 + 104, malformed: 10,
		},
	} {
		if c.kind == virtioUDP && !v.uso {
			continue
		}
		v.send(t, c.frame.Bytes(), c.kind, c.size, c.at)
		for name, p := range probes {
			got, reasons := drainUntil(t, p, c.want.Packets+c.malformed, reported[name])
			var all flow.Counts
			for _, counts := range got {
				all.Add(&counts)
			}
			all = flow.Counts{Counters: flow.Counters{Packets: all.Packets, Fragments: all.Fragments, Bytes: all.Bytes, WireBytes: all.WireBytes, PayloadBytes: all.PayloadBytes}}
			if name == "walks" && !c.alsoByWalking {
				continue
			}
			if all != c.want || reasons["malformed"] != c.malformed {
				t.Errorf("%s, probe that %s: got %+v and %v, want %+v and %d malformed", c.name, name, all, reasons, c.want, c.malformed)
			}
		}
	}
}
