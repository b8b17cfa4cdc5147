package kernel

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
)

const typesFile = "/sys/kernel/btf/vmlinux"

// functions are those of the kernel that programs call by their numbers, and that a kernel may lack.
var functions = []string{
	"bpf_cast_to_kern_ctx", "bpf_xdp_pull_data",
	"bpf_xdp_metadata_rx_hash", "bpf_xdp_metadata_rx_timestamp", "bpf_xdp_metadata_rx_vlan_tag",
}

// facts are what the kernel's type information shows, and why something is missing.
type facts struct {
	buffer    SKBOffsets
	socket    SocketAt          // all 0: not found
	xdpFlags  uint32            // of flags in struct xdp_buff; 0: not found
	functions map[string]uint32 // their numbers; 0: not there

	noBuffer, noHints error
}

// typeFacts reads the kernel's type information once, for all who ask. It is not kept, as it takes some MB.
var typeFacts = sync.OnceValue(func() (f facts) {
	structs := []string{"sk_buff", "skb_shared_info", "net_device", "sock", "tcp_sock", "xdp_buff"}
	err := withKernelTypes(typesFile, structs, functions, func(types *kernelTypes) error {
		f.buffer, f.noBuffer = locateSocketBuffer(types)
		if at, err := locateSocket(types); err == nil {
			f.socket = at
		}
		f.functions = maps.Clone(types.functions)
		if at, err := offsets(types, "xdp_buff", "flags"); err == nil {
			f.xdpFlags = at["flags"]
		} else {
			f.functions["bpf_cast_to_kern_ctx"] = 0 // programs read no more than the flags by it
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

// XDPFlagsOffset is where struct xdp_buff has its flags; 0 where that is not known.
func XDPFlagsOffset() uint32 { return typeFacts().xdpFlags }
