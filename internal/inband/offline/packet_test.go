package offline_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/offline"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

var sample = pdm.Option{PSNTP: 12, PSNLR: 25, DeltaTLR: 0xDE0B, ScaleDTLR: 46}

func udpTo(port uint16) packet.Builder {
	return packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(40000, port).Payload(20)
}

// marked puts the sample option into an Ethernet frame.
func marked(t interface{ Fatal(...any) }, b packet.Builder) []byte {
	frame := b.Bytes()
	ip, err := pdm.Insert(frame[14:], sample)
	if err != nil {
		t.Fatal(err)
	}
	return append(frame[:14:14], ip...)
}

func decodeAll(t *testing.T, link capfile.LinkType, frame []byte) []offline.Packet {
	t.Helper()
	var got []offline.Packet
	if !offline.Decode(capfile.Frame{Number: 1, Link: link, Data: frame}, func(p offline.Packet) { got = append(got, p) }) {
		t.Fatalf("link type %v is not known", link)
	}
	return got
}

func addrPort(s string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(s), port)
}

func TestDecodeTransport(t *testing.T) {
	ip := packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	for _, c := range []struct {
		name         string
		b            packet.Builder
		proto        uint8
		sport, dport uint16
	}{
		{"UDP", ip.UDP(1000, 53), 17, 1000, 53},
		{"TCP", ip.TCP(1000, 443), 6, 1000, 443},
		{"SCTP", ip.SCTP(1000, 36412, 1).Data(1, 4), 132, 1000, 36412},
		{"DCCP", ip.DCCP(1000, 5001), 33, 1000, 5001},
		{"UDPLite", ip.UDPLite(1000, 5001), 136, 1000, 5001},
		{"echo request", ip.ICMPv6(128, 0, 77, 1), 58, 77, 77},
		{"echo reply", ip.ICMPv6(129, 0, 77, 1), 58, 77, 77},
		{"packet too big", ip.ICMPv6(2, 0, 77, 1), 58, 0, 0},
		{"behind other headers", ip.HopByHop().DestOpts(packet.Option{Type: 4, Data: []byte{1}}).UDP(1000, 53), 17, 1000, 53},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decodeAll(t, capfile.LinkEthernet, marked(t, c.b))
			if len(got) != 1 {
				t.Fatalf("%d packets", len(got))
			}
			p := got[0]
			want := offline.Flow{Src: addrPort("2001:db8::1", c.sport), Dst: addrPort("2001:db8::2", c.dport), Proto: c.proto}
			if p.Flow != want || p.Option != sample || p.Err != nil {
				t.Errorf("%+v, want %+v", p, want)
			}
		})
	}
}

// Wherever an IPv6 header is, it is found.
func TestDecodeLinkAndTunnels(t *testing.T) {
	plain := marked(t, udpTo(53))
	ip := plain[14:]
	innerMarked := packet.Builder{}.Raw(ip)
	etherMarked := packet.Builder{}.Raw(plain)
	raw := func(b packet.Builder, inside packet.Builder) []byte { return append(b.Bytes(), inside.Bytes()...) }
	for _, c := range []struct {
		name  string
		link  capfile.LinkType
		frame []byte
		want  int // packets, of which the last is marked
	}{
		{"Ethernet", capfile.LinkEthernet, plain, 1},
		{"VLAN", capfile.LinkEthernet, raw(packet.Eth().VLAN(5).EtherType(0x86DD), innerMarked), 1},
		{"QinQ", capfile.LinkEthernet, raw(packet.Eth().QinQ(7).VLAN(5).EtherType(0x86DD), innerMarked), 1},
		{"padded", capfile.LinkEthernet, append(bytes.Clone(plain), make([]byte, 8)...), 1},
		{"raw", capfile.LinkRaw, ip, 1},
		{"raw, another number", 12, ip, 1},
		{"IPv6", capfile.LinkIPv6, ip, 1},
		{"Linux cooked", capfile.LinkLinuxCooked, append([]byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x86, 0xDD}, ip...), 1},
		{"Linux cooked, version 2", capfile.LinkCookedV2, append([]byte{0x86, 0xDD, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0}, ip...), 1},
		{"loopback of BSD", capfile.LinkNull, append([]byte{24, 0, 0, 0}, ip...), 1},
		{"IPv6 in IPv4", capfile.LinkEthernet, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").IPv6("2001:db8::1", "2001:db8::2").UDP(40000, 53).Bytes(), 1},
		{"IPv6 in IPv6", capfile.LinkEthernet, packet.Eth().IPv6("2001:db8:1::1", "2001:db8:1::2").IPv6("2001:db8::1", "2001:db8::2").UDP(40000, 53).Bytes(), 2},
		{"VXLAN in IPv4", capfile.LinkEthernet, vxlan(packet.Eth().IPv4("192.0.2.1", "192.0.2.2"), etherMarked), 1},
		{"VXLAN in IPv6", capfile.LinkEthernet, vxlan(packet.Eth().IPv6("2001:db8:1::1", "2001:db8:1::2"), etherMarked), 2},
		{"IPv4", capfile.LinkEthernet, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes(), 0},
		{"ARP", capfile.LinkEthernet, packet.Eth().ARP("192.0.2.1", "192.0.2.2").Bytes(), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decodeAll(t, c.link, c.frame)
			if len(got) != c.want {
				t.Fatalf("%d packets, want %d: %+v", len(got), c.want, got)
			}
			if c.want == 0 {
				return
			}
			last := got[len(got)-1]
			want := offline.Flow{Src: addrPort("2001:db8::1", 40000), Dst: addrPort("2001:db8::2", 53), Proto: 17}
			if last.Flow != want {
				t.Errorf("%+v, want %+v", last.Flow, want)
			}
		})
	}
	if offline.Decode(capfile.Frame{Link: 147, Data: ip}, func(offline.Packet) {}) {
		t.Error("link type 147 is anybody's, and was decoded")
	}
}

