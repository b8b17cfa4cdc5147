package kernel

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// SocketAt is where this kernel has what a program is not shown of a listener.
type SocketAt struct {
	Locks, Shift uint32 // of sk_userlocks in struct sock: its byte, and the bit in it
	Clamp        uint32 // of window_clamp in struct tcp_sock
}

// SocketOffsets are all 0 where programs cannot read them.
var SocketOffsets = sync.OnceValue(func() SocketAt {
	if !SocketBuffer.Has() {
		return SocketAt{}
	}
	return typeFacts().socket
})

func locateSocket(types *btf.Spec) (at SocketAt, err error) {
	tcp, err := offsets(types, "tcp_sock", "window_clamp")
	if err != nil {
		return at, err
	}
	var sock *btf.Struct
	if err := types.TypeByName("sock", &sock); err != nil {
		return at, fmt.Errorf("struct sock of the kernel: %w", err)
	}
	for _, m := range sock.Members {
		if m.Name == "sk_userlocks" {
			return SocketAt{Locks: m.Offset.Bytes(), Shift: uint32(m.Offset) % 8, Clamp: tcp["window_clamp"]}, nil
		}
	}
	return at, fmt.Errorf("struct sock of the kernel has no sk_userlocks: %w", ebpf.ErrNotSupported)
}
