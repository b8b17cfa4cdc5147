package filter

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/suggest"
)

// without are words of tcpdump and Wireshark that have no meaning for flows, and
// what to write instead.
var without = map[string]string{
	"greater":    "flows have no packet length; filter by their sums, such as bytes > 1MB",
	"less":       "flows have no packet length; filter by their sums, such as bytes < 1MB",
	"len":        "flows have no packet length; filter by their sums, such as bytes > 1MB",
	"frame.len":  "flows have no packet length; filter by their sums, such as bytes > 1MB",
	"ether":      "flows have no MAC addresses; filter by iface, vlan or host",
	"eth.addr":   "flows have no MAC addresses; filter by iface, vlan or host",
	"broadcast":  "write the address, such as dst 255.255.255.255",
	"gateway":    "flows have no gateway; filter by iface or host",
	"arp":        "ARP is in no flow; waymark status counts such packets",
	"rarp":       "ARP is in no flow; waymark status counts such packets",
	"mpls":       "flows have no MPLS label",
	"protochain": "write proto: extension headers are skipped",
	"contains":   "flows have no payload",
	"matches":    "flows have no payload",
	"http":       "flows have no payload: did you mean port http?",
	"dns":        "flows have no payload: did you mean port dns?",
	"tls":        "flows have no payload: did you mean port https?",
	"from":       "did you mean src?",
	"source":     "did you mean src?",
	"to":         "did you mean dst?",
	"dest":       "did you mean dst?",
	"out":        "did you mean egress?",
	"since":      "times are not part of a filter: write --since 5m",
	"*":          "leave the filter out to see every flow",
	"any":        "leave the filter out to see every flow",
	"all":        "leave the filter out to see every flow",
}

// unknown reports a word that is no field, with what was likely meant.
func (p *parser) unknown(at token) error {
	text := strings.ToLower(at.text)
	if hint, ok := without[text]; ok {
		return p.fail(at, "unknown field %s: %s", at.text, hint)
	}
	if near := meant(text); near != "" {
		return p.fail(at, "unknown field %s: %s", at.text, near)
	}
	var names []string
	for i := range fields {
		if short := fields[i].short(); !strings.Contains(short, ".") {
			names = append(names, short)
		}
	}
	return p.fail(at, "unknown field %s; the fields are %s", at.text, strings.Join(names, ", "))
}

// meant suggests what to write in place of a word.
func meant(text string) string {
	if base, _, ok := strings.Cut(text, "["); ok && shorthands[base].node != nil {
		switch base {
		case "tcp":
			return "flows have no packet bytes; for TCP flags write tcp_flags syn+ack"
		case "icmp", "icmp6", "icmpv6":
			return "flows have no packet bytes; write icmp_type 8"
		}
		return "flows have no packet bytes; filter by a field"
	}
	if end, err := netip.ParseAddrPort(text); err == nil {
		return fmt.Sprintf("write host %s and port %d", end.Addr(), end.Port())
	}
	if inner := strings.Trim(text, "[]"); inner != text && isAddress(inner) {
		return "write host " + inner
	}
	if field, value, ok := strings.Cut(text, ":"); ok && phrases[field] != nil {
		return "write " + field + " " + value
	}
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return fmt.Sprintf("did you mean port %d?", n)
	}
	if near := nearestWord(text); near != "" {
		return "did you mean " + near + "?"
	}
	if _, ok := services[text]; ok {
		return "did you mean port " + text + "?"
	}
	if isName(text) && strings.Contains(text, ".") {
		return "did you mean host " + text + "?"
	}
	return ""
}

// nearestWord is the name of a field or a shorthand that resembles a word.
func nearestWord(text string) string {
	known := slices.Concat(slices.Sorted(maps.Keys(phrases)), Shorthands())
	if _, ok := services[strings.ToLower(text)]; ok {
		return ""
	}
	return suggest.Nearest(strings.ToLower(text), known)
}
