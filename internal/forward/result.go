package forward

// results is how many results a packet may have.
const results = int(abiForwardResultFORWARD_RESULTS)

// Result is what became of a packet: a name, and what it means.
type Result struct{ Name, Doc string }

// Results are all, by the numbers that programs count by. All but the first go on to the kernel.
var Results = [results]Result{
	abiForwardResultFORWARD_DONE:           {"forwarded", "it left by another interface"},
	abiForwardResultFORWARD_STALE:          {"agent_silent", "no agent has followed changes for some time"},
	abiForwardResultFORWARD_OTHER_MAC:      {"other_mac", "it is not for the address of the interface: broadcast, multicast, bridged"},
	abiForwardResultFORWARD_VLAN:           {"vlan", "it has a VLAN tag for which there is no interface here, or more than one tag"},
	abiForwardResultFORWARD_TAG_UNKNOWN:    {"tag_unknown", "the driver takes VLAN tags out of frames and does not show them to the program"},
	abiForwardResultFORWARD_NOT_IP:         {"not_ip", "it is neither IPv4 nor IPv6"},
	abiForwardResultFORWARD_UNRESOLVED:     {"unresolved", "it belongs to a bridge or to another interface above, and it is not certain what becomes of it there"},
	abiForwardResultFORWARD_UNLEARNED:      {"unlearned", "it came through a bridge that has not learned its sender at this port"},
	abiForwardResultFORWARD_MALFORMED:      {"malformed", "a length, checksum or header is wrong, or cannot be read"},
	abiForwardResultFORWARD_OPTIONS:        {"options", "it has IPv4 options or IPv6 extension headers"},
	abiForwardResultFORWARD_FRAGMENT:       {"fragment", "it is a fragment"},
	abiForwardResultFORWARD_TTL:            {"ttl_expired", "its TTL or hop limit is 1 or 0"},
	abiForwardResultFORWARD_ADDRESS:        {"address", "an address is loopback, link-local, multicast or reserved"},
	abiForwardResultFORWARD_TUNNEL:         {"tunnel", "its inner flow is to be counted (flow.tunnels)"},
	abiForwardResultFORWARD_ICMP_ERROR:     {"icmp_error", "it is an ICMP error: of several paths, the kernel takes the one of the packet that it quotes"},
	abiForwardResultFORWARD_CHECKSUM:       {"checksum", "its checksum was left to the device, or may have been (tx offload of a virtual interface)"},
	abiForwardResultFORWARD_CPU:            {"cpu_unknown", "it is on a processor that was not there at the start"},
	abiForwardResultFORWARD_NO_FLOW:        {"no_flow", "netfilter has rules, and no flow table has its flow; or it ends its connection; or the route of the flow has changed"},
	abiForwardResultFORWARD_BLACKHOLE:      {"blackhole", "its route is a blackhole"},
	abiForwardResultFORWARD_UNREACHABLE:    {"unreachable", "its route is unreachable, or there is none"},
	abiForwardResultFORWARD_PROHIBIT:       {"prohibit", "its route is prohibited"},
	abiForwardResultFORWARD_NOT_FORWARDED:  {"not_forwarded", "it is for this host, or is not forwarded for another reason"},
	abiForwardResultFORWARD_DISABLED:       {"forwarding_disabled", "the kernel does not forward from the interface (sysctl forwarding)"},
	abiForwardResultFORWARD_ENCAPSULATION:  {"encapsulation", "its route encapsulates packets"},
	abiForwardResultFORWARD_NO_NEIGHBOUR:   {"no_neighbour", "the address of the next hop is not known yet"},
	abiForwardResultFORWARD_TOO_BIG:        {"too_big", "it is larger than the MTU of its route, or of the port"},
	abiForwardResultFORWARD_NO_SOURCE:      {"no_source_address", "the lookup found no source address"},
	abiForwardResultFORWARD_LOOKUP:         {"lookup_error", "the kernel could not look it up"},
	abiForwardResultFORWARD_SOURCE:         {"source", "no route shows that its IPv4 source may come from there (rp_filter)"},
	abiForwardResultFORWARD_SAME_INTERFACE: {"same_interface", "its route leads back through the interface where it arrived"},
	abiForwardResultFORWARD_NO_PORT:        {"no_port", "its route leads to an interface that is not in forward.interfaces, or cannot send frames of XDP: tunnels, bridges and VLAN interfaces that are not above such ports, and others"},
	abiForwardResultFORWARD_NO_STATION:     {"no_station", "its route leads to a bridge that has not learned where the next hop is"},
	abiForwardResultFORWARD_PARTS:          {"several_buffers", "it is in several buffers, which the driver of the output interface does not take"},
	abiForwardResultFORWARD_REFRESH:        {"refresh", "one in a few seconds, so that the kernel asks whether the next hop is still there"},
}
