package pdm

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/inband/marktest"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

// pdmOption is the option as the packet builder wants it.
func pdmOption(o pdm.Option) packet.Option {
	return packet.Option{Type: pdm.OptionType, Data: o.AppendTo(nil)[2:]}
}

func unknown(size int) packet.Option { return packet.Option{Type: 0x3e, Data: make([]byte, size)} }

// repeat is n times the same option.
func repeat(n int, o packet.Option) []packet.Option { return slices.Repeat([]packet.Option{o}, n) }

// chains are packets with extension headers, and what marking makes of them.
func chains() []struct {
	name   string
	frame  packet.Builder
	reason string // why it is passed over; empty: it is marked
} {
	ip := packet.Eth().IPv6(hostA, hostB)
	udp := func(b packet.Builder) packet.Builder { return b.UDP(portA, portB).Payload(20) }
	given := pdm.Option{PSNTP: 7, PSNLR: 8}
	return []struct {
		name   string
		frame  packet.Builder
		reason string
	}{
		{"plain UDP", udp(ip), ""},
		{"plain TCP", ip.TCP(portA, 443).Payload(100), ""},
		{"echo request", ip.ICMPv6(128, 0, 77, 1).Payload(8), ""},
		{"hop-by-hop", udp(ip.HopByHop(unknown(4))), ""},
		{"long hop-by-hop", udp(ip.HopByHop(unknown(250))), ""},
		{"routing", udp(ip.Routing(hostB)), ""},
		{"hop-by-hop, destination, routing", udp(ip.HopByHop(unknown(4)).DestOpts(unknown(12)).Routing(hostB)), ""},
		{"destination options", udp(ip.DestOpts(unknown(4))), ""},
		{"padding only", udp(ip.DestOpts()), ""},
		{"hop-by-hop and destination options", udp(ip.HopByHop(unknown(0)).DestOpts(unknown(3), unknown(9))), ""},
		{"destination options twice", udp(ip.DestOpts(unknown(4)).Routing(hostB).DestOpts(unknown(4))), ""},
		{"seven options", udp(ip.DestOpts(repeat(7, unknown(2))...)), ""},
		{"no next header", ip.NextHeader(59).Payload(8), ""},
		{"padded by Ethernet", ip.UDP(portA, portB).Payload(1).PadTo(90), ""},

		{"eight options", udp(ip.DestOpts(repeat(8, unknown(2))...)), "full_header"},
		{"nothing at all", ip.NextHeader(59), "jumbogram"},
		{"marked", udp(ip.DestOpts(pdmOption(given))), "marked"},
		{"marked before routing", udp(ip.DestOpts(pdmOption(given)).Routing(hostB)), "marked"},
		{"marked twice", udp(ip.DestOpts(pdmOption(given), pdmOption(given))), "malformed"},
		{"PDMv2", udp(ip.DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 0x12)})), "version2"},
		{"PDMv2, encrypted", udp(ip.DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 0x22)})), "version2"},
		{"option of another length", udp(ip.DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 11)})), "malformed"},
		{"fragment", udp(ip.Fragment(0, true, 5)), "fragment"},
		{"atomic fragment", udp(ip.Fragment(0, false, 5)), "fragment"},
		{"AH", udp(ip.AH(1, 1, 12)), "ah"},
		{"ESP", ip.NextHeader(packet.ProtoESP).Payload(40), "esp"},
		{"ESP behind options", ip.HopByHop().NextHeader(packet.ProtoESP).Payload(40), "esp"},
		{"router solicitation", ip.ICMPv6(133, 0, 77, 1).Payload(8), "neighbor"},
		{"neighbor solicitation", ip.ICMPv6(135, 0, 77, 1).Payload(20), "neighbor"},
		{"redirect", ip.ICMPv6(137, 0, 77, 1).Payload(32), "neighbor"},
		{"listener report", ip.HopByHop().ICMPv6(131, 0, 77, 1).Payload(20), "neighbor"},
		{"listener report, version 2", ip.HopByHop().ICMPv6(143, 0, 77, 1).Payload(20), "neighbor"},
		{"mobility", ip.Mobility(), "chain"},
		{"hop-by-hop in the middle", udp(ip.DestOpts().HopByHop()), "malformed"},
		{"more than is moved", udp(ip.HopByHop(repeat(3, unknown(250))...)), "deep"},
		{"multicast", packet.Eth().IPv6(hostA, "ff0e::1").UDP(portA, portB).Payload(20), "address"},
		{"link-local", packet.Eth().IPv6("fe80::1", "fe80::2").UDP(portA, portB).Payload(20), "address"},
		{"in a tag", packet.Eth().VLAN(5).IPv6(hostA, hostB).UDP(portA, portB).Payload(20), "frame"},
		{"packet too big", ip.ICMPv6(2, 0, 0, 1400).Payload(100), "icmp_error"},
		{"time exceeded", ip.ICMPv6(3, 0, 0, 0).Payload(100), "icmp_error"},
	}
}

