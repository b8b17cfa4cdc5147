package main

import (
	"io"
)

const rulesLead = "A rule file says what happens to packets, with one rule per line. A rule is an action and conditions, all of which must hold:\n" +
	"`drop udp dst port 1900 len > 400`. A rule without conditions matches every packet. `#` begins a comment. Words and names of other\n" +
	"tools have their meaning where there is no doubt; `waymark rules check` reports errors with the remedy, and `waymark rules explain`\n" +
	"shows which rule decides about a packet. The [how-to](../how-to/gate.md) shows how\n" +
	"the agent applies rules."

const rulesOrder = "A packet meets the rules in the order of the file until one decides: the first match that decides wins. Without one the packet passes.\n" +
	"Write allow lists in front of ban lists. Every rule counts the packets that match, up to the one that decides. Rules apply to IPv4\n" +
	"and IPv6 packets; other frames (ARP, LLDP) always pass.\n\n" +
	"A condition about something that a packet lacks does not hold, negated or not: ports in later fragments, VLAN of an untagged frame,\n" +
	"everything behind a malformed header. To match fragments write `fragment`."

// ruleActions, ruleConditions and so on are the language by example; each example is tested.
var ruleActions = []struct{ text, means string }{
	{"pass src 192.0.2.7", "decides: the packet goes on"},
	{"drop src @blocked", "decides: the packet is dropped"},
	{"limit 10000/s per src udp dst port 53", "drops packets beyond 10,000 per second and source address; packets within the limit go on to the next rule"},
	{"limit 5MB/s burst 1MB per src/24/64", "in bytes by the IP header, per prefix of the source: 24 bits of IPv4, 64 of IPv6. Without `per`, or with `per rule`, all packets share the limit. The burst is what passes at once: without it that of one second, and at least 65535 bytes"},
	{"count tcp flags syn", "counts, and decides nothing"},
	{"sample every 100 udp", "copies one of 100 packets that match to `waymark capture`, if somebody captures; decides nothing"},
	{"tap udp dst port 4789", "what passes goes to `waymark tap` instead of the stack, if somebody taps ([how-to](../how-to/tap.md)); `tap every 100` selects one of 100 packets; decides nothing"},
	{"detect 10000/s per src/24/64 udp", "does not decide: sources, or prefixes of them, above the rate are found and banned for a time ([how-to](../how-to/gate.md#ban-sources-for-what-they-send)); with dry-run they are only reported"},
	{"syncookie dst 192.0.2.1 tcp dst port 443", "decides: SYNs are answered with a cookie, and further packets pass if they belong to a connection or return a cookie"},
	{"no-flow src 10/8", "no flow record of these packets; decides nothing else"},
	{"only-flow dst 198.51.100.0/24", "flow records only of packets that match such a rule before a rule decides; of `no-flow` and `only-flow` the first match counts"},
}

var ruleConditions = []struct{ text, means string }{
	{"ip", "IPv4; `ip6` is IPv6"},
	{"tcp", "a protocol by name or, as `proto 47`, by number: that behind IPv6 extension headers. Lists are `tcp,udp`"},
	{"src 192.0.2.7", "source address; `dst` is the destination. Also prefixes, lists, and sets: `src 10/8,2001:db8::/32,@blocked`"},
	{"src not @allowed", "in none of them; `not` may stand in front of most conditions and values"},
	{"udp src port 53", "source port, of TCP, UDP, UDP-Lite and SCTP"},
	{"tcp dst port 80,https,8000-8099", "destination port; ranges, names of services, and sets: `dst port @web`"},
	{"tcp flags syn+fin", "these TCP flags are set, whatever the others"},
	{"tcp flags syn/syn+ack", "of the flags behind the slash just these are set: SYN without ACK. `none/syn+ack`: neither. `flags & (syn|ack) == syn` is the same"},
	{"icmp6 type 128", "ICMP type, of `icmp` (IPv4) or `icmp6` (IPv6)"},
	{"len > 400", "length of the packet in bytes: the IP header and what follows. `<`, `<=`, `>`, `>=`, `=`, `!=` and `len 64-128`"},
	{"fragment", "fragments, the first included; `not fragment` is whole packets"},
	{"vlan 100", "VLAN of the outer tag"},
	{"dscp ef", "DSCP, as a number or name (`cs1`, `af11`, `ef`, …)"},
	{"iface eth0,veth*", "name or pattern of the interface that received the packet"},
	{"for 1h", "the rule ends after this time; `until 2030-01-01T00:00:00Z` is a fixed time"},
	{"dry-run", "the rule counts and does nothing else"},
}

var ruleSets = []struct{ text, means string }{
	{"set blocked { 203.0.113.0/24, 2001:db8:bad::/48, 192.0.2.10-192.0.2.19 }", "addresses and prefixes, over one line or several"},
	{"set banned { 192.0.2.66 for 1h }", "a member with an end"},
	{"set web { 80, 443, 8000-8099 }", "ports"},
	{`set abuse from "/etc/waymark/drop.txt"`, "a block list, from a file: see `waymark rules import list` for its formats. Relative names begin at the directory of the rule file"},
}

func writeRules(w io.Writer) error {
	p := newPage("Packet rules", rulesLead)
	section := func(title, column string, examples []struct{ text, means string }) {
		p.heading(2, title)
		var rows [][]string
		for _, e := range examples {
			rows = append(rows, []string{code(e.text), upper(e.means)})
		}
		p.table(column+"|Meaning", rows)
	}
	section("Actions", "Rule", ruleActions)
	section("Conditions", "Condition", ruleConditions)
	section("Sets", "Line", ruleSets)
	p.heading(2, "Order")
	p.WriteString("\n" + rulesOrder + "\n")
	return p.writeTo(w)
}
