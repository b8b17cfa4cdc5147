package ioam

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// bordered is the node of the tests, whose interface from has a role for spaceB only.
func bordered() Node {
	n := node()
	n.Interfaces[0].Role = RoleNone
	n.Interfaces[0].Exceptions = map[uint16]Role{spaceB: RoleBoth}
	return n
}

// crafted is a packet with an option of a namespace somewhere in its headers.
func crafted(r *rand.Rand, namespace uint16) []byte {
	padding := func() packet.Option { return packet.Option{Type: 1, Data: make([]byte, r.IntN(6))} }
	others := func() (list []packet.Option) {
		for range r.IntN(3) {
			list = append(list, packet.Option{Type: 0x1E, Data: make([]byte, r.IntN(20))}, padding())
		}
		return list
	}
	data := make([]byte, 4+r.IntN(60))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	data[0], data[1] = 0, byte(r.IntN(6)) // a kind that nobody knows, too
	binary.BigEndian.PutUint16(data[2:], namespace)
	option := packet.Option{Type: []byte{0x31, 0x11}[r.IntN(2)], Data: data}
	with := append(append(others(), option), others()...)

	b := packet.Eth().IPv6(hostA, hostB)
	for range r.IntN(2) {
		b = packet.Eth().VLAN(uint16(r.IntN(4095))).IPv6(hostA, hostB)
	}
	where := r.IntN(6)
	if where == 0 {
		b = b.HopByHop(with...)
	} else if r.IntN(2) == 0 {
		b = b.HopByHop(others()...)
	}
	for range r.IntN(3) {
		b = b.Routing(hostB)
	}
	switch {
	case where == 1:
		b = b.Fragment(0, true, 7)
	case where == 2:
		b = b.AH(1, 1, 12)
	case r.IntN(3) == 0:
		b = b.DestOpts(others()...)
	}
	if where > 0 {
		b = b.DestOpts(with...)
	}
	return b.UDP(1000, 2000).Payload(r.IntN(40)).Bytes()
}

// Of 10⁵ crafted packets from outside none enters with an option of the domain, whatever its place,
// and each is counted; packets with foreign namespaces stay as they are.
func TestBorder(t *testing.T) {
	const packets = 100_000
	for _, c := range []struct {
		border  Border
		packets int
	}{{BorderDrop, packets}, {BorderStrip, packets / 50}} {
		h := newHost(t, Config{Transit: TransitXDP, Border: c.border}, bordered())
		r := rand.New(rand.NewPCG(3, 4))
		h.inside(t, func() {
			for i := range c.packets {
				frame := crafted(r, []uint16{spaceA, 0}[r.IntN(2)])
				if i%50 == 0 { // what XDP leaves for tc is not run here, but its verdict is counted
					if _, verdict := h.early(t, frame); c.border == BorderDrop && verdict != 2 {
						t.Fatalf("XDP: verdict %d", verdict)
					}
				}
				out, verdict := h.tc(t, "test_in", frame)
				if verdict == verdictDrop {
					continue
				}
				left, err := wire.Find(packetOf(out))
				for _, o := range left {
					if ns, _ := o.Namespace(); ns == spaceA || ns == 0 {
						err = wire.ErrPlace
					}
				}
				if c.border == BorderDrop || err != nil || verdict != verdictPass {
					t.Fatalf("%s: verdict %d, %v\n%x\n%x", c.border, verdict, err, frame, out)
				}
			}
		})
		why := h.reasons(t)
		// Of what is stripped, transit drops what is malformed first.
		counted := why["border_dropped"] + why["border_stripped"] + why["misaligned"] + why["truncated"] + why["node_length"]
		// XDP sees packets with a Hop-by-Hop header, and tc sees all, here these again.
		if counted < uint64(c.packets) || counted > uint64(c.packets)*51/50 || (c.border == BorderStrip) != (why["border_stripped"] > 0) {
			t.Errorf("%s: %d packets, counted %v", c.border, c.packets, why)
		}
		h.inside(t, func() {
			for range 3000 {
				frame := crafted(r, []uint16{unknown, spaceB}[r.IntN(2)])
				if packetOf(frame)[6] == 0 {
					continue // transit has its own checks of what it finds there
				}
				if out, verdict := h.tc(t, "test_in", frame); verdict != verdictPass || !bytes.Equal(out, frame) {
					t.Fatalf("foreign: verdict %d\n%x\n%x", verdict, frame, out)
				}
			}
		})
		if diff := cmp.Diff(why["border_dropped"], h.reasons(t)["border_dropped"]); diff != "" {
			t.Errorf("counts of foreign packets: %s", diff)
		}
		if c.border == BorderStrip {
			h.barsUnread(t)
		}
	}
}

