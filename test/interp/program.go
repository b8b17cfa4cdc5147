package interp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// instruction is struct bpf_insn.
type instruction struct {
	op       uint8
	dst, src uint8
	off      int16
	imm      int32
}

// translated reads what the verifier made of a program: without dead code, with the kernel's own structures in place of
// the context, and with lookups inlined. That is what is compiled to machine code, one instruction by one.
// The library's decoder refuses some of what only the verifier may write, so the words are read here.
func translated(p *ebpf.Program) ([]instruction, error) {
	var info struct { // the beginning of struct bpf_prog_info
		_               [2]uint32
		_               [8]byte
		_, size         uint32
		_, instructions uint64
		_               [176]byte
	}
	get := func() error {
		attr := struct {
			fd, size uint32
			info     uint64
		}{uint32(p.FD()), uint32(unsafe.Sizeof(info)), uint64(uintptr(unsafe.Pointer(&info)))}
		_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		runtime.KeepAlive(p)
		if errno != 0 {
			return fmt.Errorf("read the translated instructions: %w", errno)
		}
		return nil
	}
	if err := get(); err != nil {
		return nil, err
	}
	raw := make([]byte, info.size)
	if len(raw) == 0 {
		return nil, fmt.Errorf("read the translated instructions: none are shown: is CAP_SYS_ADMIN missing?")
	}
	size := info.size
	clear(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))) // else all else would be asked for, too
	info.size, info.instructions = size, uint64(uintptr(unsafe.Pointer(&raw[0])))
	if err := get(); err != nil {
		return nil, err
	}
	out := make([]instruction, len(raw)/8)
	for i := range out {
		w := raw[8*i:]
		out[i] = instruction{
			op: w[0], dst: w[1] & 0xf, src: w[1] >> 4,
			off: int16(binary.NativeEndian.Uint16(w[2:])), imm: int32(binary.NativeEndian.Uint32(w[4:])),
		}
	}
	return out, nil
}
