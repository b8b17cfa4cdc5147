package wire

import (
	"net"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// frame serializes layers behind an Ethernet header.
func frame(t testing.TB, etherType layers.EthernetType, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: etherType}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true}
	if err := gopacket.SerializeLayers(buf, opts, append([]gopacket.SerializableLayer{eth}, l...)...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func ip4(proto layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: net.ParseIP("2001:db8::1"), DstIP: net.ParseIP("2001:db8::2")}
}

var (
	udp      = &layers.UDP{SrcPort: 40000, DstPort: 53}
	tcp      = &layers.TCP{SrcPort: 40000, DstPort: 443, SYN: true}
	payload  = gopacket.Payload("payload")
	destOpts = gopacket.Payload{17, 1, 0x0f, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0} // PDM before UDP
	hopByHop = gopacket.Payload{60, 0, 1, 4, 0, 0, 0, 0}                             // before destination options
	fragment = gopacket.Payload{17, 0, 0x05, 0xa8, 0, 0, 0, 1}                       // a later one
)

func TestMatch(t *testing.T) {
	const ip, ipv6 = layers.EthernetTypeIPv4, layers.EthernetTypeIPv6
	withOptions := ip4(layers.IPProtocolUDP)
	withOptions.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
	later := ip4(layers.IPProtocolUDP)
	later.FragOffset = 181
	udpBytes := gopacket.Payload(frame(t, ip, udp, payload)[14:])
	vlan := &layers.Dot1Q{VLANIdentifier: 5, Type: ip}
	for _, c := range []struct {
		name  string
		frame []byte
		want  string // the matches of Matches that take it
	}{
		{"arp", frame(t, layers.EthernetTypeARP, gopacket.Payload(make([]byte, 46))), ""},
		{"udp", frame(t, ip, ip4(layers.IPProtocolUDP), udp, payload), "ip udp udp/53 udp/40000"},
		{"udp, vlan", frame(t, layers.EthernetTypeDot1Q, vlan, ip4(layers.IPProtocolUDP), udp, payload), "ip udp udp/53 udp/40000"},
		{"udp, options", frame(t, ip, withOptions, udp, payload), "ip udp udp/53 udp/40000"},
		{"udp, later fragment", frame(t, ip, later, udpBytes), "ip udp"},
		{"tcp", frame(t, ip, ip4(layers.IPProtocolTCP), tcp), "ip tcp tcp/443"},
		{"icmp", frame(t, ip, ip4(layers.IPProtocolICMPv4), gopacket.Payload(make([]byte, 8))), "ip icmp"},
		{"udp6", frame(t, ipv6, ip6(layers.IPProtocolUDP), udp, payload), "ip udp udp/53 udp/40000"},
		{"tcp6", frame(t, ipv6, ip6(layers.IPProtocolTCP), tcp), "ip tcp tcp/443"},
		{"pdm", frame(t, ipv6, ip6(60), destOpts, udpBytes), "ip udp udp/53 udp/40000 destination-options"},
		{"pdm behind hop-by-hop", frame(t, ipv6, ip6(0), hopByHop, destOpts, udpBytes), "ip udp udp/53 udp/40000 destination-options"},
		{"udp6, later fragment", frame(t, ipv6, ip6(44), fragment, udpBytes), "ip udp"},
		{"echo6", frame(t, ipv6, ip6(layers.IPProtocolICMPv6), gopacket.Payload{128, 0, 0, 0, 0, 0, 0, 0}), "ip icmpv6"},
		{"neighbour solicitation", frame(t, ipv6, ip6(layers.IPProtocolICMPv6), gopacket.Payload{135, 0, 0, 0, 0, 0, 0, 0}), ""},
	} {
		want := map[string]bool{}
		for name := range strings.FieldsSeq(c.want) {
			want[name] = true
		}
		for _, name := range []string{"ip", "udp", "tcp", "icmp", "icmpv6", "udp/53", "udp/40000", "udp/1", "tcp/443", "tcp/53", "destination-options"} {
			m, err := ParseMatch(name)
			if err != nil {
				t.Fatal(err)
			}
			if got := m(c.frame); got != want[name] {
				t.Errorf("%s matches %s: %v, want %v", c.name, name, got, want[name])
			}
		}
	}
	for _, bad := range []string{"", "sctp", "udp/", "udp/65536", "icmp/8", "udp/-1", "/53"} {
		if _, err := ParseMatch(bad); err == nil {
			t.Errorf("ParseMatch(%q) took it", bad)
		}
	}
}

// Whatever comes in, a match only looks.
func FuzzMatch(f *testing.F) {
	f.Add(frame(f, layers.EthernetTypeIPv6, ip6(0), hopByHop, destOpts, payload))
	f.Add(frame(f, layers.EthernetTypeIPv4, ip4(layers.IPProtocolUDP), udp))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		h := parse(data)
		if h.hasPorts && !h.ip || h.ndp && h.proto != protoICMPv6 {
			t.Errorf("%x is parsed as %+v", data, h)
		}
	})
}
