package offline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/test/packet"
)

// found are the bytes behind the IPv6 headers of a frame.
func found(link capfile.LinkType, frame []byte) (at []int) {
	headers(link, frame[:len(frame):len(frame)], func(pkt []byte) { at = append(at, whole(len(pkt), cap(pkt))) })
	return at
}

// whole is 0 where there is not even a header.
func whole(n, behind int) int {
	if n < 40 {
		return 0
	}
	return behind
}

// oracle are those that another library finds.
func oracle(link capfile.LinkType, frame []byte) (at []int) {
	data := frame[:len(frame):len(frame)]
	for _, l := range gopacket.NewPacket(data, layers.LinkType(link), gopacket.DecodeOptions{NoCopy: true}).Layers() {
		if ip, ok := l.(*layers.IPv6); ok {
			at = append(at, whole(len(ip.Contents), cap(ip.Contents)))
		}
	}
	return at
}

// Headers are found where another library finds them. It stops at fragments, at mobility headers and at some damage.
func TestHeaders(t *testing.T) {
	frames, same, other := 0, 0, ""
	rapid.Check(t, func(t *rapid.T) {
		frame := packet.Random().Draw(t, "frame")
		want, got := oracle(capfile.LinkEthernet, frame), found(capfile.LinkEthernet, frame)
		if frames++; slices.Equal(want, got) {
			same++
		} else {
			other = fmt.Sprintf("%x: IPv6 headers at %v from the end, want %v", frame, got, want)
		}
	})
	t.Logf("in %d of %d frames the same headers were found", same, frames)
	if same < frames*9/10 {
		t.Errorf("in %d of %d frames alone the same headers were found: %s", same, frames, other)
	}
}

// Tunnels and link layers that frames of tests have rarely. Cut anywhere, they are no trouble.
func TestHeadersOfTunnels(t *testing.T) {
	ip := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(40000, 53).Payload(20).Bytes()[14:]
	v4 := packet.Eth().IPv4("192.0.2.1", "192.0.2.2")
	raw := func(b packet.Builder, head ...byte) []byte { return b.Raw(append(head, ip...)).Bytes() }
	session := []byte{0x11, 0, 0, 1, 0, byte(len(ip) + 2), 0, 0x57}
	for name, c := range map[string]struct {
		link  capfile.LinkType
		frame []byte
	}{
		"MPLS":           {capfile.LinkEthernet, raw(packet.Eth().EtherType(0x8847), 0, 1, 0, 64, 0, 2, 1, 64)},
		"PPPoE":          {capfile.LinkEthernet, raw(packet.Eth().EtherType(0x8864), session...)},
		"PPP":            {capfile.LinkPPP, append([]byte{0, 0x57}, ip...)},
		"PPP in HDLC":    {capfile.LinkPPP, append([]byte{0xff, 3, 0, 0x57}, ip...)},
		"loopback":       {capfile.LinkLoop, append([]byte{0, 0, 0, 24}, ip...)},
		"GTP":            {capfile.LinkEthernet, raw(v4.UDP(2152, 2152), 0x30, 0xff, 0, byte(len(ip)), 0, 0, 0, 1)},
		"GTP, numbered":  {capfile.LinkEthernet, raw(v4.UDP(2152, 2152), 0x32, 0xff, 0, byte(len(ip)+4), 0, 0, 0, 1, 0, 7, 0, 0)},
		"GTP, extended":  {capfile.LinkEthernet, raw(v4.UDP(2152, 2152), 0x34, 0xff, 0, byte(len(ip)+8), 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0)},
		"GRE, all words": {capfile.LinkEthernet, raw(v4.NextHeader(47), 0xb0, 0, 0x86, 0xdd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1)},
	} {
		got, want := found(c.link, c.frame), oracle(c.link, c.frame)
		if !slices.Equal(got, want) || !slices.Equal(got, []int{len(ip)}) {
			t.Errorf("%s: IPv6 headers at %v, another library finds %v, want one at %d", name, got, want, len(ip))
		}
		for n := range c.frame {
			if got := found(c.link, c.frame[:n]); len(got) > 1 {
				t.Errorf("%s, cut at %d: %v", name, n, got)
			}
		}
	}
}
