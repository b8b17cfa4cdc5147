package balance

// results is how many results a packet may have.
const results = int(abiBalanceResultBALANCE_RESULTS)

// Result is what became of a packet: a name, who has it then, and what it means.
type Result struct{ Name, To, Doc string }

// Results are all, by the numbers that programs count by.
var Results = [results]Result{
	abiBalanceResultBALANCE_DONE:            {"balanced", "backend", "it left for a backend"},
	abiBalanceResultBALANCE_OTHER_MAC:       {"other_mac", "kernel", "it is not for the address of the interface: broadcast, multicast, bridged"},
	abiBalanceResultBALANCE_VLAN:            {"vlan", "kernel", "it has a VLAN tag"},
	abiBalanceResultBALANCE_TAG_UNKNOWN:     {"tag_unknown", "kernel", "the driver takes VLAN tags out of frames and does not show them to the program"},
	abiBalanceResultBALANCE_NOT_IP:          {"not_ip", "kernel", "it is neither IPv4 nor IPv6"},
	abiBalanceResultBALANCE_MALFORMED:       {"malformed", "kernel", "a length or header is wrong, or cannot be read"},
	abiBalanceResultBALANCE_TUNNEL:          {"tunnel", "kernel", "its inner flow is to be counted (flow.tunnels)"},
	abiBalanceResultBALANCE_NO_SERVICE:      {"no_service", "kernel", "it is for no service"},
	abiBalanceResultBALANCE_FRAGMENT:        {"fragment_unmatched", "kernel", "it is a later fragment whose first one was not seen"},
	abiBalanceResultBALANCE_CHECKSUM:        {"checksum", "kernel", "its checksum was left to the device (tx offload of a virtual interface: ethtool -K INTERFACE tx off at the sender)"},
	abiBalanceResultBALANCE_CPU:             {"cpu_unknown", "kernel", "it is on a processor that was not there at the start"},
	abiBalanceResultBALANCE_NONE_PASSED:     {"none_healthy_passed", "kernel", "no backend takes connections (none_healthy: pass)"},
	abiBalanceResultBALANCE_UNWRAPPED:       {"decapsulated", "kernel", "the outer header of a balancer was removed"},
	abiBalanceResultBALANCE_STRANGER:        {"stranger", "kernel", "it is encapsulated, and its source is not in balance.decapsulate.from"},
	abiBalanceResultBALANCE_UNWRAP_FRAGMENT: {"outer_fragment", "kernel", "it is encapsulated and a fragment: the way from the balancer has a smaller MTU than its interface"},
	abiBalanceResultBALANCE_TOO_BIG:         {"too_big", "client", "it does not fit on the way to the backend: the client got the MTU (ICMP)"},
	abiBalanceResultBALANCE_REFUSED:         {"refused", "client", "no backend takes connections: the client got a reset, or an ICMP error (none_healthy: reset)"},
	abiBalanceResultBALANCE_NONE_DROPPED:    {"none_healthy", "dropped", "no backend takes connections"},
	abiBalanceResultBALANCE_UNANSWERED:      {"unanswered", "dropped", "it does not fit on the way to the backend, and the client gets no answer: it is an ICMP error itself, or its interface cannot send frames of XDP"},
	abiBalanceResultBALANCE_NO_ROUTE:        {"no_route", "dropped", "the kernel has no route to the backend"},
	abiBalanceResultBALANCE_DISABLED:        {"forwarding_disabled", "dropped", "the kernel does not forward from the interface (sysctl forwarding), so its routes are of no use"},
	abiBalanceResultBALANCE_NO_NEIGHBOUR:    {"no_neighbour", "dropped", "nobody answers for the address of the next hop"},
	abiBalanceResultBALANCE_LOOKUP:          {"lookup_error", "dropped", "the kernel could not look up the route to the backend"},
	abiBalanceResultBALANCE_NO_PORT:         {"no_port", "dropped", "the route to the backend leads to an interface that is not in balance.interfaces, or cannot send frames of XDP"},
	abiBalanceResultBALANCE_PARTS:           {"several_buffers", "dropped", "it is in several buffers, which the driver of the output interface does not take"},
	abiBalanceResultBALANCE_UNWRITABLE:      {"unwritable", "dropped", "the frame could not be changed: the driver leaves too little space in front"},
}
