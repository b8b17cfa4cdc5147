package tap

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	bufferSize = 4096
	// A buffer has space in front for the kernel (XDP_PACKET_HEADROOM), and some drivers keep some behind.
	bufferRoom = bufferSize - 256 - 320
	// mostBuffers of a frame: as many as the kernel hands on together.
	mostBuffers = 16

	continued = 1 << 0 // XDP_PKT_CONTD: the next descriptor is of the same frame
)

// socket is an AF_XDP socket that receives from a queue, and its memory.
type socket struct {
	fd       int
	size     uint32 // of its rings, and buffers of its memory
	memory   []byte
	rings    [][]byte // as mapped
	rx, free ring
	zeroCopy bool
	parts    bool // it takes frames in several buffers
}

// ring is shared with the kernel.
type ring struct {
	producer, consumer, flags *uint32
	entries                   unsafe.Pointer
	mask                      uint32
}

// errNoQueue: the interface has no queue of this number.
var errNoQueue = errors.New("there is no such queue")

func openSocket(index int, number uint32, size uint32, bySkb bool) (_ *socket, err error) {
	s := &socket{fd: -1, size: size}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("opening an AF_XDP socket: %w", err)
	}
	if s.memory, err = unix.Mmap(-1, 0, int(size)*bufferSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, fmt.Errorf("memory of an AF_XDP socket: %w", err)
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&s.memory[0]))), Len: uint64(len(s.memory)), Size: bufferSize}
	if err := s.set(unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
		return nil, err
	}
	for _, name := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		if err := s.set(name, unsafe.Pointer(&size), unsafe.Sizeof(size)); err != nil {
			return nil, err
		}
	}
	if err := s.mapRings(); err != nil {
		return nil, err
	}
	for i := range size {
		s.give(i, uint64(i)*bufferSize)
	}
	atomic.StoreUint32(s.free.producer, size)
	return s, s.bind(index, number, bySkb)
}

// bind asks for frames in several buffers, and for no copy, and takes what it gets.
func (s *socket) bind(index int, number uint32, bySkb bool) error {
	var err error
	for _, parts := range []bool{true, false} {
		flags := uint16(unix.XDP_USE_NEED_WAKEUP)
		if parts {
			flags |= unix.XDP_USE_SG
		}
		if bySkb {
			flags |= unix.XDP_COPY
		}
		if err = unix.Bind(s.fd, &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(index), QueueID: number}); err == nil {
			s.parts = parts
			break
		}
	}
	if err == unix.EINVAL && number > 0 {
		return errNoQueue
	}
	if err != nil {
		return fmt.Errorf("binding an AF_XDP socket to queue %d: %w", number, err)
	}
	var options uint32
	if err := s.get(unix.XDP_OPTIONS, unsafe.Pointer(&options), unsafe.Sizeof(options)); err != nil {
		return err
	}
	s.zeroCopy = options&unix.XDP_OPTIONS_ZEROCOPY != 0
	return nil
}

func (s *socket) set(name int, value unsafe.Pointer, size uintptr) error {
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.fd), unix.SOL_XDP, uintptr(name), uintptr(value), size, 0); errno != 0 {
		return fmt.Errorf("option %d of an AF_XDP socket: %w", name, errno)
	}
	return nil
}

func (s *socket) get(name int, value unsafe.Pointer, size uintptr) error {
	n := uint32(size)
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_XDP, uintptr(name), uintptr(value), uintptr(unsafe.Pointer(&n)), 0); errno != 0 {
		return fmt.Errorf("asking for option %d of an AF_XDP socket: %w", name, errno)
	}
	return nil
}

// failed is why the kernel sends nothing more, if so.
func (s *socket) failed() error {
	if errno, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
		return err
	} else if errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

func (s *socket) mapRings() (err error) {
	var o unix.XDPMmapOffsets
	if err := s.get(unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&o), unsafe.Sizeof(o)); err != nil {
		return err
	}
	if s.rx, err = s.mapRing(unix.XDP_PGOFF_RX_RING, o.Rx, uint64(unsafe.Sizeof(unix.XDPDesc{}))); err != nil {
		return err
	}
	s.free, err = s.mapRing(unix.XDP_UMEM_PGOFF_FILL_RING, o.Fr, 8)
	return err
}

func (s *socket) mapRing(at int64, o unix.XDPRingOffset, entry uint64) (ring, error) {
	m, err := unix.Mmap(s.fd, at, int(o.Desc+uint64(s.size)*entry), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring{}, fmt.Errorf("mapping a ring of an AF_XDP socket: %w", err)
	}
	s.rings = append(s.rings, m)
	word := func(at uint64) *uint32 { return (*uint32)(unsafe.Pointer(&m[at])) }
	return ring{word(o.Producer), word(o.Consumer), word(o.Flags), unsafe.Pointer(&m[o.Desc]), s.size - 1}, nil
}

// give writes an entry of the fill ring, which the kernel sees when its producer moves.
func (s *socket) give(n uint32, at uint64) {
	*(*uint64)(unsafe.Add(s.free.entries, 8*uintptr(n&s.free.mask))) = at
}

// desc is an entry of the ring of received buffers.
func (s *socket) desc(n uint32) *unix.XDPDesc {
	return (*unix.XDPDesc)(unsafe.Add(s.rx.entries, unsafe.Sizeof(unix.XDPDesc{})*uintptr(n&s.rx.mask)))
}

// received is how many buffers there are to read.
func (s *socket) received() uint32 { return atomic.LoadUint32(s.rx.producer) - *s.rx.consumer }

// release gives the first n buffers back, and has the driver continue if it waits for some.
func (s *socket) release(n uint32) {
	first, to := *s.rx.consumer, *s.free.producer
	for i := range n {
		s.give(to+i, s.desc(first+i).Addr&^(bufferSize-1))
	}
	atomic.StoreUint32(s.free.producer, to+n)
	atomic.StoreUint32(s.rx.consumer, first+n)
	if atomic.LoadUint32(s.free.flags)&unix.XDP_RING_NEED_WAKEUP != 0 {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 0)
	}
}

func (s *socket) close() {
	for _, m := range s.rings {
		_ = unix.Munmap(m)
	}
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
	if s.memory != nil {
		_ = unix.Munmap(s.memory)
	}
	s.rings, s.memory, s.fd = nil, nil, -1
}
