package interp

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Frame is what a program is run on.
type Frame struct {
	Data []byte
	// IfIndex of the interface, which the frame leaves by or came by.
	IfIndex uint32
	// Received frames came by it; all others are of a socket of this host, for IPv6.
	Received bool
	// Link is the length of the link header.
	Link int
	// Segments of at most Size bytes of payload that a GSO frame stands for; 0: it is no such frame.
	Segments, Size uint16
}

// Space before and behind a frame.
const headroom, tailroom = 256, 256

// skb is a struct sk_buff whose data is linear.
type skb struct {
	vm      *VM
	address uint64
	raw     []byte // of the struct
	head    []byte
	headAt  uint64
	link    int
	data    int // offset in head
	len     int
}

func (vm *VM) newSKB(f Frame) (*skb, error) {
	size, err := vm.kernel.sizeOf("sk_buff")
	if err != nil {
		return nil, err
	}
	device, err := vm.kernel.sizeOf("net_device")
	if err != nil {
		return nil, err
	}
	shared, err := vm.kernel.sizeOf("skb_shared_info")
	if err != nil {
		return nil, err
	}
	sockSize, err := vm.kernel.sizeOf("sock")
	if err != nil {
		return nil, err
	}
	sock := make([]byte, sockSize)
	s := &skb{vm: vm, link: f.Link, raw: make([]byte, size), data: headroom, len: len(f.Data)}
	end := (headroom + len(f.Data) + tailroom + 63) &^ 63
	s.head = make([]byte, end+shared)
	copy(s.head[headroom:], f.Data)
	s.address = vm.scratch.add("the sk_buff", s.raw)
	s.headAt = vm.scratch.add("the frame", s.head)
	dev := make([]byte, device)
	devAt := vm.scratch.add("the net_device", dev)
	info := s.head[end:]

	w := writer{k: vm.kernel}
	w.put(dev, "net_device", "ifindex", 4, uint64(f.IfIndex))
	w.put(s.raw, "sk_buff", "dev", 8, devAt)
	w.put(s.raw, "sk_buff", "head", 8, s.headAt)
	w.put(s.raw, "sk_buff", "end", 4, uint64(end))
	if f.Received {
		w.put(s.raw, "sk_buff", "skb_iif", 4, uint64(f.IfIndex))
	}
	w.put(s.raw, "sk_buff", "mac_header", 2, headroom)
	w.put(s.raw, "sk_buff", "network_header", 2, uint64(headroom+f.Link))
	w.put(info, "skb_shared_info", "gso_size", 2, uint64(f.Size))
	w.put(info, "skb_shared_info", "gso_segs", 2, uint64(f.Segments))
	if f.Link >= 2 {
		w.put(s.raw, "sk_buff", "protocol", 2, uint64(binary.NativeEndian.Uint16(f.Data[f.Link-2:])))
	}
	if !f.Received {
		w.put(s.raw, "sk_buff", "sk", 8, vm.scratch.add("the sock", sock))
		w.put(sock, "sock_common", "skc_family", 2, unix.AF_INET6)
	}
	if w.err != nil {
		return nil, w.err
	}
	return s, s.update()
}

// update writes the lengths and the pointers that follow from them.
func (s *skb) update() error {
	w := writer{k: s.vm.kernel}
	w.put(s.raw, "sk_buff", "len", 4, uint64(s.len))
	w.put(s.raw, "sk_buff", "data", 8, s.headAt+uint64(s.data))
	w.put(s.raw, "sk_buff", "tail", 4, uint64(s.data+s.len))
	cb, err := s.vm.kernel.offset("sk_buff", "cb")
	if err != nil {
		return err
	}
	w.put(s.raw[cb:], "bpf_skb_data_end", "data_meta", 8, s.headAt+uint64(s.data)) // XDP left nothing
	w.put(s.raw[cb:], "bpf_skb_data_end", "data_end", 8, s.headAt+uint64(s.data+s.len))
	return w.err
}

func (s *skb) bytes() ([]byte, error) {
	if s.data < 0 || s.data+s.len > len(s.head) {
		return nil, fmt.Errorf("the frame has %d bytes from %d on", s.len, s.data)
	}
	return append([]byte(nil), s.head[s.data:s.data+s.len]...), nil
}

// writer writes members; err is the first error.
type writer struct {
	k   *kernelInfo
	err error
}

func (w *writer) put(to []byte, structure, member string, size int, value uint64) {
	if w.err != nil {
		return
	}
	at, err := w.k.offset(structure, member)
	if err != nil {
		w.err = err
		return
	}
	switch size {
	case 2:
		binary.NativeEndian.PutUint16(to[at:], uint16(value))
	case 4:
		binary.NativeEndian.PutUint32(to[at:], uint32(value))
	default:
		binary.NativeEndian.PutUint64(to[at:], value)
	}
}
