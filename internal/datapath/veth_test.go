package datapath

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// silentVeth is a datapathtest.Veth with what these tests ask of it.
type silentVeth struct {
	*datapathtest.Veth
	from, to int // ifindex
}

func newSilentVeth(t testing.TB) *silentVeth {
	t.Helper()
	v := datapathtest.NewVeth(t)
	return &silentVeth{v, v.From, v.To}
}

func (v *silentVeth) do(f func() error) error { return v.Do(f) }

func (v *silentVeth) send(t *testing.T, frame []byte) {
	t.Helper()
	v.Send(t, frame)
}

// inline puts the tag that a case has in its metadata where the wire has it.
func inline(f packet.Frame) []byte {
	if f.Tag == nil {
		return f.Data
	}
	tag := []byte{byte(f.Tag.TPID >> 8), byte(f.Tag.TPID), byte(f.Tag.TCI >> 8), byte(f.Tag.TCI)}
	return slices.Concat(f.Data[:12], tag, f.Data[12:])
}

// onWire are the cases that a packet socket can send.
func onWire() []packet.Case {
	var out []packet.Case
	for i, c := range packet.Cases() {
		list := []packet.Case{c}
		// Cut IP headers are what a test run does not take.
		if i < 6 {
			list = append(list, packet.Truncations(c)...)
		}
		for _, c := range list {
			ok := true
			for _, f := range c.Frames {
				ok = ok && !f.L3 && f.GSO.Segments == 0 && len(f.Data) >= 14 && len(f.Data) <= 9014
				// The kernel itself drops what is cut within the outer tag.
				ok = ok && (len(f.Data) >= 20 || binary.BigEndian.Uint16(f.Data[12:]) != packet.TypeVLAN)
			}
			if ok && c.Tunnels == 0 {
				out = append(out, c)
			}
		}
	}
	return out
}

// TestCasesOnVeth: the same on a real interface, in both directions, where the
// kernel takes outer tags off the frame before ingress.
func TestCasesOnVeth(t *testing.T) {
	v := newSilentVeth(t)
	d := load(t, Config{MaxEntries: 1024})
	for _, index := range []int{v.from, v.to} {
		target := Target{Iface: flow.NewIface(0, uint32(index)), Name: "test", Do: v.do}
		if _, err := d.Attach(target); err != nil {
			t.Fatal(err)
		}
	}
	var reasons [2]reasonCounter
	for _, c := range onWire() {
		forget(t, d.maps["fragments"])
		t.Run(c.Name, func(t *testing.T) {
			for _, f := range c.Frames {
				v.send(t, inline(f))
			}
			got := map[flow.Direction][]flow.Delta{}
			seen := uint64(0)
			deadline := time.Now().Add(time.Minute)
			for seen < 2*uint64(len(c.Frames)) && time.Now().Before(deadline) {
				got, seen = v.drain(t, d, got, c)
			}
			for _, direction := range []flow.Direction{flow.Ingress, flow.Egress} {
				if diff := diffFlows(onlyWire(c.Flows), onlyWire(got[direction])); diff != "" {
					t.Errorf("%v: flows (-want +got):\n%s", direction, diff)
				}
				counts := reasons[direction].direction(t, d, direction)
				want := map[string]uint64{}
				for reason, a := range c.Uncounted {
					want[reason] = a.Packets
				}
				if !maps.Equal(want, counts) {
					t.Errorf("%v: reasons: want %v, got %v", direction, want, counts)
				}
			}
		})
	}
}

// drain adds what came to got, and tells how many frames of c are accounted for.
func (v *silentVeth) drain(t *testing.T, d *Datapath, got map[flow.Direction][]flow.Delta, c packet.Case) (map[flow.Direction][]flow.Delta, uint64) {
	t.Helper()
	if err := d.Drain(func(delta *flow.Delta) { got[delta.Direction] = append(got[delta.Direction], *delta) }); err != nil {
		t.Fatal(err)
	}
	var seen uint64
	for _, list := range got {
		for _, delta := range list {
			seen += delta.Frames
		}
	}
	if len(c.Flows) == 0 { // counted by reason, in the same moment as it was sent
		seen = 2 * uint64(len(c.Frames))
	}
	return got, seen
}

// onlyWire leaves of deltas what does not depend on where the tag was.
func onlyWire(in []flow.Delta) []flow.Delta {
	var out []flow.Delta
	for _, x := range in {
		x.First, x.FirstSpread, x.Last, x.RTT, x.Iface, x.Direction, x.FrameBytes = 0, 0, 0, flow.RTT{}, 0, 0, 0
		out = append(out, x)
	}
	return merged(out)
}

// direction are the packets counted by reason in one direction since last time.
func (c *reasonCounter) direction(t *testing.T, d *Datapath, direction flow.Direction) map[string]uint64 {
	t.Helper()
	now, diff := map[string]packet.Amount{}, map[string]uint64{}
	for _, u := range reasonsOf(t, d) {
		if u.Direction == direction {
			now[u.Reason] = packet.Amount{Packets: u.Packets}
			if n := u.Packets - c.last[u.Reason].Packets; n > 0 {
				diff[strings.ToLower(u.Reason)] = n
			}
		}
	}
	c.last = now
	return diff
}