// Every packet leaves as pdm.Insert makes it, or as it came and with the reason
// counted. It is never marked twice, and taking the option out gives it back.
func TestMarkChains(t *testing.T) {
	strip := *marking()
	strip.Strip = true
	h, peer := newPDMHost(t, *marking()), newPDMHost(t, strip)
	for _, c := range chains() {
		t.Run(c.name, func(t *testing.T) {
			frame := c.frame.Bytes()
			out := h.send(t, frame)
			if c.reason != "" {
				if !bytes.Equal(out, frame) {
					t.Errorf("changed:\n%x\n%x", frame, out)
				}
				if got := h.why(t); !maps.Equal(got, map[string]uint64{c.reason: 1}) {
					t.Errorf("counted %v, want %s", got, c.reason)
				}
				return
			}
			if got := h.why(t); len(got) > 0 {
				t.Fatalf("passed over: %v", got)
			}
			if want := inserted(t, frame, option(t, out)); !bytes.Equal(out, want) {
				t.Errorf("got  %x\nwant %x", out, want)
			}
			if again := h.send(t, out); !bytes.Equal(again, out) {
				t.Errorf("marked twice:\n%x", again)
			}
			if got := h.why(t); !maps.Equal(got, map[string]uint64{"marked": 1}) {
				t.Errorf("marked again: counted %v", got)
			}
			if back := peer.receive(t, out); !bytes.Equal(back, frame) {
				t.Errorf("stripped:\n got %x\nwant %x, reasons %v", back, frame, peer.why(t))
			}
		})
	}
}

