package view

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// Direction is in or out.
func Direction(d flow.Direction) string {
	if d == flow.Egress {
		return "out"
	}
	return "in"
}

// source is the source of a row, with its port where both are keys.
func (m Merging) source(w *api.Row) string {
	if !m.has("sport") || isICMP(w) {
		// The source port of ICMP is the identifier of an echo, and not worth its width.
		return address(w, w.SrcPrefix)
	}
	return endpoint(w, w.SrcPrefix, w.SrcPort)
}

// destination likewise; that of ICMP is followed by the kind of message.
func (m Merging) destination(w *api.Row) string {
	switch {
	case !m.has("dport"):
		return address(w, w.DstPrefix)
	case isICMP(w) && m.has("proto"):
		return address(w, w.DstPrefix) + " " + icmpName(w.Proto, w.DstPort)
	}
	return endpoint(w, w.DstPrefix, w.DstPort)
}

// Source is the source of a flow or a conversation.
func Source(w *api.Row) string { return flowMerging.source(w) }

// Destination is the destination of a flow or a conversation.
func Destination(w *api.Row) string { return flowMerging.destination(w) }

// flowMerging has addresses and ports.
var flowMerging = NewMerging(query.ByFlow())

func address(w *api.Row, p netip.Prefix) string {
	switch {
	case w.Unattributed:
		return "(unattributed)"
	case !p.IsValid():
		return "-"
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return p.String()
}

func endpoint(w *api.Row, p netip.Prefix, n uint16) string {
	a := address(w, p)
	switch {
	case w.Unattributed || !hasPorts(w.Proto) && n == 0:
		return a
	case !p.IsSingleIP():
		return a + " " + strconv.Itoa(int(n))
	}
	return net.JoinHostPort(a, strconv.Itoa(int(n)))
}

// port is a port without its address; of ICMP it is the kind of message.
func port(w *api.Row, n uint16) string {
	switch {
	case w.Unattributed, n == 0 && hasPorts(w.Proto): // a client's, which is no service
		return "-"
	case w.Proto == protoICMP || w.Proto == protoICMPv6:
		return icmpName(w.Proto, n)
	}
	return strconv.Itoa(int(n))
}

// sourcePort is that of ICMP, too: the identifier of an echo.
func sourcePort(w *api.Row) string {
	if w.Unattributed || w.SrcPort == 0 && hasPorts(w.Proto) {
		return "-"
	}
	return strconv.Itoa(int(w.SrcPort))
}

const (
	protoICMP   = 1
	protoICMPv6 = 58
)

func isICMP(w *api.Row) bool {
	v4 := w.DstPrefix.Addr().Is4()
	return w.Proto == protoICMP && v4 || w.Proto == protoICMPv6 && !v4
}

// hasPorts: TCP, UDP, DCCP, SCTP and UDP-Lite.
func hasPorts(proto uint8) bool {
	return slices.Contains([]uint8{6, 17, 33, 132, 136}, proto)
}

// The messages one meets daily, by type (IANA ICMP and ICMPv6 parameters).
var (
	icmpNames = map[uint8]string{0: "echo-reply", 3: "unreachable", 5: "redirect", 8: "echo", 11: "time-exceeded"}

	icmpv6Names = map[uint8]string{
		1: "unreachable", 2: "too-big", 3: "time-exceeded", 128: "echo", 129: "echo-reply",
		133: "router-sol", 134: "router-adv", 135: "neigh-sol", 136: "neigh-adv", 143: "mld-report",
	}
)

// icmpName is the message of a destination port: its name, or type/code.
func icmpName(proto uint8, n uint16) string {
	kind, code := uint8(n>>8), uint8(n)
	names := icmpNames
	if proto == protoICMPv6 {
		names = icmpv6Names
	}
	if name, ok := names[kind]; ok {
		return name
	}
	return strconv.Itoa(int(kind)) + "/" + strconv.Itoa(int(code))
}

// Host is an address alone.
func Host(w *api.Row, p netip.Prefix) string { return address(w, p) }

// Port is a port alone.
func Port(w *api.Row, n uint16) string { return port(w, n) }
