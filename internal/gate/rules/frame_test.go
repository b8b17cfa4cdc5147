package rules_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/packet"
)

// TestFrame: the frame of a description is what the builder of tests makes of it, and reads as what was described.
func TestFrame(t *testing.T) {
	v4, v6 := packet.Eth().IPv4("192.0.2.1", "198.51.100.2"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	const ends4, ends6 = "src 192.0.2.1 dst 198.51.100.2 ", "src 2001:db8::1 dst 2001:db8::2 "
	for text, want := range map[string]packet.Builder{
		ends4 + "udp src port 1000 dst port 53":           v4.UDP(1000, 53).Raw(make([]byte, 32)),
		ends4 + "udp dst port 53 len 29":                  v4.UDP(0, 53).Raw(make([]byte, 1)),
		ends4 + "tcp src port 40000 dst port 443 syn":     v4.TCP(40000, 443).Flags(packet.SYN).Raw(make([]byte, 20)),
		ends4 + "tcp dst port 443":                        v4.TCP(0, 443).Flags(packet.ACK).Raw(make([]byte, 20)),
		ends4 + "icmp type 8":                             v4.ICMP(8, 0, 0, 0).Raw(make([]byte, 32)),
		ends6 + "udp src port 1000 dst port 53":           v6.UDP(1000, 53).Raw(make([]byte, 12)),
		ends6 + "tcp src port 40000 dst port 443 len 100": v6.TCP(40000, 443).Flags(packet.ACK).Raw(make([]byte, 40)),
		ends6 + "icmpv6 type 128 len 100":                 v6.ICMPv6(128, 0, 0, 0).Raw(make([]byte, 52)),
	} {
		p, err := rules.ParsePacket(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := p.Frame()
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		frame := want.Bytes()
		copy(frame, make([]byte, 12)) // link addresses
		if p.Family == 4 {            // with the number by which fragments know each other
			copy(frame[18:20], got[18:20])
			copy(frame[24:26], got[24:26])
			if !headerIsRight(got[14:34]) {
				t.Errorf("%s: the checksum of %x is wrong", text, got)
			}
		}
		if !bytes.Equal(got, frame) {
			t.Errorf("%s is\n%x, not\n%x", text, got, frame)
		}
		if read := rules.ReadEthernet(got); read.Src != p.Src || read.Dst != p.Dst || read.Proto != p.Proto || read.Sport != p.Sport || read.Dport != p.Dport || read.ICMPType != p.ICMPType {
			t.Errorf("%s reads as %+v", text, read)
		}
	}
	for text, want := range map[string]string{
		"src 192.0.2.1 udp":             "two addresses",
		ends4 + "dscp 1":                "a protocol",
		ends4 + "tcp dst port 1 len 39": "too short",
	} {
		p, err := rules.ParsePacket(text)
		if err == nil {
			_, err = p.Frame()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func headerIsRight(b []byte) bool {
	sum := 0
	for i := 0; i < len(b); i += 2 {
		sum += int(b[i])<<8 | int(b[i+1])
	}
	return (sum>>16 + sum&0xffff) == 0xffff
}
