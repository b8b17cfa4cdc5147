package capture

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// asFrame is what a ring would make of a test frame.
func asFrame(f packet.Frame) frame {
	got := frame{data: f.Data, length: len(f.Data), gso: gso{size: int(f.GSO.Size)}}
	if f.L3 {
		got.link = linkNone
	}
	if f.Tag != nil {
		got.tagged, got.tci, got.outside = true, f.Tag.TCI, tagLen
	}
	return got
}

func config(t packet.Tunnels) Config {
	cfg := Default()
	for tunnel := range flow.Tunnel(8) {
		if t.Has(tunnel) {
			cfg.Tunnels = append(cfg.Tunnels, tunnel)
		}
	}
	return cfg
}

// flows drains a table, in the order of the keys.
func (m *meter) flows() []flow.Delta {
	var got []flow.Delta
	m.table.drain(func(d *flow.Delta) { got = append(got, *d) })
	slices.SortFunc(got, byKey)
	return got
}

func byKey(a, b flow.Delta) int { return cmp.Compare(fmt.Sprint(a.Key), fmt.Sprint(b.Key)) }

// amounts are the totals by reason over all places.
func (m *meter) amounts() map[string]packet.Amount {
	got := map[string]packet.Amount{}
	for _, u := range m.uncounted(counted, reasons) {
		a := got[u.Reason]
		got[u.Reason] = packet.Amount{Packets: a.Packets + u.Packets, Bytes: a.Bytes + u.Bytes}
	}
	return got
}

func checkCase(t *testing.T, c packet.Case) {
	m := newMeter(config(c.Tunnels), rand.Uint32)
	for _, f := range c.Frames {
		frame := asFrame(f)
		m.add(&frame, place{}, 0)
	}
	want := slices.SortedFunc(slices.Values(c.Flows), byKey)
	if diff := gocmp.Diff(want, m.flows()); diff != "" {
		t.Errorf("%s: flows (-want +got):\n%s", c.Name, diff)
	}
	if got := m.amounts(); !maps.Equal(got, c.Uncounted) {
		t.Errorf("%s: reasons: got %v, want %v", c.Name, got, c.Uncounted)
	}
}

// TestCases: every packet of the table, whole and cut at every length, gives
// the flow or the reason that the table tells.
func TestCases(t *testing.T) {
	for _, c := range packet.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			checkCase(t, c)
			for _, cut := range packet.Truncations(c) {
				checkCase(t, cut)
			}
		})
	}
}

// A packet of which only a part was captured is counted as if whole, as long
// as its headers are there; else it is truncated, never something else.
func TestShortCapture(t *testing.T) {
	for _, c := range packet.Cases() {
		if len(c.Frames) != 1 || len(c.Flows) != 1 || c.Tunnels != 0 {
			continue
		}
		first := 0
		if c.Frames[0].GSO.Size > 0 { // of a burst in a tunnel the inner headers are needed, too
			first = 200
		}
		for n := first; n < min(4096, len(c.Frames[0].Data)); n++ {
			m := newMeter(Default(), rand.Uint32)
			f := asFrame(c.Frames[0])
			f.data = f.data[:n]
			m.add(&f, place{}, 0)
			if got := m.flows(); len(got) == 0 {
				if m.amounts()[packet.ReasonTruncated].Packets != 1 {
					t.Errorf("%s, %d bytes captured: %v", c.Name, n, m.amounts())
				}
			} else if !slices.Equal(got, c.Flows) {
				t.Errorf("%s, %d bytes captured (-want +got):\n%s", c.Name, n, gocmp.Diff(c.Flows, got))
			}
		}
	}
}

// Whatever a frame holds, it is counted once, in a flow or by a reason, and the
// lengths of a flow fit into each other.
func TestEveryFrameIsCountedOnce(t *testing.T) {
	for _, tunnels := range []packet.Tunnels{0, packet.AllTunnels} {
		rapid.Check(t, func(t *rapid.T) {
			data := packet.Random().Draw(t, "frame")
			f := frame{data: data, length: len(data)}
			if rapid.Bool().Draw(t, "no link header") {
				f.link, f.data = linkNone, data[min(14, len(data)):]
				f.length = len(f.data)
			}
			m := newMeter(config(tunnels), rand.Uint32)
			checkOnce(t, m, &f)
		})
	}
}

func checkOnce(t interface {
	Helper()
	Errorf(string, ...any)
}, m *meter, f *frame,
) {
	t.Helper()
	m.add(f, place{}, 1)
	var frames, size uint64
	for _, d := range m.flows() {
		frames += d.Frames
		size += d.FrameBytes
		if d.PayloadBytes > d.Bytes || d.Bytes > d.WireBytes || d.Packets != 1 || d.TTLMin != d.TTLMax {
			t.Errorf("impossible flow %+v", d)
		}
		if d.DstPort != 0 && d.Fragments == 0 && d.Bytes-d.PayloadBytes < 24 {
			t.Errorf("ports without room for them: %+v", d)
		}
	}
	for _, u := range m.uncounted(counted, firstCounted) {
		frames += u.Frames
		size += u.Bytes
	}
	if frames != 1 || size != uint64(f.length) {
		t.Errorf("%d frames of %d bytes counted, want 1 of %d", frames, size, f.length)
	}
}

func FuzzDissect(f *testing.F) {
	for _, c := range packet.Cases() {
		for _, fr := range c.Frames {
			f.Add(fr.Data, len(fr.Data), uint8(linkEthernet), uint16(fr.GSO.Size), uint8(allTunnels))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, length int, l uint8, size uint16, tunnels uint8) {
		if length < len(data) || length > 1<<20 {
			length = len(data)
		}
		fr := frame{data: data, length: length, link: link(l % 3), etherType: typeIPv6, gso: gso{size: int(size)}}
		m := newMeter(Default(), rand.Uint32)
		m.tunnels = tunnelSet(tunnels)
		m.add(&fr, place{}, 1)
		var frames uint64
		for _, d := range m.flows() {
			frames += d.Frames
			if d.Packets == 0 || d.PayloadBytes > d.Bytes || d.Bytes > d.WireBytes {
				t.Errorf("impossible flow %+v", d)
			}
		}
		for _, u := range m.uncounted(counted, firstCounted) {
			frames += u.Frames
		}
		if frames != 1 {
			t.Errorf("%d frames counted, want 1", frames)
		}
	})
}

// Counting packets of flows that are known makes no garbage.
func TestNoAllocation(t *testing.T) {
	m := newMeter(config(packet.AllTunnels), rand.Uint32)
	var frames []frame
	for _, c := range packet.Cases() {
		for _, f := range c.Frames {
			frames = append(frames, asFrame(f))
		}
	}
	all := func() {
		for i := range frames {
			m.add(&frames[i], place{}, 1)
		}
	}
	all()
	if n := testing.AllocsPerRun(10, all); n > 0 {
		t.Errorf("%v allocations in %d frames", n, len(frames))
	}
}
