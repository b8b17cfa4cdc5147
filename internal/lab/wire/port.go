package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// vnetHeader is struct virtio_net_hdr before each frame: GSO and checksum state.
	vnetHeader = 10
	// maxFrame is a GSO burst of 64 KiB with its link header. BIG TCP is beyond it.
	maxFrame = 1<<16 + 64
	// vlanTag is put back into a frame whose tag the kernel took off on receipt.
	vlanTag = 4
	// batch is how many frames one system call receives.
	batch = 32

	receiveBuffer = 64 << 20 // bytes that may wait in the socket
	sendBuffer    = 8 << 20
)

// port is a packet socket on one interface. One goroutine receives from it and
// another sends to it.
type port struct {
	name string
	fd   int
	msgs [batch]message
	raw  [batch]unix.Mmsghdr
}

// message is where one frame is received: virtio header, then frame, with room
// for a tag in front.
type message struct {
	iov     unix.Iovec
	control [128]byte
	data    []byte
}

// received is one frame, valid until the next receive.
type received struct {
	buf     []byte // virtio header and frame
	arrived int64  // when the kernel took it in, CLOCK_REALTIME ns; 0: unknown
	whole   bool   // false: it did not fit
}

func openPort(name string, in func(func() error) error) (*port, error) {
	p := &port{name: name}
	if err := in(p.open); err != nil {
		return nil, fmt.Errorf("open packet socket on %s: %w", name, err)
	}
	for i := range p.msgs {
		m := &p.msgs[i]
		m.data = make([]byte, vlanTag+vnetHeader+maxFrame)
		m.iov.Base = &m.data[vlanTag]
		m.iov.SetLen(vnetHeader + maxFrame)
		h := &p.raw[i].Hdr
		h.Iov, h.Control = &m.iov, &m.control[0]
		h.SetIovlen(1)
	}
	return p, nil
}

func (p *port) open() (err error) {
	iface, err := net.InterfaceByName(p.name)
	if err != nil {
		return err
	}
	// Protocol 0: nothing is received before the socket is bound to the interface.
	p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	for _, o := range []struct {
		what               string
		level, name, value int
	}{
		{"virtio header", unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{"vlan tags", unix.SOL_PACKET, unix.PACKET_AUXDATA, 1},
		{"ignore own frames", unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{"arrival times", unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
		{"receive buffer", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer},
		{"send buffer", unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer},
	} {
		if err := unix.SetsockoptInt(p.fd, o.level, o.name, o.value); err != nil {
			unix.Close(p.fd)
			return fmt.Errorf("set option %s: %w", o.what, err)
		}
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: iface.Index}); err != nil {
		unix.Close(p.fd)
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func (p *port) close() { unix.Close(p.fd) }

// receive passes on up to batch frames that wait and returns how many.
func (p *port) receive(take func(received)) (int, error) {
	for i := range p.raw {
		p.raw[i].Hdr.SetControllen(len(p.msgs[i].control))
		p.raw[i].Hdr.Flags = 0
	}
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(p.fd), uintptr(unsafe.Pointer(&p.raw[0])), batch, unix.MSG_DONTWAIT, 0, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno == unix.EINVAL:
		return 0, errUnsupported
	case errno != 0:
		return 0, fmt.Errorf("receive from %s: %w", p.name, errno)
	}
	for i := range int(n) {
		m, raw := &p.msgs[i], &p.raw[i]
		r := received{
			buf:   m.data[vlanTag:][:raw.Len],
			whole: raw.Hdr.Flags&unix.MSG_TRUNC == 0,
		}
		var tag uint32
		tag, r.arrived = readControl(m.control[:raw.Hdr.Controllen])
		if tag != 0 && r.whole {
			r.buf = putTagBack(m.data[:vlanTag+int(raw.Len)], tag)
		}
		take(r)
	}
	return int(n), nil
}

var errUnsupported = errors.New("frame cannot be described by a virtio header")

// readControl finds the tag (TPID and TCI; 0: none) and the time of arrival.
func readControl(control []byte) (tag uint32, arrived int64) {
	for len(control) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		length := int(h.Len)
		if length < unix.SizeofCmsghdr || length > len(control) {
			return tag, arrived
		}
		data := control[unix.CmsgLen(0):length]
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			arrived = (*unix.Timespec)(unsafe.Pointer(&data[0])).Nano()
		case h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA && len(data) >= int(unsafe.Sizeof(unix.TpacketAuxdata{})):
			aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&data[0]))
			if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
				tpid := uint16(etherVLAN)
				if aux.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
					tpid = aux.Vlan_tpid
				}
				tag = uint32(tpid)<<16 | uint32(aux.Vlan_tci)
			}
		}
		control = control[min(len(control), unix.CmsgSpace(length-unix.CmsgLen(0))):]
	}
	return tag, arrived
}

// putTagBack moves virtio header and addresses to the front of the room before
// them and puts the tag where it was. A checksum that is to be finished then
// starts later.
func putTagBack(buf []byte, tag uint32) []byte {
	const addresses = 12
	copy(buf, buf[vlanTag:][:vnetHeader+addresses])
	binary.BigEndian.PutUint32(buf[vnetHeader+addresses:], tag)
	const needsChecksum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	if buf[0]&needsChecksum != 0 {
		start := buf[6:8]
		binary.NativeEndian.PutUint16(start, binary.NativeEndian.Uint16(start)+vlanTag)
	}
	if length := buf[2:4]; buf[1] != 0 { // hdr_len of a GSO burst
		binary.NativeEndian.PutUint16(length, binary.NativeEndian.Uint16(length)+vlanTag)
	}
	return buf
}

// send sends a virtio header and frame.
func (p *port) send(buf []byte) error {
	for {
		_, err := unix.Write(p.fd, buf)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// overflow is how many frames did not fit into the socket since the last call.
func (p *port) overflow() uint64 {
	st, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(st.Drops)
}
