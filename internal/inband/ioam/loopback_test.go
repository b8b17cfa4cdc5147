package ioam

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// looping is the node of the tests with these limits of loopback.
func looping(every, rate uint32) Node {
	n := node()
	n.Loopback = Loopback{Every: every, Rate: rate}
	return n
}

// asking is a trace that asks for copies.
func asking(t testing.TB, space uint16, typ wire.TraceType, free int) *wire.Trace {
	t.Helper()
	tr, err := wire.NewTrace(space, typ, free)
	if err != nil {
		t.Fatal(err)
	}
	tr.Flags = wire.Loopback
	return tr
}

// looped is how many copies the agent got, and why it got none, by reason.
func (h *host) looped(t testing.TB) (copies uint64, others map[string]uint64) {
	t.Helper()
	others = h.reasons(t)
	for name := range others {
		if !strings.HasPrefix(name, "loopback_") {
			delete(others, name)
		}
	}
	s, err := h.node.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.Looped, others
}

// One host for all tests: loading it takes longer than they do.
func TestLoopback(t *testing.T) {
	h := newHost(t, Config{Time: wire.PTP, Transit: TransitTC}, looping(1, 1<<20))
	for _, test := range []struct {
		name string
		run  func(*testing.T, *host)
	}{
		{"copies", loopsBack},
		{"others", loopsNoOthers},
		{"limits", loopsWithinLimits},
		{"returned", takesReturned},
	} {
		t.Run(test.name, func(t *testing.T) { h.inside(t, func() { test.run(t, h) }) })
	}
}

// A packet that asks for a copy is what it would be if it did not ask, and the copy is of what it became.
func loopsBack(t *testing.T, h *host) {
	for free := 4; free <= wire.MaxTraceSpace; free += 4 {
		ask := asking(t, spaceA, wire.LoopbackTraceType, free)
		quiet := asking(t, spaceA, wire.LoopbackTraceType, free)
		quiet.Flags = 0
		for _, program := range []string{"test_in", "test_through"} {
			before, _ := h.looped(t)
			asked, verdict := h.tc(t, program, carrying(t, ask))
			if after, others := h.looped(t); verdict != verdictPass || after != before+1 || len(others) > 0 {
				t.Fatalf("%d bytes: verdict %d, %d copies, %v", free, verdict, after-before, others)
			}
			plain, _ := h.tc(t, program, carrying(t, quiet))
			plain[optionAt+6] |= 0x02 // the flag
			if !bytes.Equal(asked, plain) {
				t.Fatalf("%d bytes: % x and without the flag % x", free, asked, plain)
			}
			if after, _ := h.looped(t); after != before+1 {
				t.Fatal("a packet that asks for no copy has one")
			}
		}
	}
}

