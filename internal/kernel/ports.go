package kernel

import (
	"os"
	"strconv"
	"strings"
)

// defaultClientPorts is what kernels begin with, other hosts' too.
const defaultClientPorts = 32768

// ClientPorts is the lowest port that may be a client's: of this network namespace (net.ipv4.ip_local_port_range), or
// of hosts elsewhere.
func ClientPorts() uint32 {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return defaultClientPorts
	}
	lowest, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\t")
	port, err := strconv.ParseUint(lowest, 10, 16)
	if err != nil {
		return defaultClientPorts
	}
	return min(uint32(port), defaultClientPorts)
}
