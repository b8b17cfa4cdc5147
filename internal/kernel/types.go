package kernel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
)

const typesFile = "/sys/kernel/btf/vmlinux"

// functions are those of the kernel that programs call by their numbers, and that a kernel may lack.
var functions = []string{
	"bpf_cast_to_kern_ctx", "bpf_xdp_pull_data",
	"bpf_xdp_metadata_rx_hash", "bpf_xdp_metadata_rx_timestamp", "bpf_xdp_metadata_rx_vlan_tag",
	FlowLookup,
}

// facts are what the kernel's type information shows, and why something is missing.
type facts struct {
	buffer    SKBOffsets
	socket    SocketAt          // all 0: not found
	fields    map[string]uint32 // where they are, in bytes; without those that are not there
	functions map[string]uint32 // their numbers; 0: not there

	noBuffer, noHints error
}

// typeFacts reads the kernel's type information once, for all who ask. It is not kept, as it takes some MB.
var typeFacts = sync.OnceValue(func() (f facts) {
	structs := []string{
		"sk_buff", "skb_shared_info", "net_device", "sock", "tcp_sock", "xdp_buff", "xdp_rxq_info", "net", "netns_ipv4", "netns_ipv6", "rt6_statistics",
	}
	err := withKernelTypes(typesFile, structs, functions, func(types *kernelTypes) error {
		f.buffer, f.noBuffer = locateSocketBuffer(types)
		if at, err := locateSocket(types); err == nil {
			f.socket = at
		}
		f.functions = maps.Clone(types.functions)
		f.fields = locateFields(types)
		if _, ok := f.fields["xdp_buff.flags"]; !ok {
			f.functions["bpf_cast_to_kern_ctx"] = 0 // programs read nothing without it
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("type information of the kernel: %w: %w", err, ebpf.ErrNotSupported)
		return facts{noBuffer: err, noHints: err}
	}
	if f.functions["bpf_xdp_metadata_rx_timestamp"] == 0 {
		f.noHints = fmt.Errorf("no function that reads hints: %w", ebpf.ErrNotSupported)
	}
	return f
})

// Function is the number of a kernel function in the kernel's type information, by which programs call it, or 0 where this
// kernel does not have it. It fails for functions that are not looked for.
func Function(name string) (uint32, error) {
	if !slices.Contains(functions, name) {
		return 0, fmt.Errorf("function %s is not among those that are looked for in the kernel", name)
	}
	return typeFacts().functions[name], nil
}

// fields are those of the kernel's own structures that programs read, each by the members on the way to it.
var fields = [][]string{
	{"xdp_buff.flags"},
	{"xdp_buff.rxq"},
	{"xdp_rxq_info.dev"},
	{"net_device.nd_net"}, // a struct of a pointer, or empty
	{"net.ipv4", "netns_ipv4.rt_genid"},
	{"net.ipv6", "netns_ipv6.fib6_sernum"},
	{"net.ipv6", "netns_ipv6.rt6_stats"},
	{"rt6_statistics.fib_discarded_routes"},
}

// locateFields finds the fields that this kernel has, by the last member on the way.
func locateFields(types *kernelTypes) map[string]uint32 {
	found := map[string]uint32{}
	for _, way := range fields {
		at, ok := uint32(0), true
		for _, member := range way {
			structure, name, _ := strings.Cut(member, ".")
			bits, has := types.offsets(structure)[name]
			at, ok = at+bits/8, ok && has
		}
		if ok && at <= math.MaxInt16 { // as an instruction can have it
			found[way[len(way)-1]] = at
		}
	}
	return found
}

// Field is where a structure of the kernel has a field that programs read, in bytes; those of netns_… in struct net, whose part these
// are. False where this kernel has no such field.
func Field(name string) (offset uint32, found bool) {
	offset, found = typeFacts().fields[name]
	return offset, found
}

// TellsChanges reports whether programs at XDP can see that the kernel's routes have changed.
func TellsChanges() bool {
	for _, way := range fields {
		if _, found := Field(way[len(way)-1]); !found {
			return false
		}
	}
	return typeFacts().functions["bpf_cast_to_kern_ctx"] != 0
}
