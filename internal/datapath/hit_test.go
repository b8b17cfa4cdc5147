package datapath

import (
	"errors"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath/parsetest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// hitter counts a packet in one go where that is possible, as the probe does.
type hitter struct {
	d         *Datapath
	hit, rest *ebpf.Program // hit is nil: all packets take the way through all stages
	hits      int
}

func newHitter(t *testing.T, hits bool) *hitter {
	d := load(t, Config{MaxEntries: 4096})
	rest, err := d.Beside(loadIngress, func(spec *ebpf.CollectionSpec) error {
		return spec.Variables["cfg_all_stages"].Set(true)
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(rest.Close)
	h := &hitter{d: d, rest: rest.Programs["waymark_ingress"]}
	if hits {
		hit, err := d.Beside(parsetest.Load, nil)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		t.Cleanup(hit.Close)
		h.hit = hit.Programs["test_hit"]
	}
	return h
}

// onOneProcessor keeps the calling goroutine on a processor until back is called:
// flows that are in two parts of the table have two first packets.
func onOneProcessor(t rapid.TB) (back func()) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	one.Set(0)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
		t.Fatalf("moving to processor 0: %v", err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil { // else the thread ends with its goroutine
			runtime.UnlockOSThread()
		}
	}
}

func (h *hitter) send(t rapid.TB, f packet.Frame) {
	ctx := skb{GSOSegs: uint32(f.GSO.Segments), GSOSize: uint32(f.GSO.Size)}
	for _, p := range []*ebpf.Program{h.hit, h.rest} {
		if p == nil {
			continue
		}
		verdict, err := p.Run(&ebpf.RunOptions{Data: f.Data, Context: &ctx})
		if err != nil {
			t.Fatalf("running %d octets: %v", len(f.Data), err)
		}
		if p == h.hit && verdict == 1 {
			h.hits++
			return
		}
	}
}

// TestHitsAgree: what is counted in one go gives the same flows as the way
// through all stages, whatever packets are around it.
func TestHitsAgree(t *testing.T) {
	var frames []packet.Frame
	for _, c := range packet.Cases() {
		for _, f := range c.Frames {
			if !f.L3 && testRunnable(f) == "" {
				frames = append(frames, f)
			}
		}
	}
	a, b := newHitter(t, true), newHitter(t, false)
	random := packet.Random()
	rapid.Check(t, func(rt *rapid.T) {
		defer onOneProcessor(rt)()
		for range 40 {
			f := packet.Frame{Data: random.Draw(rt, "random")}
			if testRunnable(f) != "" || rapid.Bool().Draw(rt, "from the table") {
				f = rapid.SampledFrom(frames).Draw(rt, "frame")
			}
			for range rapid.IntRange(1, 4).Draw(rt, "times") {
				a.send(rt, f)
				b.send(rt, f)
			}
		}
		// Two flows of the kernel, with a tag of VLAN 0 and without, may be one here,
		// whose first packet is that of either.
		first := cmpopts.IgnoreFields(flow.Counts{}, "TOS", "FlowLabel")
		if diff := cmp.Diff(counted(t, b.d), counted(t, a.d), anyOrder, first); diff != "" {
			rt.Fatalf("flows (-all stages +in one go):\n%s", diff)
		}
	})
	if a.hits < 300 {
		t.Errorf("%d packets were counted in one go", a.hits)
	}
	t.Logf("%d packets were counted in one go", a.hits)
}

// A packet like the last one of its flow is counted in one go.
func TestCommonPacketsHit(t *testing.T) {
	defer onOneProcessor(t)()
	v4, v6 := packet.Eth().IPv4("10.0.0.1", "192.0.2.1"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	for name, f := range map[string][]byte{
		"IPv4/UDP": v4.UDP(1, 53).Payload(10).Bytes(),
		"IPv4/TCP": v4.TCP(1, 443).Flags(packet.ACK).Payload(10).Bytes(),
		"IPv6/UDP": v6.UDP(1, 53).Payload(10).Bytes(),
		"IPv6/TCP": v6.TCP(1, 443).Flags(packet.ACK).Payload(10).Bytes(),
	} {
		h := newHitter(t, true) // no other flow has the place
		for range 100 {
			h.send(t, packet.Frame{Data: f})
		}
		if h.hits != 99 {
			t.Errorf("%s: %d of 99 packets were counted in one go", name, h.hits)
		}
	}
}