// packetOf is the IPv6 packet in a frame.
func packetOf(frame []byte) []byte {
	at := prefix
	for binary.BigEndian.Uint16(frame[at-2:]) == packet.TypeVLAN {
		at += 4
	}
	return frame[at:]
}

// Headers and options beyond what is read could hide some.
func (h *host) barsUnread(t *testing.T) {
	t.Helper()
	before := h.reasons(t)["border_chain"]
	many := make([]packet.Option, 30)
	for i := range many {
		many[i] = packet.Option{Type: 1, Data: make([]byte, 1)}
	}
	deep := packet.Eth().IPv6(hostA, hostB)
	for range 9 {
		deep = deep.Routing(hostB)
	}
	h.inside(t, func() {
		for _, b := range []packet.Builder{packet.Eth().IPv6(hostA, hostB).HopByHop(append(append(many, many...), many...)...), deep} {
			if _, verdict := h.tc(t, "test_in", b.UDP(1, 2).Payload(9).Bytes()); verdict != verdictDrop {
				t.Errorf("verdict %d", verdict)
			}
		}
	})
	if why := h.reasons(t); why["border_chain"]-before != 2 {
		t.Errorf("counted %v", why)
	}
}

// The border on real interfaces, in both directions: the router lists one interface, and the other is
// its border. A trace of the domain passes neither way, a foreign one does.
func TestBorderRouter(t *testing.T) {
	l := labtest.New(t, lab.Config{Topology: "chain", MTU: 1500})
	h := l.Host("porthos")
	r := New(Config{Transit: TransitTC, Border: BorderDrop})
	d := datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{r.Stage(func(name string) bool { return name == "to-athos" })}}, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(d.Close)
	n := node()
	n.Interfaces = []Interface{{Name: "to-athos", ID: 1, WideID: 1, Role: RoleBoth}}
	if err := r.Apply(n); err != nil {
		t.Fatal(err)
	}
	index := map[string]uint32{}
	for _, name := range []string{"to-aramis", "to-athos"} {
		index[name] = uint32(linkOf(t, h, name).Index)
		if _, err := d.Attach(datapath.Target{Iface: flow.NewIface(0, index[name]), Name: name, Do: h.Do}); err != nil {
			t.Fatal(err)
		}
	}
	trace := func(ns uint16) []byte {
		tr, err := wire.NewTrace(ns, 0x800000, 16)
		if err != nil {
			t.Fatal(err)
		}
		header, err := wire.AppendHeader(nil, 0, tr)
		if err != nil {
			t.Fatal(err)
		}
		return header
	}
	for _, c := range []struct {
		from, to  string
		direction flow.Direction
	}{{"beta", "alpha", flow.Ingress}, {"alpha", "beta", flow.Egress}} {
		courier := ioamtest.NewCourier(t, l.Host(c.from), l.Host(c.to))
		courier.Send(t, trace(spaceA))
		if got := courier.Carry(t, trace(unknown)); binary.BigEndian.Uint16(got[8:]) != unknown {
			t.Errorf("a trace of the domain has passed: % x", got)
		}
		await.Success(t, func() error {
			counts, err := r.Counts()
			for _, one := range counts {
				if one.Reason == "border_dropped" && one.Direction == c.direction && one.Namespace == spaceA && one.Packets == 1 && one.Iface.IfIndex() == index["to-aramis"] {
					return nil
				}
			}
			return errors.Join(err, fmt.Errorf("counted %+v", counts))
		})
	}
}

// Interfaces share frames with those below and above them, and not with others on the same device.
func TestStack(t *testing.T) {
	const eth, port, bond, vlanA, vlanB, bridge, other = 1, 2, 3, 4, 5, 6, 7
	s := stack{eth: {bond}, port: {bond}, bond: {vlanA, vlanB}, vlanA: {bridge}}
	for _, c := range []struct {
		lower, upper int
		want         bool
	}{{eth, bond, true}, {eth, bridge, true}, {bond, vlanB, true}, {bridge, eth, false}, {vlanA, vlanB, false}, {vlanB, bridge, false}, {eth, port, false}, {other, eth, false}} {
		if got := s.carries(c.lower, c.upper); got != c.want {
			t.Errorf("%d below %d: %t", c.lower, c.upper, got)
		}
	}
}
