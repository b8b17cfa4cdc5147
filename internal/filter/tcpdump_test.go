package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

// names stand in for DNS and /etc/services.
var names = Names{
	Hosts: func(name string) ([]netip.Addr, error) {
		if name == "www.example.com" || name == "web" {
			return []netip.Addr{netip.MustParseAddr("192.0.2.80"), netip.MustParseAddr("2001:db8::80"), netip.MustParseAddr("::ffff:192.0.2.80")}, nil
		}
		return nil, fmt.Errorf("no such host")
	},
	Services: func(name string) (uint16, error) {
		if name == "ourapp" {
			return 8099, nil
		}
		return 0, errors.New("unknown")
	},
}

// What people type for tcpdump and Wireshark, and what it means here.
func TestAsTcpdump(t *testing.T) {
	for text, want := range map[string]string{
		"src port 53":                                 "sport 53",
		"dst host 10.0.0.1":                           "dst 10.0.0.1",
		"src net 10/8":                                "src 10.0.0.0/8",
		"net 10":                                      "addr 10.0.0.0/8",
		"net 192.168.1":                               "addr 192.168.1.0/24",
		"net 192.168.1.0/24":                          "addr 192.168.1.0/24",
		"dst net 172.16/12":                           "dst 172.16.0.0/12",
		"net 2001:db8::/32":                           "addr 2001:db8::/32",
		"tcp port 443":                                "proto tcp and port 443",
		"udp dst port 53":                             "proto udp and dport 53",
		"udp dst port 53 and src net 10/8":            "(proto udp and dport 53) and src 10.0.0.0/8",
		"not tcp port 22":                             "not (proto tcp and port 22)",
		"tcp dport 80":                                "proto tcp and dport 80",
		"portrange 8000-8099":                         "port 8000-8099",
		"tcp src portrange 1024-65535":                "proto tcp and sport 1024-65535",
		"port 443 or 8080":                            "port 443 or port 8080",
		"tcp port 443 or 8080":                        "proto tcp and port 443 or proto tcp and port 8080",
		"port 443 or 8080 and host 10.0.0.1":          "port 443 or port 8080 and addr 10.0.0.1",
		"port (443 or 8080) and tcp":                  "(port 443 or port 8080) and proto tcp",
		"host (10.0.0.1 and 10.0.0.2)":                "addr 10.0.0.1 and addr 10.0.0.2",
		"not host 10.0.0.1 and 10.0.0.2":              "not addr 10.0.0.1 and addr 10.0.0.2",
		"src 10.0.0.1 or 10.0.0.2":                    "src 10.0.0.1 or src 10.0.0.2",
		"port https":                                  "port 443",
		"dst port ssh or http or 8000-8099":           "dport 22 or dport 80 or dport 8000-8099",
		"port HTTP,https,ms-sql-s":                    "port 80,443,1433",
		"port ftp-data-telnet":                        "",
		"port in [80, 443, 8000-8099]":                "port 80,443,8000-8099",
		"port in {80 443 8000..8099}":                 "port 80,443,8000-8099",
		"tcp dst port in (80,https) and src 10/8":     "(proto tcp and dport 80,443) and src 10.0.0.0/8",
		"port in 80,443":                              "port 80,443",
		"port not in [80,443]":                        "port != 80,443",
		"iface in [eth[01], \"veth*\"] and port 80":   "iface eth[01],veth* and port 80",
		"tcp.flags.syn":                               "tcp_flags syn",
		"tcp.flags.syn == 1 && tcp.flags.ack == 0":    "tcp_flags syn and not tcp_flags ack",
		"tcp.flags.reset != 0":                        "tcp_flags rst",
		"tcp.port == 443 || udp.dstport in {53, 853}": "proto tcp and port 443 or proto udp and dport 53,853",
		"ip.addr == 10.0.0.1 and ipv6.src != ::1":     "(family 4 and addr 10.0.0.1) and (family 6 and src != ::1)",
		"10.0.4.2":                                    "addr 10.0.4.2",
		"10.0.4.2 and not 10.0.4.3":                   "addr 10.0.4.2 and not addr 10.0.4.3",
		"2001:db8::/32 or 10/8":                       "addr 2001:db8::/32 or addr 10.0.0.0/8",
		"port 80 and 10.0.4.2":                        "port 80 and addr 10.0.4.2",
		"TCP AND PORT 443 OR NOT UDP":                 "proto tcp and port 443 or not proto udp",
		"Src Or Dst Port 80":                          "port 80",
		"src and dst port 123":                        "sport 123 and dport 123",
		"src and dst net 10/8":                        "src 10.0.0.0/8 and dst 10.0.0.0/8",
		"ip host 10.0.0.1 and ip6":                    "(family 4 and addr 10.0.0.1) and family 6",
		"ip proto \\tcp":                              "family 4 and proto tcp",
		"ip6 proto 17":                                "family 6 and proto udp",
		"esp or gre or igmp":                          "proto esp or proto gre or proto igmp",
		"proto tcp or 17":                             "proto tcp or proto udp",
		"vlan and tcp":                                "vlan != 0 and proto tcp",
		"vlan 100 or 200":                             "vlan 100 or vlan 200",
		"ip multicast":                                "",
		"multicast":                                   "dst 224.0.0.0/4,ff00::/8",
		"inbound and outbound":                        "direction ingress and direction egress",
		"bytes > 1MB":                                 "bytes > 1000000",
		"bytes > 1M and bytes < 1.5m":                 "bytes > 1000000 and bytes < 1500000",
		"bytes 1KiB-2kib or wire_bytes >= 0.5GiB":     "bytes 1024-2048 or wire_bytes >= 536870912",
		"packets > 10k":                               "packets > 10000",
		"rtt > 1.5s or rtt < 1d":                      "rtt.handshake_ns > 1.5s or rtt.handshake_ns < 24h0m0s",
		"rtt 1ms-2ms":                                 "rtt.handshake_ns 1ms-2ms",
		"pdm = true and unattributed == 0":            "pdm and not unattributed",
		"tcp_flags tcp-syn+tcp-ack":                   "tcp_flags syn+ack",
		"host www.example.com":                        "addr 192.0.2.80,2001:db8::80",
		"src host web or 10.0.0.1":                    "src 192.0.2.80,2001:db8::80 or src 10.0.0.1",
		"host 10.0.0.1 or web":                        "addr 10.0.0.1 or addr 192.0.2.80,2001:db8::80",
		"tcp dst host web and port ourapp":            "(proto tcp and dst 192.0.2.80,2001:db8::80) and port 8099",
		`iface "in" or iface in in`:                   "",
		`iface "and"`:                                 `iface "and"`,
		`iface "In"`:                                  `iface "In"`,
	} {
		f, err := ParseNames(text, names)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: read as %s, want an error", text, f)
		case want != "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && f.String() != want:
			t.Errorf("%s: read as %s, want %s", text, f, want)
		}
	}
}

