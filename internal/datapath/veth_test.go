package datapath

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/packet"
)

// silentVeth is a veth pair in a namespace of its own that carries nothing but
// what a test sends: no IPv6, no addresses.
type silentVeth struct {
	netns    string
	from, to int // ifindex
	socket   int // packet socket on from
}

func newSilentVeth(t testing.TB) *silentVeth {
	t.Helper()
	v := &silentVeth{netns: fmt.Sprintf("wmdp%d-%d", os.Getpid(), time.Now().UnixNano()%1e6), socket: -1}
	if err := lab.AddNetns(v.netns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v.socket >= 0 {
			_ = unix.Close(v.socket)
		}
		if err := lab.DeleteNetns(v.netns); err != nil {
			t.Error(err)
		}
	})
	if err := v.do(v.build); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *silentVeth) do(f func() error) error { return topology.InNetns(v.netns, f) }

func (v *silentVeth) build() error {
	for _, which := range []string{"default", "all"} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", which, "disable_ipv6"), []byte("1"), 0); err != nil {
			return err
		}
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "from", MTU: 9000}, PeerName: "to"}
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	for name, index := range map[string]*int{"from": &v.from, "to": &v.to} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		*index = l.Attrs().Index
		if err := netlink.LinkSetMTU(l, 9000); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	var err error
	v.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	return err
}

func (v *silentVeth) send(t *testing.T, frame []byte) {
	t.Helper()
	if err := unix.Sendto(v.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: v.from}); err != nil {
		t.Fatalf("sending %d octets: %v", len(frame), err)
	}
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
			deadline := time.Now().Add(5 * time.Second)
			for seen < 2*uint64(len(c.Frames)) && time.Now().Before(deadline) {
				got, seen = v.drain(t, d, got, c)
			}
			for _, direction := range []flow.Direction{flow.Ingress, flow.Egress} {
				if diff := cmp.Diff(onlyWire(c.Flows), onlyWire(got[direction]), anyOrder); diff != "" {
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
	uncounted, err := d.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	incomplete, err := d.Incomplete()
	if err != nil {
		t.Fatal(err)
	}
	now, diff := map[string]packet.Amount{}, map[string]uint64{}
	for _, u := range slices.Concat(uncounted, incomplete) {
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
