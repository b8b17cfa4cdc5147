package pdm

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

// markingHost is a host of a lab whose packets are marked, with room for it.
type markingHost struct {
	*lab.Host
	*datapath.Datapath
	marker *Marker
	index  int

	start  netlink.LinkStatistics // of the interface, when it was attached
	counts map[flow.Direction]flow.Counts
	pdm    map[flow.Direction]*flow.PDM
	passed map[flow.Direction]map[string]uint64 // packets passed over, by reason
	whole  bool                                 // bursts travel whole, as far as the interface sees
	base   [2][2]uint64                         // what tally had at the start
}

// mark attaches a probe that marks to a host's first interface.
func mark(t testing.TB, h *lab.Host, cfg Config, mode headroom.Mode, policies ...policy.Policy) *markingHost {
	t.Helper()
	b := load(t, cfg)
	m := &markingHost{
		Host: h, Datapath: b.Datapath, marker: b.pdm,
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
	keeper := headroom.New(headroom.Config{File: t.TempDir() + "/room.json"},
		headroom.Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
	if err := keeper.Reserve(headroom.Link{Netns: h.Netns, Name: name, Index: m.index},
		headroom.Need{Mode: mode, Bytes: pdm.HeaderSize, Packets: cfg.Packets}); err != nil {
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
	if err := m.marker.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	iface := flow.NewIface(0, uint32(m.index))
	if _, err := m.Attach(datapath.Target{Iface: iface, Name: name, Do: h.Do}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Detach(iface); err != nil {
			t.Error(err)
		}
	})
	m.begin(t)
	return m
}

// begin notes what the interface and the probe have counted, at a moment when
// neither counts.
func (m *markingHost) begin(t testing.TB) {
	t.Helper()
	await.True(t, "a silent interface", func() bool {
		before := m.statistics(t)
		m.drain(t)
		m.counts = map[flow.Direction]flow.Counts{}
		for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
			m.base[d][0], m.base[d][1] = 0, 0
			m.base[d][0], m.base[d][1] = m.tally(t, d)
		}
		m.start = m.statistics(t)
		return m.start == before
	})
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
	passed, err := m.marker.Passed()
	if err != nil {
		t.Fatal(err)
	}
	m.passed = map[flow.Direction]map[string]uint64{flow.Ingress: {}, flow.Egress: {}}
	for _, p := range passed {
		m.passed[p.Direction][p.Reason] += p.Packets
	}
}

// know lets a UDP service be known to take marked packets, permanently.
func (m *markingHost) know(t testing.TB, to netip.Addr, port uint16) {
	t.Helper()
	if err := m.marker.maps["mark_paths"].Put(serviceKey(to, packet.ProtoUDP, port), &abiMarkPath{Passed: math.MaxInt64}); err != nil {
		t.Fatal(err)
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
// byte: records tell what is on the wire, marks included. It restarts then.
func (m *markingHost) settle(t testing.TB) {
	t.Helper()
	await.Success(t, func() error {
		m.drain(t)
		now := m.statistics(t)
		var got [4]uint64
		got[0], got[1] = m.tally(t, flow.Ingress)
		got[2], got[3] = m.tally(t, flow.Egress)
		want := [4]uint64{
			now.RxPackets - m.start.RxPackets, now.RxBytes - m.start.RxBytes,
			now.TxPackets - m.start.TxPackets, now.TxBytes - m.start.TxBytes,
		}
		if got != want {
			return fmt.Errorf("%s counted %d, its interface %d (packets and bytes in, packets and bytes out)", m.Name, got, want)
		}
		return nil
	})
}

// unmarked are packets that left without a mark, by reason.
func (m *markingHost) unmarked() map[string]uint64 { return m.passed[flow.Egress] }

// unread are packets that came with a mark that was not read, by reason.
func (m *markingHost) unread() map[string]uint64 { return m.passed[flow.Ingress] }

func (m *markingHost) reported(d flow.Direction) flow.PDM {
	if p := m.pdm[d]; p != nil {
		return *p
	}
	return flow.PDM{}
}