// Packets that are not named leave as they came, and nothing is counted.
func TestPolicyNames(t *testing.T) {
	prefix := netip.MustParsePrefix
	h := newPDMHost(t, *marking(),
		policy.Policy{To: prefix("2001:db8:b::/48"), Protos: []uint8{17}, Ports: []policy.Ports{{From: 53, To: 53}, {From: 8000, To: 8099}}, For: 1000 * time.Hour},
		policy.Policy{To: prefix("2001:db8::/32"), Protos: []uint8{6}, For: 1000 * time.Hour},
		policy.Policy{To: prefix("2001:db8:b::/48"), Protos: []uint8{58}, Interface: "eth*", For: 1000 * time.Hour},
		policy.Policy{To: prefix("2001:db8:c::/48"), Protos: []uint8{17}, For: time.Nanosecond},
		policy.Policy{To: prefix("ff0e::/16"), Protos: []uint8{17}, For: 1000 * time.Hour},
	)
	h.set(t, uint64(monotonic(t)))
	to := func(dst string) packet.Builder { return packet.Eth().IPv6(hostA, dst) }
	for _, c := range []struct {
		name  string
		frame packet.Builder
		named bool
	}{
		{"prefix, protocol and port", to("2001:db8:b::1").UDP(40000, 53), true},
		{"the port at the other end", to("2001:db8:b::1").UDP(53, 40000), true},
		{"begin of a range", to("2001:db8:b::1").UDP(40000, 8000), true},
		{"end of a range", to("2001:db8:b::1").UDP(40000, 8099), true},
		{"beyond the range", to("2001:db8:b::1").UDP(40000, 8100), false},
		{"another port", to("2001:db8:b::1").UDP(40000, 54), false},
		{"a shorter prefix with another protocol", to("2001:db8:b::1").TCP(40000, 80).Payload(10), true},
		{"alongside the longer prefix", to("2001:db8:d::1").TCP(40000, 80).Payload(10), true},
		{"alongside the longer prefix, its protocol", to("2001:db8:d::1").UDP(40000, 53), false},
		{"another prefix", to("2001:db9::1").TCP(40000, 80), false},
		{"another interface", to("2001:db8:b::1").ICMPv6(128, 0, 77, 1).Payload(8), false},
		{"a policy that has ended", to("2001:db8:c::1").UDP(40000, 53), false},
		{"multicast that is named", to("ff0e::1").UDP(40000, 53), true},
		{"multicast that is not", to("ff02::1").UDP(40000, 53), false},
		{"IPv4", packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(40000, 53), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for second := range 2 { // the second packet of a flow takes another way
				frame := c.frame.Bytes()
				if frame[etherLen] == 0x60 && frame[etherLen+6] == packet.ProtoTCP {
					binary.BigEndian.PutUint32(frame[etherLen+44:], uint32(second)*10)
					// Where the first one was acknowledged, nothing needs to be shown.
					h.prove(t, 1280, "2001:db8:b::1", 80)
					h.prove(t, 1280, "2001:db8:d::1", 80)
				}
				if marked := !bytes.Equal(h.send(t, frame), frame); marked != c.named {
					t.Errorf("marked: %t", marked)
				}
			}
			if got := h.why(t); len(got) > 0 {
				t.Errorf("counted %v", got)
			}
		})
	}
	if err := h.pdm.SetPolicies([]policy.Policy{everything, everything}); err == nil {
		t.Error("policies that overlap were taken")
	}
	// New policies hold from the next packet on, for known flows, too.
	if err := h.pdm.SetPolicies(nil); err != nil {
		t.Fatal(err)
	}
	frame := to("2001:db8:b::1").UDP(40000, 53).Bytes()
	if out := h.send(t, frame); !bytes.Equal(out, frame) {
		t.Error("marked without a policy")
	}
	if err := h.pdm.SetPolicies([]policy.Policy{everything}); err != nil {
		t.Fatal(err)
	}
	if out := h.send(t, frame); bytes.Equal(out, frame) {
		t.Error("not marked by a new policy")
	}
	ends, err := h.pdm.Policies()
	if err != nil || len(ends) != 1 {
		t.Fatalf("policies %v, %v", ends, err)
	}
	h.set(t, uint64(1001*time.Hour)+uint64(monotonic(t)))
	if out := h.send(t, frame); !bytes.Equal(out, frame) {
		t.Error("marked although the policy has ended")
	}
	if err := h.pdm.Renew(); err != nil {
		t.Fatal(err)
	}
	h.set(t, uint64(999*time.Hour)+uint64(monotonic(t)))
	if out := h.send(t, frame); bytes.Equal(out, frame) {
		t.Error("not marked although the policy was renewed")
	}
}

