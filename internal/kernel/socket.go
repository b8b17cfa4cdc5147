package kernel

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
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

func locateSocket(types *kernelTypes) (at SocketAt, err error) {
	tcp, err := offsets(types, "tcp_sock", "window_clamp")
	if err != nil {
		return at, err
	}
	locks, ok := types.offsets("sock")["sk_userlocks"] // a bit field
	if !ok {
		return at, fmt.Errorf("struct sock of the kernel has no sk_userlocks: %w", ebpf.ErrNotSupported)
	}
	return SocketAt{Locks: locks / 8, Shift: locks % 8, Clamp: tcp["window_clamp"]}, nil
}
