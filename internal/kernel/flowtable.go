package kernel

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// FlowLookup is the function by which programs at XDP find a flow in a flow table of nftables.
const FlowLookup = "bpf_xdp_flow_lookup"

const flowTableModule = "nf_flow_table"

// probeFlowTables looks for it in the kernel and in its module.
func probeFlowTables() error {
	if typeFacts().functions[FlowLookup] != 0 {
		return nil
	}
	raw, err := os.ReadFile("/sys/kernel/btf/" + flowTableModule)
	if err != nil {
		return fmt.Errorf("the module %s is not loaded, or the kernel has no type information of it: load it before the agent starts (modprobe %s): %w: %w",
			flowTableModule, flowTableModule, err, ebpf.ErrNotSupported)
	}
	if !strings.Contains(string(raw), "\x00"+FlowLookup+"\x00") {
		return fmt.Errorf("the module %s has no function %s: %w", flowTableModule, FlowLookup, ebpf.ErrNotSupported)
	}
	// A program that calls a function of a module is loaded with a descriptor of the module's types.
	handle, err := btf.FindHandle(func(i *btf.HandleInfo) bool { return i.IsModule() && i.Name == flowTableModule })
	if err != nil {
		return fmt.Errorf("programs with functions of the module %s take CAP_SYS_ADMIN to load: start the agent with it (it is dropped then): %w: %w",
			flowTableModule, err, ebpf.ErrNotSupported)
	}
	return handle.Close()
}

// FlowAt is where programs find things in the kernel's struct flow_offload, in bytes.
type FlowAt struct {
	Size  uint32 // of one direction
	Tuple uint32 // from the beginning of a direction to its tuple
	Bits  uint32 // to the byte with the direction in bits 0 and 1, and the way of sending in bits 2 to 4
}

// LocateFlow reads where these are, once: it takes all types of the kernel. A tuple has to begin with addresses, ports and
// interface, without gaps.
var LocateFlow = sync.OnceValues(locateFlow)

func locateFlow() (at FlowAt, err error) {
	if err := FlowTables.Check(); err != nil {
		return at, err
	}
	var direction *btf.Struct
	cache := btf.NewCache()
	types, err := cache.Kernel()
	if err == nil && typeFacts().functions[FlowLookup] == 0 {
		types, err = cache.Module(flowTableModule)
	}
	if err == nil {
		err = types.TypeByName("flow_offload_tuple_rhash", &direction)
	}
	if err != nil {
		return at, fmt.Errorf("type information of %s: %w", flowTableModule, err)
	}
	at.Size = direction.Size
	found := map[string]btf.Bits{}
	members("", direction.Members, 0, found)
	at.Tuple, at.Bits = uint32(found["tuple"]/8), uint32(found["tuple.dir"]/8)
	for name, bits := range map[string]uint32{
		"src_v6": 0, "src_v4": 0, "dst_v6": 16 * 8, "dst_v4": 16 * 8, "src_port": 32 * 8, "dst_port": 34 * 8, "iifidx": 36 * 8,
		"dir": 8 * (at.Bits - at.Tuple), "xmit_type": 8*(at.Bits-at.Tuple) + 2,
	} {
		if got, ok := found["tuple."+name]; !ok || uint32(got) != 8*at.Tuple+bits {
			return at, fmt.Errorf("struct flow_offload_tuple is not as this version knows it: %s is at bit %d: %w", name, got, ebpf.ErrNotSupported)
		}
	}
	return at, nil
}

// members adds where members are, in bits, those of structs and unions within by the names on the way to them.
func members(prefix string, list []btf.Member, base btf.Bits, into map[string]btf.Bits) {
	for _, m := range list {
		name, at := prefix, base+m.Offset
		if m.Name != "" {
			name += m.Name
			into[name] = at
			name += "."
		}
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			members(name, t.Members, at, into)
		case *btf.Union:
			members(name, t.Members, at, into)
		}
	}
}