// A packet that would exceed the interface's MTU leaves as it came; so does one
// that would exceed the MTU of the path, once a router has reported it, and one
// longer than any that is known to have arrived.
func TestMarkMTU(t *testing.T) {
	h := newPDMHost(t, *marking())
	frame := func(size int) []byte {
		return packet.Eth().IPv6(hostA, hostB).UDP(portA, portB).Payload(size - 48).Bytes()
	}
	check := func(size int, reason string) {
		t.Helper()
		in := frame(size)
		out := h.send(t, in)
		want := map[string]uint64{}
		if reason != "" {
			want[reason] = 1
		}
		if got := h.why(t); !maps.Equal(got, want) {
			t.Errorf("packet of %d bytes: counted %v, want %v", size, got, want)
		}
		if marked := !bytes.Equal(in, out); marked != (reason == "") {
			t.Errorf("packet of %d bytes: marked %t", size, marked)
		}
	}
	check(1264, "")
	check(1265, "unproven")
	h.prove(t, 3000, hostB)
	h.set(t, 3e9) // by then the flow has asked
	for _, mtu := range []int{3000, 1500, 1280} {
		if err := h.veth.Do(func() error { return marktest.SetMTU("from", mtu) }); err != nil {
			t.Fatal(err)
		}
		check(mtu-pdm.HeaderSize, "")
		check(mtu-pdm.HeaderSize+1, "mtu")
		check(mtu, "mtu")
	}
	if err := h.veth.Do(func() error { return marktest.SetMTU("from", 3000) }); err != nil {
		t.Fatal(err)
	}
	check(2000, "")
	n := h.states(t)
	report := func(mtu uint32, about []byte, sum ...byte) {
		t.Helper()
		// RFC 4443 section 3.2: as much of the packet as fits in 1280 bytes.
		quoted := about[etherLen:min(len(about), etherLen+1232)]
		frame := packet.Eth().IPv6("2001:db8:ffff::1", hostA).ICMPv6(2, 0, uint16(mtu>>16), uint16(mtu)).Raw(quoted).Bytes()
		copy(frame[etherLen+42:], sum)
		h.receive(t, frame)
	}
	marked := h.send(t, frame(1500))
	// What the stack would not believe is not believed here.
	report(1400, marked, 0, 1)
	report(1279, marked)
	report(1516, marked)
	check(1484, "")
	report(1400, marked)
	check(1384, "")
	check(1385, "path_mtu")
	check(2000, "path_mtu")
	report(1600, frame(2000)) // a larger one reports nothing
	check(1385, "path_mtu")
	// The destination is known to other flows.
	other := packet.Eth().IPv6(hostA, hostB).UDP(portA+1, portB).Payload(1385 - 48).Bytes()
	if out := h.send(t, other); !bytes.Equal(out, other) {
		t.Error("another flow to the destination was marked")
	}
	if got := h.why(t); !maps.Equal(got, map[string]uint64{"path_mtu": 1}) {
		t.Errorf("another flow to the destination: counted %v", got)
	}
	// It is forgotten as the stack forgets it; by then nothing is known to arrive.
	h.set(t, 604e9)
	check(1384, "unproven")
	h.prove(t, 3000, hostB)
	h.set(t, 607e9)
	check(1484, "")
	// A message makes no state.
	report(1300, packet.Eth().IPv6(hostA, "2001:db8:c::3").TCP(1, 2).Payload(1400).Bytes())
	if now := h.states(t); now != n {
		t.Errorf("%d states, then %d", n, now)
	}
}

// A Packet Too Big about TCP must quote a segment that is on its way.
func TestTooBigQuotesTCP(t *testing.T) {
	h := newPDMHost(t, *marking())
	segment := func(seq uint32) packet.Builder {
		return packet.Eth().IPv6(hostA, hostB).TCP(portA, 443).Seq(seq).Payload(1400)
	}
	h.prove(t, 3000, hostB, 443)
	h.send(t, packet.Eth().IPv6(hostA, hostB).TCP(portA, 443).Seq(5<<20).Payload(100).Bytes())
	key := udpKey(hostA, hostB, portA, 443)
	key.Proto = packet.ProtoTCP
	for _, c := range []struct {
		seq uint32
		mtu uint16 // learned
	}{{6 << 20, 0}, {5<<20 + 101, 0}, {3 << 20, 0}, {5 << 20, 1400}} {
		quoted := segment(c.seq).Bytes()[etherLen:][:1232]
		h.receive(t, packet.Eth().IPv6("2001:db8:ffff::1", hostA).ICMPv6(2, 0, 0, 1400).Raw(quoted).Bytes())
		if s, ok := h.state(t, key); !ok || s.Guard.Mtu != c.mtu {
			t.Errorf("sequence number %d quoted: MTU %d, want %d (state: %t)", c.seq, s.Guard.Mtu, c.mtu, ok)
		}
	}
}

func monotonic(t testing.TB) int64 { return moment(t).Mono }
