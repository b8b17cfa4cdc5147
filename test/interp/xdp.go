package interp

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// Route is what the kernel's tables say of each address (bpf_fib_lookup).
type Route struct {
	IfIndex  uint32
	To, From [6]byte // addresses of the link
	MTU      uint16
}

// xdpBuff is a struct xdp_buff in one buffer.
type xdpBuff struct {
	vm      *VM
	raw     []byte
	address uint64
	head    []byte
	headAt  uint64
	from    int // offset of the frame in head
	to      int
}

// RunXDP executes a program at XDP on a frame that came by an interface.
func (vm *VM) RunXDP(p *ebpf.Program, frame []byte, ifindex uint32) (verdict int32, cost Cost, err error) {
	code, err := vm.code(p)
	if err != nil {
		return 0, Cost{}, err
	}
	if err := vm.useMaps(code); err != nil {
		return 0, Cost{}, err
	}
	vm.scratch = memory{next: scratchSpace}
	if vm.xdp, err = vm.newXDP(frame, ifindex); err != nil {
		return 0, Cost{}, err
	}
	vm.counters = Cost{}
	r := run{VM: vm, code: code}
	r.reg[1], r.reg[10] = vm.xdp.address, vm.stack()
	if err := r.loop(); err != nil {
		return 0, vm.counters, fmt.Errorf("instruction %d: %w", r.pc, err)
	}
	return int32(r.reg[0]), vm.counters, nil
}

func (vm *VM) newXDP(frame []byte, ifindex uint32) (*xdpBuff, error) {
	sizes := map[string]int{}
	for _, name := range []string{"xdp_buff", "xdp_rxq_info", "net_device", "net", "rt6_statistics"} {
		n, err := vm.kernel.sizeOf(name)
		if err != nil {
			return nil, err
		}
		sizes[name] = n
	}
	x := &xdpBuff{vm: vm, raw: make([]byte, sizes["xdp_buff"]), from: headroom, to: headroom + len(frame)}
	x.head = make([]byte, x.to+tailroom)
	copy(x.head[x.from:], frame)
	queue, device := make([]byte, sizes["xdp_rxq_info"]), make([]byte, sizes["net_device"])
	space, routes := make([]byte, sizes["net"]), make([]byte, sizes["rt6_statistics"])
	x.address, x.headAt = vm.scratch.add("the xdp_buff", x.raw), vm.scratch.add("the frame", x.head)
	w := writer{k: vm.kernel}
	w.put(device, "net_device", "ifindex", 4, uint64(ifindex))
	w.put(device, "net_device", "nd_net", 8, vm.scratch.add("the net", space))
	ipv6, err := vm.kernel.offset("net", "ipv6")
	if err != nil {
		return nil, err
	}
	w.put(space[ipv6:], "netns_ipv6", "rt6_stats", 8, vm.scratch.add("the rt6_statistics", routes))
	w.put(queue, "xdp_rxq_info", "dev", 8, vm.scratch.add("the net_device", device))
	w.put(x.raw, "xdp_buff", "rxq", 8, vm.scratch.add("the xdp_rxq_info", queue))
	w.put(x.raw, "xdp_buff", "data_hard_start", 8, x.headAt)
	if w.err != nil {
		return nil, w.err
	}
	return x, x.update()
}

// update writes where the frame is. There is no metadata.
func (x *xdpBuff) update() error {
	w := writer{k: x.vm.kernel}
	w.put(x.raw, "xdp_buff", "data", 8, x.headAt+uint64(x.from))
	w.put(x.raw, "xdp_buff", "data_meta", 8, x.headAt+uint64(x.from))
	w.put(x.raw, "xdp_buff", "data_end", 8, x.headAt+uint64(x.to))
	return w.err
}

// xdpHelpers are those that only programs at XDP call.
var xdpHelpers = map[string]func(r *run) (uint64, error){
	"bpf_xdp_fib_lookup":     (*run).fibLookup,
	"dev_hash_map_redirect":  func(*run) (uint64, error) { return 4, nil }, // XDP_REDIRECT
	"bpf_xdp_adjust_head":    (*run).adjustHead,
	"bpf_xdp_adjust_tail":    (*run).adjustTail,
	"bpf_xdp_get_buff_len":   func(r *run) (uint64, error) { return uint64(r.xdp.to - r.xdp.from), nil },
	"bpf_xdp_load_bytes":     (*run).loadXDP,
	"____bpf_xdp_load_bytes": (*run).loadXDP,
}

// fibLookup writes a struct bpf_fib_lookup.
func (r *run) fibLookup() (uint64, error) {
	const mtu, ifindex, source, destination, size = 6, 8, 52, 58, 64
	b, err := r.of(r.reg[2]).at(r.reg[2], size)
	if err != nil {
		return 0, err
	}
	binary.NativeEndian.PutUint16(b[mtu:], r.Route.MTU)
	binary.NativeEndian.PutUint32(b[ifindex:], r.Route.IfIndex)
	copy(b[source:], r.Route.From[:])
	copy(b[destination:], r.Route.To[:])
	return 0, nil
}

func (r *run) adjustHead() (uint64, error) {
	from := r.xdp.from + int(int32(r.reg[2]))
	if from < 0 || from > r.xdp.to {
		return failed, nil
	}
	r.xdp.from = from
	return 0, r.xdp.update()
}

func (r *run) adjustTail() (uint64, error) {
	to := r.xdp.to + int(int32(r.reg[2]))
	if to < r.xdp.from || to > len(r.xdp.head) {
		return failed, nil
	}
	r.xdp.to = to
	return 0, r.xdp.update()
}

func (r *run) loadXDP() (uint64, error) {
	to, err := r.of(r.reg[3]).at(r.reg[3], r.reg[4])
	if err != nil {
		return 0, err
	}
	at := uint64(r.xdp.from) + r.reg[2]
	if at+r.reg[4] > uint64(r.xdp.to) {
		return failed, nil
	}
	copy(to, r.xdp.head[at:])
	return 0, nil
}