// There is no copy of what RFC 9322 excludes, of what lacks this node's data, and of what comes from outside the domain.
func loopsNoOthers(t *testing.T, h *host) {
	ask := func() []byte { return carrying(t, asking(t, spaceA, wire.LoopbackTraceType, 8)) }
	from := func(address string) []byte {
		frame := ask()
		source := netip.MustParseAddr(address).As16()
		copy(frame[prefix+8:], source[:])
		return frame
	}
	full := asking(t, spaceA, wire.LoopbackTraceType, 0)
	overflowed := asking(t, spaceA, wire.LoopbackTraceType, 8)
	overflowed.Flags |= wire.Overflow
	growing, err := wire.NewIncrementalTrace(spaceA, wire.LoopbackTraceType, 8)
	if err != nil {
		t.Fatal(err)
	}
	growing.Flags = wire.Loopback
	for _, c := range []struct {
		name, reason string
		frame        []byte
	}{
		{"more fields", "loopback_type", carrying(t, asking(t, spaceA, wire.HopLimitNodeID|wire.InterfaceIDs, 8))},
		{"another field", "loopback_type", carrying(t, asking(t, spaceA, wire.InterfaceIDs, 8))},
		{"no field", "loopback_type", carrying(t, asking(t, spaceA, 0, 4))},
		{"full", "", carrying(t, full)},
		{"overflowed", "", carrying(t, overflowed)},
		{"incremental", "", carrying(t, growing)},
		{"unknown namespace", "", carrying(t, asking(t, unknown, wire.LoopbackTraceType, 8))},
		{"from a group", "loopback_address", from("ff02::1")},
		{"from a link", "loopback_address", from("fe80::1")},
		{"from nowhere", "loopback_address", from("::")},
		{"from the host itself", "loopback_address", from("::1")},
		{"mapped", "loopback_address", from("::ffff:192.0.2.1")},
	} {
		before, was := h.looped(t)
		h.tc(t, "test_in", c.frame)
		after, now := h.looped(t)
		if after != before {
			t.Errorf("%s: a copy", c.name)
		}
		for name := range now {
			if got := now[name] - was[name]; got != map[bool]uint64{true: 1}[name == c.reason] {
				t.Errorf("%s: %s grew by %d", c.name, name, got)
			}
		}
		if c.reason != "" && now[c.reason] != was[c.reason]+1 {
			t.Errorf("%s: counted %v, before %v", c.name, now, was)
		}
	}
	defer func() {
		if err := h.node.Apply(looping(1, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}()
	before, _ := h.looped(t)
	for _, border := range []Border{BorderOff, BorderStrip, BorderDrop} {
		for _, role := range []Role{RoleNone, RoleEgress} {
			n := looping(1, 1<<20)
			n.Interfaces[0].Role = role
			was := h.node.cfg.Border
			h.node.cfg.Border = border
			if err := h.node.Apply(n); err != nil {
				t.Fatal(err)
			}
			h.tc(t, "test_in", ask())
			h.node.cfg.Border = was
		}
	}
	if err := h.node.Apply(looping(0, 1<<20)); err != nil {
		t.Fatal(err)
	}
	h.tc(t, "test_in", ask())
	if after, _ := h.looped(t); after != before {
		t.Errorf("%d copies of packets from outside the domain, or with loopback off", after-before)
	}
}

// A flood gets no more copies than one in so many traces, and so many per second; each packet has a copy or is counted. A
// source that asks as rarely as it should is answered nearly always.
func loopsWithinLimits(t *testing.T, h *host) {
	defer func() {
		if err := h.node.Apply(looping(1, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}()
	defer datapathtest.OnOneProcessor(t)() // each has limits of its own
	ask := carrying(t, asking(t, spaceA, wire.LoopbackTraceType, 8))
	plain := asking(t, spaceA, wire.LoopbackTraceType, 8)
	plain.Flags = 0
	quiet := carrying(t, plain)
	for _, c := range []struct {
		name        string
		every, rate uint32
		sent, gap   int // every gap-th packet asks
		least, most uint64
	}{
		// A CPU has saved 64 copies at most, of the case before.
		{"flood", 100, 1 << 20, 20000, 1, 200, 200 + 64},
		{"one in 100", 100, 1 << 20, 20000, 100, 199, 200},
		{"no copy in a second", 1, 0, 200, 1, 0, 0},
	} {
		if err := h.node.Apply(looping(c.every, c.rate)); err != nil {
			t.Fatal(err)
		}
		before, was := h.looped(t)
		asked := uint64(0)
		for i := range c.sent {
			if i%c.gap == c.gap-1 {
				asked++
				h.tc(t, "test_in", ask)
			} else {
				h.tc(t, "test_in", quiet)
			}
		}
		after, now := h.looped(t)
		got, limited := after-before, uint64(0)
		for name := range now {
			limited += now[name] - was[name]
		}
		if got+limited != asked {
			t.Errorf("%s: %d copies, %d limited, of %d: %v", c.name, got, limited, asked, now)
		}
		if got < c.least || got > c.most {
			t.Errorf("%s: %d copies, want %d to %d: %v", c.name, got, c.least, c.most, now)
		}
	}
}

// A copy that came back to its source ends there, with its hops counted; all that looks similar is not one.
func takesReturned(t *testing.T, h *host) {
	l, err := netlink.LinkByIndex(h.veth.From)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(next uint8, change func(*wire.Trace)) []byte {
		tr := asking(t, spaceA, wire.LoopbackTraceType, 8)
		tr.Flags = 0
		tr.Data = append(tr.Data, 62, 0, 0, 5, 63, 0, 0, 4, 64, 0, 0, nodeID)
		change(tr)
		header, err := wire.AppendHeader(nil, next, tr)
		if err != nil {
			t.Fatal(err)
		}
		if next != 59 {
			out := framed(header)
			copy(out, l.Attrs().HardwareAddr)
			return out
		}
		out := framed(header)[:prefix+40+len(header)]
		out[prefix+4], out[prefix+5] = 0, byte(len(header))
		copy(out, l.Attrs().HardwareAddr)
		return out
	}
	same := func(*wire.Trace) {}
	for _, c := range []struct {
		name     string
		frame    []byte
		returned bool
	}{
		{"a copy", frame(59, same), true},
		{"a copy without free space", frame(59, func(tr *wire.Trace) { tr.Remaining, tr.Data = 0, tr.Data[8:]; tr.Flags = wire.Overflow }), true},
		{"of another node", frame(59, func(tr *wire.Trace) { tr.Data[len(tr.Data)-1]++ }), false},
		{"with payload", frame(17, same), false},
		{"that asks for copies", frame(59, func(tr *wire.Trace) { tr.Flags = wire.Loopback }), false},
		{"with other fields", frame(59, func(tr *wire.Trace) { tr.Type = wire.InterfaceIDs }), false},
		{"without hops", frame(59, func(tr *wire.Trace) { tr.Data = tr.Data[:8] }), false},
		{"of another namespace", frame(59, func(tr *wire.Trace) { tr.Namespace = unknown }), false},
	} {
		before := stats(t, h.node).Returned
		_, verdict := h.tc(t, "test_in", c.frame)
		if got := stats(t, h.node).Returned - before; got != map[bool]uint64{true: 1}[c.returned] || (verdict == verdictDrop) != c.returned {
			t.Errorf("%s: returned %d, verdict %d, %v", c.name, got, verdict, h.reasons(t))
		}
	}
	await.Success(t, func() error { // this node is the last one, too
		for _, p := range h.node.Paths() {
			if p.Nodes() == "3-4-5-3" && p.Reached == 3 {
				return nil
			}
		}
		return fmt.Errorf("paths %+v", h.node.Paths())
	})
}

// A copy has the trace without the flag, and nothing else; the highest hop limit shows where it turned back.
func TestCopyOf(t *testing.T) {
	tr := asking(t, spaceA, wire.LoopbackTraceType, 8)
	tr.Data = append(tr.Data, 64, 0, 0, 1)
	option, err := wire.AppendOption(nil, tr)
	if err != nil {
		t.Fatal(err)
	}
	pkt, err := copyOf(netip.MustParseAddr(hostB), netip.MustParseAddr(hostA), option)
	if err != nil {
		t.Fatal(err)
	}
	found, err := wire.Find(pkt)
	if err != nil || len(found) != 1 {
		t.Fatalf("% x: %d options, %v", pkt, len(found), err)
	}
	body, err := found[0].Decode()
	if got, ok := body.(*wire.Trace); !ok || err != nil || got.Flags != 0 || !bytes.Equal(got.Data, tr.Data) || got.Namespace != spaceA {
		t.Errorf("%+v, %v", body, err)
	}
	if pkt[7] != 255 || pkt[40] != 59 || len(pkt) != 40+int(pkt[41]+1)*8 || int(pkt[5]) != len(pkt)-40 {
		t.Errorf("% x", pkt)
	}
	if _, err := copyOf(netip.MustParseAddr(hostB), netip.MustParseAddr(hostA), option[:3]); err == nil {
		t.Error("a copy of half an option")
	}
}

// Hop limits fall until a packet turns back, however many hops there are.
func TestReached(t *testing.T) {
	for _, c := range []struct {
		limits []uint8
		want   int
	}{
		{nil, 0},
		{[]uint8{64}, 1},
		{[]uint8{64, 63, 62}, 3},
		{[]uint8{64, 63, 254, 253}, 2},
		{[]uint8{255, 254, 254}, 2},
		{[]uint8{64, 254}, 1},
	} {
		var hops []wire.Hop
		for _, l := range c.limits {
			hops = append(hops, wire.Hop{HopLimit: l})
		}
		if got := reached(hops); got != c.want {
			t.Errorf("%s: %d", fmt.Sprint(c.limits), got)
		}
	}
}

// The flag goes into packets of this host without other IOAM options, and into no packet of others, inline.
func TestLoopbackInsertion(t *testing.T) {
	n := inserting(t, insertionTo("::/0", asking(t, spaceA, wire.LoopbackTraceType, 8)))
	n.ClosedDomain = true
	h := newInsertingHost(t, false, n)
	h.know(t)
	other, err := wire.NewTrace(unknown, wire.TransitDelay, 8)
	if err != nil {
		t.Fatal(err)
	}
	plain := packet.Eth().IPv6(hostA, hostB).UDP(1000, 2000).Payload(100).Bytes()
	h.inside(t, func() {
		for _, c := range []struct {
			name, why string
			frame     []byte
			received  int
		}{
			{"of this host", "", plain, 0},
			{"with other options", "", framed([]byte{17, 0, 1, 4, 0, 0, 0, 0}), 0},
			{"with a trace", "not_inserted_marked", carrying(t, other), 0},
			{"with direct export", "not_inserted_marked", carrying(t, &wire.DEX{Namespace: unknown, Type: wire.TransitDelay}), 0},
			{"of another host", "forwarded", plain, h.veth.To},
			{"without payload", "", packet.Eth().IPv6(hostA, hostB).NextHeader(59).Payload(8).Bytes(), 0},
		} {
			before := map[string]uint64{}
			h.why(t, before)
			out := h.leave(t, packet.Frame{Data: c.frame}, c.received)
			if c.why != "" {
				if why := h.why(t, before); why[c.why] != 1 || !bytes.Equal(out, c.frame) {
					t.Errorf("%s: %v, % x", c.name, why, out)
				}
				continue
			}
			found, err := wire.Find(out[prefix:])
			if err != nil || len(found) != 1 {
				t.Fatalf("%s: %d options, %v", c.name, len(found), err)
			}
			body, err := found[0].Decode()
			got, ok := body.(*wire.Trace)
			if !ok || err != nil || got.Flags != wire.Loopback || got.Remaining != 1 {
				t.Errorf("%s: %+v, %v", c.name, body, err)
			}
		}
		// Copies of other nodes pass as they are, whatever is inserted.
		n.Insertions = []Insertion{insertionTo("::/0", mustTrace(t, spaceA, 20))}
		if err := h.node.Apply(n); err != nil {
			t.Fatal(err)
		}
		header, err := wire.AppendHeader(nil, 59, other)
		if err != nil {
			t.Fatal(err)
		}
		for _, received := range []int{0, h.veth.To} {
			frame, before := framed(header)[:prefix+40+len(header)], map[string]uint64{}
			frame[prefix+4], frame[prefix+5] = 0, byte(len(header))
			h.why(t, before)
			out := h.leave(t, packet.Frame{Data: frame}, received)
			if why := h.why(t, before); why["not_inserted_marked"] != 1 || !bytes.Equal(out, frame) {
				t.Errorf("a copy: %v, % x", why, out)
			}
		}
	})
}
