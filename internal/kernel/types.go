package kernel

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// facts are what the kernel's type information shows, and why something is missing.
type facts struct {
	buffer SKBOffsets
	socket SocketAt // all 0: not found

	noBuffer, noHints error
}

// typeFacts reads the kernel's type information once, for all who ask: to read it takes as long as to load the programs that
// count flows. It is not kept, as it takes some MB.
var typeFacts = sync.OnceValue(func() (f facts) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		err = fmt.Errorf("type information of the kernel: %w: %w", err, ebpf.ErrNotSupported)
		return facts{noBuffer: err, noHints: err}
	}
	f.buffer, f.noBuffer = locateSocketBuffer(types)
	if at, err := locateSocket(types); err == nil {
		f.socket = at
	}
	if err := types.TypeByName("bpf_xdp_metadata_rx_timestamp", new(*btf.Func)); err != nil {
		f.noHints = fmt.Errorf("no function that reads hints: %w: %w", err, ebpf.ErrNotSupported)
	}
	return f
})
