package ioam

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// Where the end of a tunnel reports that it takes no packets out of it, or a router that it is gone, no more are put
// into it: of datagrams nothing else shows that. Other errors, and those that are not whole, change nothing. The outer header has
// traffic class and flow label of the packet.
func TestTunnelReportedClosed(t *testing.T) {
	const end, router, etherLen = "2001:db8:e::1", "2001:db8:ffff::1", 14
	in := trace72(t)
	in.Tunnel = &Tunnel{Source: netip.MustParseAddr(hostA), Destination: netip.MustParseAddr(end)}
	h := newInsertingHost(t, false, inserting(t, in))
	frame := packet.Eth().IPv6(hostA, hostB).UDP(1000, 2000).Payload(100).Bytes()
	copy(frame[etherLen:], []byte{0x6b, 0x95, 0x43, 0x21}) // traffic class, flow label
	counts := map[string]uint64{}
	wrapped := func(what string, want bool) []byte {
		t.Helper()
		out := h.leave(t, packet.Frame{Data: frame}, 0)
		if got := !bytes.Equal(out, frame); got != want {
			t.Fatalf("%s: behind an outer header: %t", what, got)
		}
		if why := h.why(t, counts); !want && why["not_inserted_fallback"] != 1 {
			t.Fatalf("%s: %v", what, why)
		}
		if !bytes.Equal(out[etherLen:etherLen+4], frame[etherLen:etherLen+4]) { // routers choose the same one of several paths
			t.Fatalf("%s: traffic class and flow label % x, of the packet inside % x", what, out[etherLen:etherLen+4], frame[etherLen:etherLen+4])
		}
		return out
	}
	report := func(from string, kind, code uint8, about []byte, sum ...byte) {
		t.Helper()
		f := packet.Eth().IPv6(from, hostA).ICMPv6(kind, code, 0, 0).Raw(about[etherLen:]).Bytes()
		copy(f[etherLen+42:], sum)
		h.arrive(t, packet.Frame{Data: f})
	}
	h.inside(t, func() {
		for _, c := range []struct {
			what       string
			from       string
			kind, code uint8
		}{
			{"nothing there knows IPv6 in IPv6", end, 4, 1},
			{"no such tunnel", end, 1, 4},
			{"no neighbor", router, 1, 3},
		} {
			emptyMaps(t, h.node, "mark_paths", "ioam_guards")
			out := wrapped(c.what+", before", true)
			report(c.from, 3, 0, out)
			report(c.from, c.kind, c.code, out, 0, 1)
			report(c.from, c.kind, c.code, frame)
			wrapped(c.what+", other errors", true)
			report(c.from, c.kind, c.code, out)
			wrapped(c.what, false)
		}
	})
	asksOnlyWithTunnels(t, h, in)
}

// A Packet Too Big about an outer header changes nothing for the source of the packet inside: those that are too long behind
// an outer header leave without one from then on, whatever their protocol, and shorter ones go on in the tunnel. Messages
// that are forged or make no sense change nothing.
func TestTunnelTooBig(t *testing.T) {
	const end, router, etherLen, narrow = "2001:db8:e::1", "2001:db8:ffff::1", 14, 1300
	in := trace72(t)
	in.Tunnel = &Tunnel{Source: netip.MustParseAddr(hostA), Destination: netip.MustParseAddr(end)}
	h := newInsertingHost(t, false, inserting(t, in))
	added := 0
	sized := func(n int) []byte { // as an IP packet behind the outer header
		return packet.Eth().IPv6(hostA, hostB).UDP(1000, 2000).Payload(n - added - 48).Bytes()
	}
	counts := map[string]uint64{}
	h.inside(t, func() {
		leaves := func(what string, frame []byte, inside bool) []byte {
			t.Helper()
			out := h.leave(t, packet.Frame{Data: frame}, 0)
			if got := len(out) > len(frame); got != inside {
				t.Fatalf("%s: %d bytes, behind an outer header: %t", what, len(out)-etherLen, got)
			}
			if why := h.why(t, counts); !inside && why["not_inserted_mtu"] != 1 {
				t.Fatalf("%s: %v", what, why)
			}
			if !inside && !bytes.Equal(out, frame) {
				t.Fatalf("%s changed\n% x\n% x", what, frame, out)
			}
			return out
		}
		report := func(mtu uint32, about []byte, sum ...byte) {
			t.Helper()
			quoted := about[etherLen:min(len(about), etherLen+1280-48)]
			f := packet.Eth().IPv6(router, hostA).ICMPv6(2, 0, uint16(mtu>>16), uint16(mtu)).Raw(quoted).Bytes()
			copy(f[etherLen+42:], sum)
			h.arrive(t, packet.Frame{Data: f})
		}
		short := sized(200)
		added = len(leaves("short", short, true)) - len(short)
		long, fits, longer := sized(1400), sized(narrow), sized(narrow+1)
		out := leaves("before", long, true)
		report(narrow, out, 0, 1)
		leaves("with a wrong checksum", long, true)
		report(1279, out)
		leaves("below the least MTU", long, true)
		report(1400, out)
		leaves("as long as it was", long, true)
		report(narrow, long)
		leaves("about the packet itself", long, true)
		report(narrow, out)
		leaves("too long", long, false)
		leaves("too long by a little", longer, false)
		leaves("as long as may be", fits, true)
		report(1350, out)
		leaves("after a larger one", longer, false)
	})
}

// Without tunnels, nothing of a node wakes up to ask their ends.
func asksOnlyWithTunnels(t *testing.T, h *insertingHost, in Insertion) {
	asking := func() bool {
		all := make([]byte, 1<<20)
		return bytes.Contains(all[:runtime.Stack(all, true)], []byte("askTunnels"))
	}
	for _, echo := range []bool{false, true, false, true} {
		with := *in.Tunnel
		with.Echo = echo
		in.Tunnel = &with
		if err := h.node.Apply(inserting(t, in)); err != nil {
			t.Fatal(err)
		}
		await.True(t, fmt.Sprintf("asking: %t", echo), func() bool { return asking() == echo })
	}
	if err := h.node.Apply(node()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "no tunnel left", func() bool { return !asking() })
}
