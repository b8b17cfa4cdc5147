// Package rules is the language in which users state what the gate does with packets.
// Input: text with one rule per line, such as
//
//	set blocked { 203.0.113.0/24, 2001:db8:bad::/48 }
//	pass  src 192.0.2.7
//	drop  src @blocked
//	drop  udp dst port 1900 len > 400
//	limit 10000/s per src udp dst port 53
//
// Output: a Ruleset, which the engine compiles to tables, or every error in the text.
// Callers: the gate's engine, command line.
//
// Rules apply to IPv4 and IPv6 packets in the order in which they are written. A packet
// meets each rule until one decides; without such a rule it passes. Other frames (ARP,
// LLDP) pass and meet no rule.
package rules

import (
	"net/netip"
	"time"
)

// Ruleset is a whole file.
type Ruleset struct {
	Sets  []*Set  // in order of definition
	Rules []*Rule // in order of priority: the first match that decides wins
}

// Set is what rules call @name: either addresses or ports.
type Set struct {
	Name string
	Pos  Position
	// Prefixes are sorted and without duplicates. One is within another only if it
	// outlives the other: the longest that contains an address decides alone.
	Prefixes []Member
	Ports    []Range // sorted, apart from each other
	File     string  // block list from which the prefixes were read; empty: none
}

// Member is an address or prefix of a set.
type Member struct {
	Prefix netip.Prefix // masked
	Until  time.Time    // zero: without end
}

// Rule is one line.
type Rule struct {
	ID     uint32   // not 0, unique in a rule set; the same whenever the same rule is read, so that counters survive
	Text   string   // canonical form
	Pos    Position // where its action is written
	Action Action
	Limit  *Limit // of ActionLimit, and of ActionDetect, where it is per source
	Every  uint32 // of ActionSample and ActionTap: one packet of so many; 1: each
	Match  Match
	Until  time.Time // zero: without end
	DryRun bool      // counts, and is otherwise without effect
}

// Action is what a rule does with the packets that match.
type Action uint8

// The actions. Those that do not decide leave the packet to the rules that follow.
const (
	ActionPass      Action = iota + 1 // decides: the packet goes on
	ActionDrop                        // decides: the packet is dropped
	ActionCount                       // does not decide
	ActionSample                      // copies to a capture; does not decide
	ActionLimit                       // drops what exceeds a rate; does not decide about the rest
	ActionSynCookie                   // decides: SYNs are answered with a cookie, the rest passes if it belongs to a connection or returns a cookie
	ActionNoFlow                      // no flow record; does not decide
	ActionOnlyFlow                    // flow records only of packets that match such a rule; does not decide
	ActionTap                         // gives to a socket of AF_XDP what passes; does not decide
	ActionDetect                      // finds sources above a rate, which are then banned; does not decide
)

// Limit is a token bucket: Rate per second, up to Burst at once.
type Limit struct {
	Rate, Burst  uint64 // packets, or with Bytes the length by the IP header
	Bytes        bool
	Per          Per
	Bits4, Bits6 uint8 // of PerSourcePrefix: length of the prefix by family
}

// Per is what has a bucket of its own.
type Per uint8

// One bucket for the rule, for each source address, or for each prefix of them.
const (
	PerRule Per = iota
	PerSource
	PerSourcePrefix
)

// Match is what a rule requires of a packet: all conditions hold. The zero value of a
// condition holds for each packet. A condition about something that the packet lacks
// (ports of a later fragment, VLAN of an untagged frame) does not hold, negated or not.
type Match struct {
	Family       uint8 // 4 or 6; 0: both
	Src, Dst     Addrs
	Sport, Dport Ranges // of TCP, UDP, UDP-Lite and SCTP
	Proto        Ranges // of the upper layer, behind extension headers
	ICMPType     Ranges // of ICMP in IPv4 or ICMPv6 in IPv6, as Proto says
	Length       Ranges // bytes by the IP header, which they include
	VLAN         Ranges // of the outer tag
	DSCP         Ranges
	TCPFlags     *Flags
	Fragment     *bool    // false: only whole packets; true: only fragments, the first included
	Ifaces       []string // names or globs of the interface that received the packet
}

// Addrs is a condition about an address: it is within one of the prefixes or sets, or
// with Not in none. Without both it holds for each packet.
type Addrs struct {
	Prefixes []netip.Prefix // masked, sorted, none within another
	Sets     []string       // sorted
	Not      bool
}

// Ranges is a condition about a number: it is in one of the ranges or, for ports, sets,
// or with Not in none. Without both it holds for each packet.
type Ranges struct {
	List []Range  // sorted, apart from each other
	Sets []string // sorted
	Not  bool
}

// Range is the numbers from First to Last.
type Range struct{ First, Last uint16 }

// Flags is a condition about TCP flags: packet.flags & Mask == Value.
type Flags struct{ Mask, Value uint8 }

// Position is a place in a file. Lines and columns count from 1.
type Position struct {
	File         string
	Line, Column int
}