// An error names what the user wrote, and what to write instead.
func TestErrorsOfTcpdumpUsers(t *testing.T) {
	for _, tt := range []struct{ text, what, mark string }{
		{"src port htps", "src port htps: unknown service htps: did you mean https?", "htps"},
		{"src port 65536", "src port 65536: the largest value is 65535", "65536"},
		{"udp dst port", "expected a value after udp dst port: dport 443", ""},
		{"src and dst port 80-", "src and dst port 80-: write a whole number", "80-"},
		{"port 443 or udq", "unknown field udq: did you mean udp?", "udq"},
		{"port 443 or 8080k", "port 8080k: the largest value is 65535", "8080k"},
		{"iface eth0 or eth1", "unknown field eth1", "eth1"},
		{"iface eth0 or dprot 80", "unknown field dprot: did you mean dport?", "dprot"},
		{"443", "unknown field 443: did you mean port 443?", "443"},
		{"tcp 443", `expected "and" or "or" before 443`, "443"},
		{"https", "unknown field https: did you mean port https?", "https"},
		{"www.example.com", "unknown field www.example.com: did you mean host www.example.com?", "www.example.com"},
		{"10.0.0.1:443", "unknown field 10.0.0.1:443: write host 10.0.0.1 and port 443", "10.0.0.1:443"},
		{"host [2001:db8::1]:443", "write host 2001:db8::1 and port 443", "[2001:db8::1]:443"},
		{"[2001:db8::1]", "write host 2001:db8::1", "[2001:db8::1]"},
		{"host [2001:db8::1]", "write the address without brackets: 2001:db8::1", "[2001:db8::1]"},
		{"host 80", "did you mean port 80?", "80"},
		{"host 10.0.0", "for a network write net 10.0.0", "10.0.0"},
		{"host nosuch", "host nosuch: no such host", "nosuch"},
		{"host 10.0.0.1 or nosuchhost", "host nosuchhost: no such host", "nosuchhost"},
		{"port:443", "unknown field port:443: write port 443", "port:443"},
		{"greater 100", "flows have no packet length", "greater"},
		{"ether host 02:00:00:00:00:01", "flows have no MAC addresses", "ether"},
		{"arp", "ARP is in no flow", "arp"},
		{"tcp[tcpflags] & tcp-syn != 0", "for TCP flags write tcp_flags syn+ack", "tcp[tcpflags]"},
		{"icmp[icmptype] = 8", "write icmp_type 8", "icmp[icmptype]"},
		{"net 10.0.0.0 mask 255.0.0.0", "write the length of the prefix", "mask"},
		{"bytes > 1 MB", "write the unit without a blank before it, such as 10MB", "MB"},
		{"1M < bytes < 2M", "unknown field 1M", "1M"},
		{"bytes > 1M < 2M", "unexpected <: write one field, one operator and one value", "<"},
		{"port in [80, 443", "this list is never closed", "["},
		{"port in []", "expected a value after port", "]"},
		{"port in", "expected a value after port", ""},
		{"tcp.flags.syn == 2", "tcp.flags.syn is true or false", "=="},
		{"tcp.flags.sin", "did you mean tcp.flags.syn?", "tcp.flags.sin"},
		{"from 10.0.0.1", "did you mean src?", "from"},
		{"src port 80 or", "expected a test", ""},
	} {
		_, err := ParseNames(tt.text, names)
		checkError(t, tt.text, err, tt.what, tt.mark)
	}
}

// Without a resolver, as in the agent, a name is an error that says so.
func TestNamesNeedAResolver(t *testing.T) {
	for _, text := range []string{"host web", "src web", "10.0.0.1 or web", "port ourapp"} {
		if f, err := Parse(text); err == nil {
			t.Errorf("%s: read as %s, want an error", text, f)
		}
	}
}
