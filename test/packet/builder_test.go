package packet

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// wellFormed are packets of every layer that gopacket both reads and writes.
func wellFormed() map[string]Builder {
	return map[string]Builder{
		"udp":             eth4.UDP(41000, 42000).Payload(11),
		"udp6":            eth6.UDP(41000, 42000).Payload(12),
		"tcp":             eth4.TCP(1000, 80).Flags(SYN|ACK).Seq(1<<31).Ack(7).Options(2, 4, 5, 0xb4),
		"tcp6":            Eth().VLAN(5).IPv6(a6, b6).TOS(0xb9).FlowLabel(0xabcde).TTL(3).TCP(1, 2).Payload(1001),
		"qinq":            Eth().QinQ(7).VLAN(0x2005).IPv4(a4, b4).TTL(9).TOS(0x2e).UDP(5, 6).Payload(9),
		"icmp":            eth4.ICMP(EchoRequest, 0, 7, 8).Payload(33),
		"icmp6":           eth6.ICMPv6(EchoReplyV6, 0, 7, 8).Payload(33),
		"sctp":            eth4.SCTP(1000, 2000, 77),
		"udplite":         eth6.UDPLite(1000, 2000),
		"gre":             eth4.GRE(GREKey|GRESequence, 9, 10).IPv4(c4, d4).UDP(1, 2).Payload(3),
		"gre checksum":    eth4.GRE(GREChecksum, 0, 0).IPv4(c4, d4).UDP(1, 2).Payload(3),
		"vxlan":           eth4.UDP(9, PortVXLAN).VXLAN(0xabcdef).Eth().IPv6(c6, d6).TCP(1, 2).Payload(3),
		"ipip":            eth4.IPv4(c4, d4).UDP(1, 2).Payload(3),
		"6in4":            eth4.IPv6(c6, d6).UDP(1, 2).Payload(3),
		"ip6ip6":          eth6.IPv6(c6, d6).UDP(1, 2).Payload(3),
		"arp":             Eth().ARP(a4, b4),
		"largest udp":     eth4.UDP(41000, 42000).Payload(65535 - 28),
		"udp checksum ff": eth4.UDP(41000, 42000).Raw(zeroSum(eth4.UDP(41000, 42000))),
	}
}

// zeroSum is a payload of two bytes with which the UDP checksum is 0, sent as 0xffff.
func zeroSum(b Builder) []byte {
	sum := b.Raw([]byte{0, 0}).Bytes()[40:42]
	return []byte{sum[0], sum[1]}
}

// gopacket, which computes lengths and checksums, writes the same bytes.
func TestBytesAsGopacketWrites(t *testing.T) {
	for name, b := range wellFormed() {
		t.Run(name, func(t *testing.T) {
			want := b.Bytes()
			p := gopacket.NewPacket(want, layers.LayerTypeEthernet, gopacket.Default)
			if e := p.ErrorLayer(); e != nil {
				t.Fatalf("gopacket can't decode it: %v", e.Error())
			}
			var network gopacket.NetworkLayer
			var parts []gopacket.SerializableLayer
			for _, l := range p.Layers() {
				if n, ok := l.(gopacket.NetworkLayer); ok {
					network = n
				}
				if s, ok := l.(interface {
					SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
				}); ok {
					if err := s.SetNetworkLayerForChecksum(network); err != nil {
						t.Fatal(err)
					}
				}
				s, ok := l.(gopacket.SerializableLayer)
				if !ok {
					// Layers that gopacket can't write hold plain bytes.
					s = gopacket.Payload(l.LayerContents())
				}
				parts = append(parts, s)
			}
			buf := gopacket.NewSerializeBuffer()
			opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
			if err := gopacket.SerializeLayers(buf, opts, parts...); err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(buf.Bytes(), want) {
				t.Errorf("differs from gopacket (-gopacket +ours):\n%s", cmp.Diff(buf.Bytes(), want))
			}
		})
	}
}

func TestZeroUDPChecksumIsSentAsOnes(t *testing.T) {
	frame := eth4.UDP(41000, 42000).Raw(zeroSum(eth4.UDP(41000, 42000))).Bytes()
	if got := frame[40:42]; !bytes.Equal(got, []byte{0xff, 0xff}) {
		t.Errorf("UDP checksum %x, want ffff", got)
	}
}

func TestOverrides(t *testing.T) {
	right := eth4.UDP(41000, 42000).Payload(4).Bytes()
	tests := map[string]struct {
		b    Builder
		at   int
		want []byte
	}{
		"IHL":            {eth4.IHL(15).UDP(1, 2), 14, []byte{0x4f}},
		"version":        {eth4.Version(9).UDP(1, 2), 14, []byte{0x95}},
		"total length":   {eth4.TotalLength(3).UDP(1, 2), 16, []byte{0, 3}},
		"protocol":       {eth4.NextHeader(99).UDP(1, 2), 23, []byte{99}},
		"checksum":       {eth4.Checksum(0xbeef).UDP(1, 2), 24, []byte{0xbe, 0xef}},
		"payload length": {eth6.PayloadLength(7).UDP(1, 2), 18, []byte{0, 7}},
		"Hdr Ext Len":    {eth6.DestOpts().HdrExtLen(9).UDP(1, 2), 54, []byte{ProtoUDP, 9}},
		"UDP length":     {eth4.UDP(1, 2).UDPLength(1), 38, []byte{0, 1}},
		"data offset":    {eth4.TCP(1, 2).Flags(0xfff).DataOffset(15), 46, []byte{0xff, 0xff}},
		"EtherType":      {Eth().EtherType(0x1234).IPv4(a4, b4), 12, []byte{0x12, 0x34}},
		"bytes":          {eth4.UDP(1, 2).Set(2, 9), 36, []byte{9}},
		"padding":        {eth4.UDP(41000, 42000).Payload(4).PadTo(60), 0, append(right, make([]byte, 14)...)},
	}
	for name, tt := range tests {
		if got := tt.b.Bytes()[tt.at:][:len(tt.want)]; !bytes.Equal(got, tt.want) {
			t.Errorf("%s: bytes at %d are %x, want %x", name, tt.at, got, tt.want)
		}
	}
}

// A common beginning may be continued twice.
func TestBuilderIsAValue(t *testing.T) {
	base := eth4.TCP(1, 2)
	before := base.Bytes()
	base.Flags(SYN).Options(1, 1, 1, 1).DataOffset(9).Payload(9)
	if !bytes.Equal(base.Bytes(), before) {
		t.Error("continuing a packet changed its beginning")
	}
}

// The fragments together carry what the whole packet carries.
func TestSplit(t *testing.T) {
	for name, tt := range map[string]struct {
		b      Builder
		header int // bytes before the cut part
	}{
		"ipv4": {eth4.Options(1, 1, 1, 1).UDP(1, 2).Payload(3001), 14 + 24},
		"ipv6": {eth6.HopByHop().Fragment(0, false, 5).DestOpts().TCP(1, 2).Payload(3001), 14 + 40 + 8 + 8},
	} {
		var joined []byte
		for _, f := range tt.b.Split(1024, 5) {
			joined = append(joined, f[tt.header:]...)
		}
		if whole := tt.b.Bytes()[tt.header:]; !bytes.Equal(joined, whole) {
			t.Errorf("%s: fragments carry %d bytes that differ from the whole's %d", name, len(joined), len(whole))
		}
	}
}
