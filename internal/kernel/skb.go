package kernel

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// SKBOffsets are where this kernel has what struct __sk_buff lacks: in struct
// sk_buff, where data follows head; GSOType in struct skb_shared_info, and GSOMaxSize in struct net_device.
type SKBOffsets struct {
	Head, End, Transport, InnerTransport, GSOType, Dev, GSOMaxSize uint32
}

// SocketBufferOffsets are all 0 where the feature is missing.
func SocketBufferOffsets() SKBOffsets {
	if !SocketBuffer.Has() {
		return SKBOffsets{}
	}
	return typeFacts().buffer
}

// probeSocketBuffer asks whether programs can read the kernel's memory, and finds
// out where they have to.
func probeSocketBuffer() error {
	if err := features.HaveProgramHelper(ebpf.SchedCLS, asm.FnProbeReadKernel); err != nil {
		return err
	}
	return typeFacts().noBuffer
}

func locateSocketBuffer(types *kernelTypes) (SKBOffsets, error) {
	at, err := offsets(types, "sk_buff", "end", "head", "data", "transport_header", "inner_transport_header", "dev")
	if err != nil {
		return SKBOffsets{}, err
	}
	shared, err := offsets(types, "skb_shared_info", "gso_type")
	if err != nil {
		return SKBOffsets{}, err
	}
	device, err := offsets(types, "net_device", "gso_max_size")
	if err != nil {
		return SKBOffsets{}, err
	}
	if at["data"] != at["head"]+8 {
		return SKBOffsets{}, fmt.Errorf("struct sk_buff: head at %d, data at %d: %w", at["head"], at["data"], ebpf.ErrNotSupported)
	}
	return SKBOffsets{
		Head: at["head"], End: at["end"], GSOType: shared["gso_type"],
		Transport: at["transport_header"], InnerTransport: at["inner_transport_header"],
		Dev: at["dev"], GSOMaxSize: device["gso_max_size"],
	}, nil
}

// offsets are those of members of a struct, in bytes.
func offsets(types *kernelTypes, name string, members ...string) (map[string]uint32, error) {
	bits, found := types.offsets(name), map[string]uint32{}
	for _, m := range members {
		at, ok := bits[m]
		if !ok {
			return nil, fmt.Errorf("struct %s of the kernel has no %s: %w", name, m, ebpf.ErrNotSupported)
		}
		found[m] = at / 8
	}
	return found, nil
}
