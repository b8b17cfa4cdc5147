package service

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/tap"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// TestTapLayout: package tap reads what the program writes, member by member.
func TestTapLayout(t *testing.T) {
	m := abiHintsMeta{
		Time: 1<<40 + 1, Hash: 0x01020304, VlanProto: 0x0081, VlanTci: 42, Source: [3]uint8{1, 2, 3}, HashL4: true,
		Verdict: uint8(abiHintsVerdictHINTS_TAPPED), Version: uint32(abiHintsVersionHINTS_META_1),
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m))
	want := tap.Metadata{
		Time: 1<<40 + 1, Hash: 0x01020304, HashL4: true, VLANProto: 0x8100, VLANTCI: 42,
		TimeSource: tap.Hardware, HashSource: tap.Driver, VLANSource: tap.Computed, Verdict: tap.Tapped,
	}
	if got, ok := tap.ParseMetadata(b); !ok || got != want || len(b) != tap.MetadataSize {
		t.Errorf("%+v, %t, of %d bytes; want %+v", got, ok, len(b), want)
	}
	m.Version++
	if _, ok := tap.ParseMetadata(b); ok {
		t.Error("another version is read")
	}
}

// tapped is an interface with a rule that selects UDP, and what takes it.
type tapped struct {
	*taker
	*tap.Tap
}

func newTapped(t *testing.T, buffers int) *tapped {
	t.Helper()
	if !kernel.TCX.Has() {
		t.Skip("programs at tc are attached by TCX here: Linux 6.6")
	}
	v := datapathtest.NewVeth(t)
	if err := v.Do(func() error {
		to, err := netlink.LinkByName("to")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(to, 9000)
	}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Use: "auto", Metadata: []string{"to"}, MetadataTime: true, Sockets: socketsTapped}
	k := newTaker(t, v, cfg, "to", v.To, "tap udp dst port 2000\ncount icmp", gate.Config{Mode: gate.ModeNative, Tables: gate.Default().Tables, Sources: 64})
	k.attachTC(t, "hints_tc_meta", k.To, ebpf.AttachTCXIngress)
	out := &tapped{taker: k}
	out.open(t, buffers)
	return out
}

func (k *tapped) open(t *testing.T, buffers int) {
	t.Helper()
	p := k.status(t)
	if !p.Tapped {
		t.Fatalf("%+v", p)
	}
	if err := k.taker.Do(func() (err error) {
		k.Tap, err = tap.Open(tap.Config{Interface: "to", SocketMap: p.SocketMap, QueueMap: p.QueueMap, FirstQueue: p.FirstQueue, Buffers: buffers})
		return err
	}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { k.Close() })
}

var errDone = errors.New("all that was awaited is there")

// take receives so many frames.
func (k *tapped) take(t *testing.T, n int) (frames []tap.Frame) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	err := k.Receive(ctx, func(f *tap.Frame) error {
		one := *f
		one.Data = bytes.Clone(f.Data)
		if frames = append(frames, one); len(frames) == n {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Fatalf("%d of %d frames: %v", len(frames), n, err)
	}
	return frames
}

func (k *tapped) stats(t *testing.T) tap.Stats {
	t.Helper()
	all, err := k.Stats()
	if err != nil || len(all) == 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// onward sends a frame that has to reach tc.
func (k *tapped) onward(t *testing.T, frame []byte) {
	t.Helper()
	k.Send(t, frame)
	if l := k.left(t); l.Found != 1 || l.Meta.Verdict == uint8(abiHintsVerdictHINTS_TAPPED) {
		t.Errorf("at tc: %+v", l)
	}
}

// TestTap: what a tap rule selects comes to the tap, with its metadata, also frames of several buffers; all else goes on, and so
// does everything once the tap is closed.
func TestTap(t *testing.T) {
	k := newTapped(t, 64)
	jumbo := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1000, 2000).Payload(8000).Bytes()
	k.onward(t, icmp)
	k.Send(t, frame)
	k.Send(t, jumbo)
	got := k.take(t, 2)
	for i, want := range [][]byte{frame, jumbo} {
		if f := got[i]; !bytes.Equal(f.Data, want) || !f.Known || f.Verdict != tap.Tapped || f.TimeSource == tap.Absent || f.Time == 0 || f.Time > now(t) || f.Hash == 0 {
			t.Errorf("frame %d: %d bytes, %+v", i, len(f.Data), f.Metadata)
		}
	}
	if s := k.stats(t); !s.Parts || s.ZeroCopy || s.Dropped != 0 || s.Full != 0 || s.Buffers < 4 {
		t.Errorf("%+v", s)
	}
	if got := k.uncounted(t); got["af_xdp"] != 2 {
		t.Errorf("in no flow: %v", got)
	}
	c, err := k.gate.Counters()
	if err != nil || c.Rules[0].Packets != 2 || c.Rules[0].Dropped != 0 {
		t.Errorf("%+v, %v", c.Rules, err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	k.onward(t, frame)
}

// TestTapFull: what finds no space goes on, and nothing is lost; space that is given back is used again. Nobody else can take
// the place of a tap.
func TestTapFull(t *testing.T) {
	const space, more = 64, 7
	k := newTapped(t, space)
	for range 2 {
		for range space {
			k.Send(t, frame)
		}
		before := k.stats(t).Full
		for range more {
			k.onward(t, frame)
		}
		if s := k.stats(t); s.Full-before != more || s.Dropped != 0 || s.RingFull != 0 || s.FillEmpty != 0 {
			t.Errorf("%+v", s)
		}
		k.take(t, space)
	}
	p := k.status(t)
	if err := k.taker.Do(func() error {
		_, err := tap.Open(tap.Config{Interface: "to", SocketMap: p.SocketMap, QueueMap: p.QueueMap, FirstQueue: p.FirstQueue, Buffers: space})
		return err
	}); err == nil {
		t.Error("two take the packets of one queue")
	}
	k.Send(t, frame)
	k.take(t, 1)
}
