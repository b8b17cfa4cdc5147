package flow

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// protoNames are the names that people use for IANA protocol numbers.
var protoNames = map[uint8]string{
	1: "icmp", 2: "igmp", 4: "ipip", 6: "tcp", 17: "udp", 41: "ipv6", 47: "gre", 50: "esp", 51: "ah",
	58: "icmpv6", 88: "eigrp", 89: "ospf", 103: "pim", 112: "vrrp", 115: "l2tp", 132: "sctp", 136: "udplite",
}

// ProtoName is the usual name of a protocol, or its number.
func ProtoName(proto uint8) string {
	if name, ok := protoNames[proto]; ok {
		return name
	}
	return strconv.Itoa(int(proto))
}

// ProtoNames are the protocols that have names, in alphabetical order.
func ProtoNames() []string { return slices.Sorted(maps.Values(protoNames)) }

// ParseProto is the inverse of ProtoName; it takes numbers of named protocols too.
func ParseProto(s string) (uint8, error) {
	for proto, name := range protoNames {
		if name == s {
			return proto, nil
		}
	}
	if s == "icmp6" {
		return protoICMPv6, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("protocol %q: want a name such as tcp, or a number up to 255", s)
	}
	return uint8(n), nil
}

// tcpFlagNames, from bit 0 (RFC 9293, section 3.1).
var tcpFlagNames = [...]string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"}

// TCPFlagNames joins the names of the bits that are set: syn+ack. A bit
// without a name stands as its value in hexadecimal.
func TCPFlagNames(flags uint16) string {
	var names []string
	for bit := range 16 {
		switch {
		case flags&(1<<bit) == 0:
		case bit < len(tcpFlagNames):
			names = append(names, tcpFlagNames[bit])
		default:
			names = append(names, fmt.Sprintf("%#x", 1<<bit))
		}
	}
	return strings.Join(names, "+")
}

// ParseTCPFlags is the inverse of TCPFlagNames; it takes numbers too.
func ParseTCPFlags(s string) (uint16, error) {
	var flags uint16
next:
	for part := range strings.SplitSeq(s, "+") {
		for bit, name := range tcpFlagNames {
			if part == name {
				flags |= 1 << bit
				continue next
			}
		}
		n, err := strconv.ParseUint(part, 0, 16)
		if err != nil {
			return 0, fmt.Errorf("TCP flag %q: want some of %s joined with +", part, strings.Join(tcpFlagNames[:], ", "))
		}
		flags |= uint16(n)
	}
	return flags, nil
}

// ProtoClass is a protocol by name where it is common, else "other": it bounds the
// number of totals.
func ProtoClass(proto uint8) string {
	switch proto {
	case 1:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 58:
		return "icmpv6"
	case 132:
		return "sctp"
	}
	return "other"
}
