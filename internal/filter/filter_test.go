package filter

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

func web() flow.Record {
	return flow.Record{
		Iface: "eth0.100", Netns: "blue", Direction: flow.Egress, Family: 6,
		Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8:1::2"),
		Proto: 6, SrcPort: 50000, DstPort: 443, VLAN: 100, TOS: 46<<2 | 1, TCPFlags: 0x12,
		TTLMin: 63, TTLMax: 64, FlowLabel: 0xbeef, Tunnel: flow.TunnelVXLAN, VNI: 5000,
		Counters:  flow.Counters{Packets: 100, Bytes: 150_000, PayloadBytes: 140_000, WireBytes: 151_400, CEPackets: 2},
		EndReason: flow.EndReasonIdleTimeout,
		RTT:       flow.RTT{Responder: 8 * time.Millisecond, Initiator: 4 * time.Millisecond},
	}
}

func ping() flow.Record {
	return flow.Record{
		Iface: "eth0", Family: 4, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.1.1"),
		Proto: 1, SrcPort: 77, DstPort: 8 << 8, Counters: flow.Counters{Packets: 3, Bytes: 252},
	}
}

func lost() flow.Record {
	return flow.Record{Iface: "eth0", Family: 6, Proto: 17, Counters: flow.Counters{Packets: 1000}, Unattributed: true}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		text             string
		web, ping, lostR bool
	}{
		{"", true, true, true},
		{"  \t\n", true, true, true},
		{"proto tcp and dport 443 and src 2001:db8::/32 and iface eth0.100 and packets > 99", true, false, false},
		{"tcp", true, false, false},
		{"TCP AND Ipv6 Or NOT Proto TCP", true, true, true},
		{"udp or icmp", false, true, true},
		{"not tcp", false, true, true},
		{"! tcp && ! udp", false, true, false},
		{"proto 6,1", true, true, false},
		{"proto != tcp", false, true, true},
		{"ipv4", false, true, false},
		{"family 6", true, false, true},
		{"ip 10.0.0.1", false, true, false},
		{"host 10.0.1.1", false, true, false},
		{"addr 2001:db8:1::/48", true, false, false},
		{"addr != 10.0.0.0/8", true, false, true},
		{"src 10.0.0.0/8,2001:db8::1", true, true, false},
		{"dst 0.0.0.0/0", false, true, false},
		{"dst ::/0", true, false, false},
		{"port 443", true, false, false},
		{"port 50000", true, false, false},
		{"port 77", false, false, false},
		{"port < 1024", true, false, false},
		{"sport 77", false, true, false},
		{"sport 0", false, false, false},
		{"dport 80,443,8000-8099", true, false, false},
		{"dport 400-500", true, false, false},
		{"dport != 443", false, true, true},
		{"icmp_type 8 and icmp_code 0", false, true, false},
		{"icmp_type != 8", true, false, true},
		{"egress", true, false, false},
		{"direction ingress", false, true, true},
		{"dir=egress", true, false, false},
		{"dir in", false, true, true},
		{"direction = in", false, true, true},
		{"dir in and bytes > 0 or direction outbound", true, true, false},
		{"(dir in) and not dir out", false, true, true},
		{"dir out", true, false, false},
		{"dir in [out, inbound]", true, true, true},
		{"dir in [in]", false, true, true},
		{"dir in,out", true, true, true},
		{"direction in egress", true, false, false},
		{"dir not in [out]", false, true, true},
		{"iface eth0", false, true, true},
		{"iface eth0*", true, true, true},
		{`iface "eth0.100"`, true, false, false},
		{"iface eth[01].?00", true, false, false},
		{"netns blue", true, false, false},
		{`netns ""`, false, true, true},
		{"vlan 100 and vlan<=100 and vlan>=100", true, false, false},
		{"tunnel vxlan and vni 5k", true, false, false},
		{"tunnel none", false, true, true},
		{"dscp 46 and ecn 1 and tos 185", true, false, false},
		{"flags syn", true, false, false},
		{"flags syn+ack", true, false, false},
		{"flags syn,fin", true, false, false},
		{"flags syn+fin", false, false, false},
		{"flags 0", false, false, false},
		{"ttl_min 63 and ttl_max > 63 and flow_label 48879", true, false, false},
		{"bytes > 100k", true, false, false},
		{"bytes >= 146Ki and bytes < 1Mi", true, false, false},
		{"packets 1000", false, false, true},
		{"payload_bytes 140000 and wire_bytes 151400 and ce_packets 2 and fragments 0", true, false, false},
		{"rtt > 10ms", true, false, false},
		{"rtt < 1h", true, false, false},
		{"rtt 12ms and rtt_responder 8ms and rtt.initiator_ns 1ms-5ms", true, false, false},
		{"end_reason idle_timeout", true, false, false},
		{"unattributed", false, false, true},
		{"not unattributed", true, true, false},
		{"tcp or udp and packets > 500", true, false, true},
		{"(tcp or udp) and packets > 500", false, false, true},
		{"not (tcp or icmp)", false, false, true},
		{"not not tcp", true, false, false},
	} {
		f, err := Parse(tt.text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, one := range []struct {
			name   string
			record flow.Record
			want   bool
		}{{"web", web(), tt.web}, {"ping", ping(), tt.ping}, {"lost", lost(), tt.lostR}} {
			if got := f.Match(&one.record); got != one.want {
				t.Errorf("%q on %s = %v, want %v", tt.text, one.name, got, one.want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, what, mark string }{
		{"dprot 443", "unknown field dprot: did you mean dport?", "dprot"},
		{"colour blue", "unknown field colour; the fields are iface, netns", "colour"},
		{"dport", "expected a value after dport: dport 443, dport 80,8000-8099", ""},
		{"dport and", "expected a value after dport", "and"},
		{"dport ,", "expected a value after dport", ","},
		{"dport 80,", "expected a value after dport", ""},
		{"dport htps", "dport htps: unknown service htps: did you mean https?", "htps"},
		{"dport 65536", "dport 65536: the largest value is 65535", "65536"},
		{"dport 90-80", "dport 90-80: the smaller end comes first", "90-80"},
		{"dport > 1-2", "> takes one value, not a range or a list", ">"},
		{"dport > 1,2", "> takes one value, not a range or a list", ">"},
		{"src > 10.0.0.1", "src has no order: use = or !=", ">"},
		{"src 10.0.0", "src 10.0.0: this address is incomplete; for a network write net 10.0.0", "10.0.0"},
		{"src fe80::1%eth0", "flows have no zones: write fe80::1 and iface eth0", "fe80::1%eth0"},
		{"src 10.0.0.1/8", "src 10.0.0.1/8: bits are set after the prefix: did you mean 10.0.0.0/8, or the address 10.0.0.1?", "10.0.0.1/8"},
		{"proto tpc", "proto tpc: unknown protocol: did you mean tcp?", "tpc"},
		{"tcp dst prt 5202", `tcp dst prt: did you mean dst port?`, "prt"},
		{"src prot 53 and udp", `src prot: did you mean src port?`, "prot"},
		{"direction eggress", `direction eggress: did you mean egress?`, "eggress"},
		{"family 5", `family 5: it is one of 4, 6`, "5"},
		{"flags sny", `flags sny: unknown flag "sny"`, "sny"},
		{"rtt > 10", `rtt 10: write a duration with its unit`, "10"},
		{"iface eth[", `iface eth[: this pattern is incomplete`, "eth["},
		{"bytes > 1Q", `bytes 1Q: write a number of bytes`, "1Q"},
		{"bytes > 99999999999999T", `bytes 99999999999999T: write a number of bytes`, "99999999999999T"},
		{"(tcp", "this parenthesis is never closed", "("},
		{"tcp)", "unexpected ): no parenthesis is open", ")"},
		{"tcp udp", `expected "and" or "or" before udp`, "udp"},
		{"tcp pdm", `expected "and" or "or" before pdm`, "pdm"},
		{"dport 80 sport 1", `expected "and" or "or" before sport`, "sport"},
		{"tcp and", "expected a test", ""},
		{"and tcp", "expected a test", "and"},
		{"()", "expected a test", ")"},
		{"= 3", "expected a test", "="},
		{`"dport" 3`, "expected a test", `"dport"`},
		{`iface "eth`, "this quote is never closed", `"`},
		{"tcp & udp", `unexpected "&": write &&`, "&"},
		{strings.Repeat("(", 100) + "tcp", "nested more than 64 deep", "("},
		{strings.Repeat("not ", 100) + "tcp", "nested more than 64 deep", "not"},
		{strings.Repeat(" ", 5000), "longer than 4096 bytes", ""},
	} {
		_, err := Parse(tt.text)
		checkError(t, tt.text, err, tt.what, tt.mark)
	}
}

// checkError checks what an error says, and which part of the text it marks.
func checkError(t *testing.T, text string, err error, what, mark string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%q: %v, want an *Error", text, err)
		return
	}
	if !strings.Contains(e.What, what) {
		t.Errorf("%q: %q, want %q", text, e.What, what)
	}
	if got := e.Text[e.Pos:e.End]; got != mark {
		t.Errorf("%q marks %q, want %q", text, got, mark)
	}
}

func TestErrorShowsThePlace(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{
			"proto tcp and\tdprot 443",
			"filter: unknown field dprot: did you mean dport?\n" +
				"  proto tcp and dprot 443\n" +
				"                ^^^^^",
		},
		{
			"iface \"ü\" and",
			"filter: expected a test, such as dport 443\n" +
				"  iface \"ü\" and\n" +
				"               ^",
		},
		{
			strings.Repeat("tcp and ", 20) + "upd and " + strings.Repeat("tcp and ", 20) + "tcp",
			"filter: unknown field upd: did you mean udp?\n" +
				"  …d tcp and tcp and tcp and tcp and tcp and tcp and upd and tcp and tcp and tcp and tcp and tcp and tcp a…\n" +
				"                                                     ^^^",
		},
	} {
		_, err := Parse(tt.text)
		if err == nil {
			t.Errorf("%q: accepted", tt.text)
			continue
		}
		if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestMarkedFlows(t *testing.T) {
	var h inband.Histogram
	h.Add(41_000_000)
	h.Add(90_000_000)
	answered := flow.Record{Family: 6, PDM: &flow.PDM{Received: 2, Lost: 3, Server: flow.DelaysOf(&h)}}
	sent := flow.Record{Family: 6, PDM: &flow.PDM{Sent: 2, Lost: -1}}
	for _, tt := range []struct {
		text                  string
		answered, sent, plain bool
	}{
		{"pdm", true, true, false},
		{"not marked", false, false, true},
		{"lost > 0", true, false, false},
		{"pdm.sent 2", false, true, false},
		{"server > 40ms", true, false, false},
		{"server > 42ms", false, false, false},
		{"server_p99 > 80ms and pdm.received 2", true, false, false},
		{"network > 1ns", false, false, false},
		{"suspicious 0", true, true, false},
	} {
		f, err := Parse(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if a, s, p := f.Match(&answered), f.Match(&sent), f.Match(&flow.Record{}); a != tt.answered || s != tt.sent || p != tt.plain {
			t.Errorf("%s means %v, %v, %v; want %v, %v, %v", tt.text, a, s, p, tt.answered, tt.sent, tt.plain)
		}
	}
}

// Every field of the JSON record can be named, but for those that no one filters by.
func TestFieldsOfTheRecord(t *testing.T) {
	without := map[string]string{
		"host":     "is the same in all records of an agent; host means an address here",
		"first":    "is a matter of --since",
		"last":     "is a matter of --since",
		"sampling": "is the same in all records of an agent",
	}
	for _, object := range []string{"pdm.server.", "pdm.network."} {
		without[object+"buckets"] = "is meant by the percentiles"
	}
	for _, f := range flow.Fields {
		got := fieldNamed(f.Name)
		if why, ok := without[f.Name]; ok != (got == nil || got.name != f.Name) {
			t.Errorf("field %s: found %v, but it %s", f.Name, got != nil, why)
		}
	}
	seen := map[string]bool{}
	for _, f := range fields {
		for _, name := range append([]string{f.name}, f.aliases...) {
			if seen[name] || isKeyword(name) {
				t.Errorf("two meanings of %s", name)
			}
			seen[name] = true
		}
		if f.doc == "" {
			t.Errorf("%s has no doc", f.name)
		}
	}
}