func vxlan(outer, inside packet.Builder) []byte {
	return outer.UDP(50000, 4789).Raw(append([]byte{0x08, 0, 0, 0, 0, 0, 5, 0}, inside.Bytes()...)).Bytes()
}

// Both headers of a tunnel may be marked, and are two packets.
func TestDecodeTunnelMarkedTwice(t *testing.T) {
	inner := marked(t, udpTo(53))[14:]
	outer := marked(t, packet.Eth().IPv6("2001:db8:1::1", "2001:db8:1::2").NextHeader(41).Raw(inner))
	got := decodeAll(t, capfile.LinkEthernet, outer)
	if len(got) != 2 || got[0].Err != nil || got[1].Err != nil || got[0].Proto != 41 || got[1].Proto != 17 {
		t.Errorf("%+v", got)
	}
}

// A damaged frame never brings decoding down, and what Find finds, Decode tells.
func TestDecodeRandom(t *testing.T) {
	marked := 0
	rapid.Check(t, func(t *rapid.T) {
		frame := packet.Random().Draw(t, "frame")
		before := bytes.Clone(frame)
		offline.Decode(capfile.Frame{Link: capfile.LinkEthernet, Data: frame[:len(frame):len(frame)]}, func(p offline.Packet) {
			if p.Err == nil {
				t.Fatalf("a packet that nobody marked has %v", p.Option)
			}
		})
		if !bytes.Equal(frame, before) {
			t.Fatal("the frame was changed")
		}
		if len(frame) < 14+40 || binary.BigEndian.Uint16(frame[12:]) != 0x86DD {
			return
		}
		ip, err := pdm.Insert(frame[14:], sample)
		if err != nil {
			return
		}
		marks := 0
		offline.Decode(capfile.Frame{Link: capfile.LinkEthernet, Data: append(frame[:14:14], ip...)}, func(p offline.Packet) {
			if p.Err == nil && p.Option == sample {
				marks++
			}
		})
		if marks != 1 {
			t.Fatalf("marked once, and read %d times: %x", marks, ip)
		}
		marked++
	})
	if marked == 0 {
		t.Error("no packet could be marked")
	}
}

func TestScan(t *testing.T) {
	twice := marked(t, udpTo(53))
	twice = append(twice[:14:14], twice[14:54]...)
	twice = append(twice, pdm.AppendHeader(nil, 60, sample)...)
	twice = append(twice, pdm.AppendHeader(nil, 17, sample)...)
	twice = append(twice, make([]byte, 8)...)
	binary.BigEndian.PutUint16(twice[14+4:], 40)
	v2 := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").DestOpts(packet.Option{Type: 0x0F, Data: make([]byte, 0x22)}).UDP(1, 2)
	file := classic(binary.LittleEndian, magicMicro, capfile.LinkEthernet, time.Microsecond,
		marked(t, udpTo(53)), udpTo(54).Bytes(), twice, v2.Bytes(), marked(t, udpTo(55)))
	scan := func(keep func(*offline.Packet) bool, each func(*offline.Packet, inband.Observation) error) (offline.Totals, error) {
		r, err := capfile.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		return offline.Scan(r, offline.NewTable(), keep, each)
	}

	all := func(*offline.Packet) bool { return true }
	var errs []error
	sum, err := scan(all, func(p *offline.Packet, _ inband.Observation) error {
		errs = append(errs, p.Err)
		return nil
	})
	if d := cmp.Diff(offline.Totals{Frames: 5, Packets: 5, Marked: 2, Version2: 1, Malformed: 1}, sum); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if len(errs) != 4 || errs[0] != nil || !errors.Is(errs[1], pdm.ErrTwice) || !errors.Is(errs[2], pdm.ErrVersion2) || errs[3] != nil {
		t.Errorf("%v", errs)
	}

	sum, err = scan(func(p *offline.Packet) bool { return p.Dst.Port() == 55 }, func(*offline.Packet, inband.Observation) error { return nil })
	if d := cmp.Diff(offline.Totals{Frames: 5, Packets: 1, Marked: 1}, sum); d != "" || err != nil {
		t.Errorf("filtered: %v\n%s", err, d)
	}

	sum, err = scan(all, func(*offline.Packet, inband.Observation) error { return io.ErrClosedPipe })
	if !errors.Is(err, io.ErrClosedPipe) || sum.Frames != 1 {
		t.Errorf("stopped: %v, %+v", err, sum)
	}
}
