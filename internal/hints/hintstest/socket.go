package hintstest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/await"
)

// Of the memory of a socket, and of its rings.
const (
	socketFrames = 64
	frameSize    = 2048
	descSize     = 16 // struct xdp_desc
)

// Socket is an AF_XDP socket that receives frames of one queue, copied by the kernel.
type Socket struct {
	FD     int
	memory []byte
	rings  [][]byte // as mapped
	rx     ring
	free   ring // memory that the kernel may fill
}

// ring is one of the rings that a socket shares with the kernel. Its size is socketFrames.
type ring struct {
	producer, consumer *uint32
	entries            []byte
}

// NewSocket opens a socket in the caller's namespace, which is closed with the test.
func NewSocket(t testing.TB, ifindex, queue int) *Socket {
	t.Helper()
	s := &Socket{FD: -1}
	t.Cleanup(s.Close)
	if err := s.open(uint32(ifindex), uint32(queue)); err != nil {
		t.Fatal(err)
	}
	return s
}

// Close ends the socket, which its rings would keep.
func (s *Socket) Close() {
	for _, m := range s.rings {
		_ = unix.Munmap(m)
	}
	unix.Close(s.FD)
	_ = unix.Munmap(s.memory)
	s.rings, s.memory, s.FD = nil, nil, -1
}

func (s *Socket) open(ifindex, queue uint32) (err error) {
	if s.FD, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("opening an AF_XDP socket: %w", err)
	}
	if s.memory, err = unix.Mmap(-1, 0, socketFrames*frameSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return err
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&s.memory[0]))), Len: uint64(len(s.memory)), Size: frameSize}
	if err := s.set(unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
		return err
	}
	for _, name := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		n := int32(socketFrames)
		if err := s.set(name, unsafe.Pointer(&n), unsafe.Sizeof(n)); err != nil {
			return err
		}
	}
	if err := s.mapRings(); err != nil {
		return err
	}
	for i := range socketFrames {
		s.give(uint64(i) * frameSize)
	}
	if err := unix.Bind(s.FD, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: ifindex, QueueID: queue}); err != nil {
		return fmt.Errorf("binding an AF_XDP socket to queue %d of interface %d: %w", queue, ifindex, err)
	}
	return nil
}

func (s *Socket) set(name int, value unsafe.Pointer, size uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.FD), unix.SOL_XDP, uintptr(name), uintptr(value), size, 0); errno != 0 {
		return fmt.Errorf("option %d of an AF_XDP socket: %w", name, errno)
	}
	return nil
}

func (s *Socket) mapRings() (err error) {
	var offsets unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(offsets))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.FD), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&offsets)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return fmt.Errorf("asking for the rings of an AF_XDP socket: %w", errno)
	}
	if s.rx, err = s.mapRing(unix.XDP_PGOFF_RX_RING, offsets.Rx, descSize); err != nil {
		return err
	}
	s.free, err = s.mapRing(unix.XDP_UMEM_PGOFF_FILL_RING, offsets.Fr, 8)
	return err
}

func (s *Socket) mapRing(at int64, o unix.XDPRingOffset, entry uint64) (ring, error) {
	m, err := unix.Mmap(s.FD, at, int(o.Desc+socketFrames*entry), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring{}, fmt.Errorf("mapping a ring of an AF_XDP socket: %w", err)
	}
	s.rings = append(s.rings, m)
	word := func(at uint64) *uint32 { return (*uint32)(unsafe.Pointer(&m[at])) }
	return ring{word(o.Producer), word(o.Consumer), m[o.Desc:]}, nil
}

// give has the kernel fill a part of the memory.
func (s *Socket) give(at uint64) {
	n := *s.free.producer
	*(*uint64)(unsafe.Pointer(&s.free.entries[n%socketFrames*8])) = at
	atomic.StoreUint32(s.free.producer, n+1)
}

// Next takes the next frame, with the bytes before it, which are cleared in the memory of the socket.
func (s *Socket) Next(t testing.TB, before int) (meta, frame []byte) {
	t.Helper()
	await.True(t, "a frame for an AF_XDP socket", func() bool {
		return atomic.LoadUint32(s.rx.producer) != *s.rx.consumer
	})
	n := *s.rx.consumer
	desc := (*unix.XDPDesc)(unsafe.Pointer(&s.rx.entries[n%socketFrames*descSize]))
	in := s.memory[int(desc.Addr)-before : desc.Addr+uint64(desc.Len)]
	meta, frame = append(meta, in[:before]...), append(frame, in[before:]...)
	clear(in)
	at := desc.Addr / frameSize * frameSize
	atomic.StoreUint32(s.rx.consumer, n+1)
	s.give(at)
	return meta, frame
}
