package forward

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/packet"
)

// counted is what a record says of a flow, or of packets without one, that depends on no clock.
type counted struct {
	flow.Counters
	frames, frameBytes uint64
	ttlMin, ttlMax     uint8
	tcpFlags           uint16
	opening            flow.Opening
}

// by is which flow it is. Interfaces are those of twinPort.
type by struct {
	flow.Key
	port string
}

// watched counts flows of a twin at its interfaces.
type watched struct {
	*twin
	*datapath.Datapath
	ports map[flow.Iface]string
}

// watch attaches to all interfaces, with more stages.
func (tw *twin) watch(t *testing.T, cfg datapath.Config) *watched {
	t.Helper()
	w := &watched{tw, datapath.New(cfg, slog.New(slog.DiscardHandler)), map[flow.Iface]string{}}
	if err := w.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(w.Close)
	for _, name := range twinPort {
		var index int
		if err := tw.router.Do(func() error {
			l, err := net.InterfaceByName(name)
			if err == nil {
				index = l.Index
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		iface := flow.NewIface(0, uint32(index))
		w.ports[iface] = name
		if _, err := w.Attach(datapath.Target{Iface: iface, Name: name, Do: tw.router.Do}); err != nil {
			t.Fatalf("%+v", err)
		}
	}
	return w
}

// flows adds what was counted since the last time. Packets that the router itself sent or got are left out.
func (w *watched) flows(t *testing.T, all map[by]counted, forwarded map[string]uint64) (unattributed uint64) {
	t.Helper()
	if err := w.Drain(func(d *flow.Delta) {
		if d.Unattributed {
			unattributed += d.Packets
		}
		if d.Forwarded > 0 && !d.Unattributed && (w.ports[d.Other] == "" || d.Other == d.Iface) {
			t.Errorf("the other interface of %+v is not known", d)
		}
		forwarded[fmt.Sprint(w.ports[d.Iface], d.Direction)] += d.Forwarded
		if a := netip.AddrFrom16(d.Src).Unmap(); own4.Contains(a) || own6.Contains(a) || a.IsLinkLocalUnicast() || a.IsUnspecified() && !d.Unattributed {
			return
		}
		k := by{d.Key, w.ports[d.Iface]}
		k.Iface = 0
		c, known := all[k]
		counters := d.Counters
		counters.Forwarded = 0
		c.Add(&counters)
		c.frames, c.frameBytes = c.frames+d.Frames, c.frameBytes+d.FrameBytes
		if c.ttlMin, c.ttlMax = min(c.ttlMin, d.TTLMin), max(c.ttlMax, d.TTLMax); !known {
			c.ttlMin, c.ttlMax = d.TTLMin, d.TTLMax
		}
		c.tcpFlags, c.opening = c.tcpFlags|d.TCPFlags, c.opening|d.Opening
		all[k] = c
	}); err != nil {
		t.Fatal(err)
	}
	return unattributed
}

// TestRecords: what records of all interfaces say of packets is the same whether XDP forwards them, where one slot is that of
// two flows, or the kernel, where tc counts each.
func TestRecords(t *testing.T) {
	ours, kernels := newTwin(t, scenes[0]), newTwin(t, scenes[0])
	h := *ours.router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	r := newRouter(t, &h, Config{})
	follow(t, r)
	one, other := &watched{ours, r.dp, map[flow.Iface]string{}}, kernels.watch(t, datapath.Config{MaxEntries: 1 << 14, RingSize: 1 << 20})
	for n, iface := range r.ifaces {
		one.ports[iface] = twinPort[n]
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 2))
	got, want, forwarded, none := map[by]counted{}, map[by]counted{}, map[string]uint64{}, map[string]uint64{}
	for range 20 {
		var frames [][]byte
		for range 200 {
			frames = append(frames, scenes[0].randomFrame(random))
		}
		frames = append(frames, scenes[0].last(0), scenes[0].last(1))
		for _, tw := range []*twin{ours, kernels} {
			if err := tw.sender.Send(frames...); err != nil {
				t.Fatal(err)
			}
			tw.left(t)
		}
		if n := one.flows(t, got, forwarded) + other.flows(t, want, none); n > 0 {
			t.Fatalf("%d packets are in no flow", n)
		}
	}
	in, out := forwarded["iningress"], forwarded["out0egress"]+forwarded["out1egress"]
	if in != out || in < 200 || len(none) > 0 && none["iningress"] > 0 {
		t.Errorf("XDP forwarded %v, and at the kernel's twin %v", forwarded, none)
	}
	var differ []string
	for k := range want {
		if got[k] != want[k] {
			differ = append(differ, fmt.Sprintf("%+v:\n%+v, want\n%+v", k, got[k], want[k]))
		}
	}
	for k := range got {
		if _, is := want[k]; !is {
			differ = append(differ, fmt.Sprintf("%+v: %+v is of no packet", k, got[k]))
		}
	}
	if len(differ) > 0 {
		slices.Sort(differ)
		t.Errorf("seed %d: %d flows differ, of %d; such as\n%s", seed, len(differ), len(want), differ[0])
	}
}

// TestRecordsWithoutSpace: where neither flow table nor ring have space, sums count forwarded packets at both interfaces.
func TestRecordsWithoutSpace(t *testing.T) {
	tw := newTwin(t, scenes[0])
	log := slog.New(slog.DiscardHandler)
	f := New(Config{Hints: true}, log)
	w := tw.watch(t, datapath.Config{MaxEntries: 8, RingSize: 4096, Stages: []*datapath.Stage{
		service.NewReader(&service.Config{Use: "auto"}, log).Stage(), f.Stage(func(string) bool { return true }),
	}})
	follow(t, &router{Forwarder: f, dp: w.Datapath})
	const flows, length, pad = 150, 60, 5
	var frames [][]byte
	for i := range flows {
		frame := packet.Eth().IPv4("192.0.2.1", "198.51.100.1").UDP(uint16(1+i), 53).Payload(length - 14 - 28).Bytes()
		frames = append(frames, toRouter(append(frame, make([]byte, pad)...)))
	}
	if err := w.sender.Send(append(frames, scenes[0].last(0), scenes[0].last(1))...); err != nil {
		t.Fatal(err)
	}
	w.left(t)
	all := map[by]counted{}
	if n := w.flows(t, all, map[string]uint64{}); n < flows {
		t.Errorf("%d packets are in sums", n)
	}
	sums := map[string]flow.Counters{}
	for k, c := range all {
		if k.Proto == packet.ProtoUDP && k.DstPort != lastPort {
			one := sums[k.port+" "+k.Direction.String()]
			one.Add(&c.Counters)
			sums[k.port+" "+k.Direction.String()] = one
		}
	}
	in, out := sums["in ingress"], sums["out0 egress"]
	// The last packets may be in sums or not.
	if in.Packets < flows || in.Packets > flows+2 || out.Packets < flows || out.Packets > flows+1 || in.WireBytes < flows*(length+pad) || out.WireBytes < flows*length || out.WireBytes > (flows+1)*length {
		t.Errorf("%+v at ingress, %+v at egress", in, out)
	}
}
