package rules

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// The same packet, described and as bytes.
func TestPackets(t *testing.T) {
	const eth = "020000000002020000000001"
	for text, bytes := range map[string]string{
		"src 192.0.2.1 dst 198.51.100.2 tcp src port 40000 dst port 443 syn len 40 dscp 46": eth +
			"0800 45b80028 00010000 40060000 c0000201 c6336402 9c4001bb 00000000 00000000 50020000 00000000",
		"src 192.0.2.1 dst 198.51.100.2 icmp type 8 len 28":  "4500001c 00010000 40010000 c0000201 c6336402 08000000 00000000",
		"src 192.0.2.1 dst 198.51.100.2 udp len 24 fragment": "45000018 00010005 40110000 c0000201 c6336402 00350035",
		"src 2001:db8::1 dst 2001:db8::2 udp src port 53 dst port 53 len 56 vlan 7 fragment": eth +
			"81000007 86dd 60000000 00102cff 20010db8000000000000000000000001 20010db8000000000000000000000002 1100000100000001 0035003500080000",
		"src 2001:db8::1 dst 2001:db8::2 icmp6 type 128 len 52": "60000000 000c00ff 20010db8000000000000000000000001 20010db8000000000000000000000002 3a00000000000000 80000000",
	} {
		described, err := ParsePacket(text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		read, ok := ParseHex(bytes)
		if diff := cmp.Diff(described, read, compareAddrs); !ok || diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"": "expected a packet", "src 10/8": "a packet has one src", "tcp dst port 80-81": "a packet has one dst port",
		"tcp dst prot 80": "did you mean dst port?", "src example.org": "expected an address", "drop udp": "unexpected drop", "dst port 80": "ports need a protocol", "src @a": "not defined",
	} {
		if _, err := ParsePacket(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Cut off anywhere, a packet is read as far as it goes.
func FuzzReadEthernet(f *testing.F) {
	f.Add([]byte(strings.Repeat("\x86\xdd\x60\x00", 30)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for n := range min(len(data), 200) {
			ReadEthernet(data[:n])
			ReadIP(data[:n])
		}
	})
}

func TestControlConflicts(t *testing.T) {
	ssh := []Connection{{Remote: netip.MustParseAddrPort("192.0.2.9:50000"), Local: netip.MustParseAddrPort("198.51.100.2:22")}}
	for text, cut := range map[string]bool{
		"drop tcp dst port 22": true, "pass src 192.0.2.9\ndrop": false, "drop tcp flags syn/syn+ack": true, "drop src not 192.0.2.0/24": false,
		"drop iface eth7": true, "pass src 192.0.2.9 iface eth7\ndrop": true, "drop dry-run": false, "limit 1/s": false, "drop len > 1400": true,
		"drop tcp dst port 23": false, "drop ip6": false,
	} {
		rs, _ := parse(t, text)
		if list := rs.ControlConflicts(ssh, State{Now: now}); (len(list) > 0) != cut || cut && list[0].Rule.Action != ActionDrop {
			t.Errorf("%s: %v", text, list)
		}
	}
}
