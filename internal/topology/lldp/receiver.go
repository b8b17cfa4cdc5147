package lldp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxNeighbours bounds what announcements take; those that expire first make room for others.
const maxNeighbours = 1024

// groups are the link layer addresses to which announcements are sent.
var groups = [][6]byte{{0x01, 0x80, 0xc2, 0, 0, 0x0e}, {0x01, 0x80, 0xc2, 0, 0, 0x03}, {0x01, 0x80, 0xc2, 0, 0, 0}}

// Neighbour announced itself on an interface.
type Neighbour struct {
	Frame
	IfIndex uint32
	expires time.Time
}

// key identifies a neighbour: IEEE 802.1AB calls it an MSAP.
type key struct {
	ifindex       uint32
	chassis, port string
}

// Receiver receives announcements in the network namespace in which it was opened.
type Receiver struct {
	socket *os.File
	now    func() time.Time

	mu      sync.Mutex
	all     map[key]Neighbour
	joined  map[uint32]bool
	changes uint64
	invalid uint64
}

// Open needs CAP_NET_RAW; what follows needs no privilege.
func Open(now func() time.Time) (*Receiver, error) {
	protocol := int(binary.NativeEndian.Uint16([]byte{EtherType >> 8, EtherType & 0xff}))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("receive LLDP: %w", err)
	}
	return &Receiver{socket: os.NewFile(uintptr(fd), "lldp"), now: now, all: map[key]Neighbour{}, joined: map[uint32]bool{}}, nil
}

// Join receives on interfaces; it forgets those that it was not given. No interface becomes promiscuous.
func (r *Receiver) Join(interfaces []uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.joined {
		if !slices.Contains(interfaces, i) {
			delete(r.joined, i) // the kernel ends the membership with the interface
		}
	}
	for _, i := range interfaces {
		if !r.joined[i] {
			r.joined[i] = r.join(i)
		}
	}
}

func (r *Receiver) join(ifindex uint32) bool {
	raw, err := r.socket.SyscallConn()
	if err != nil {
		return false
	}
	ok := true
	err = raw.Control(func(fd uintptr) {
		for _, g := range groups {
			m := unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(g))}
			copy(m.Address[:], g[:])
			ok = ok && unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m) == nil
		}
	})
	return ok && err == nil
}

// Run receives until ctx ends.
func (r *Receiver) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { r.socket.Close() })()
	raw, err := r.socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("receive LLDP: %w", err)
	}
	buffer := make([]byte, 2048)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buffer, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case errors.Is(err, os.ErrClosed) || ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("receive LLDP: %w", err)
		case failed != nil: // such as an interface that went down
			continue
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype != unix.PACKET_OUTGOING {
			r.receive(uint32(at.Ifindex), buffer[:n])
		}
	}
}

func (r *Receiver) receive(ifindex uint32, frame []byte) {
	f, err := Parse(frame)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.invalid++
		return
	}
	k, now := key{ifindex, f.Chassis, f.Port}, r.now()
	old, known := r.all[k]
	if f.TTL == 0 {
		delete(r.all, k)
		r.changes++
		return
	}
	if !known && len(r.all) >= maxNeighbours {
		r.makeRoom()
	}
	r.all[k] = Neighbour{f, ifindex, now.Add(f.TTL)}
	if f.TTL = old.TTL; !known || old.Frame != f {
		r.changes++
	}
}

func (r *Receiver) makeRoom() {
	var first key
	for k, n := range r.all {
		if other, ok := r.all[first]; !ok || n.expires.Before(other.expires) {
			first = k
		}
	}
	delete(r.all, first)
}

// Neighbours are those whose announcements have not expired.
func (r *Receiver) Neighbours() (list []Neighbour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for k, n := range r.all {
		if now.After(n.expires) {
			delete(r.all, k)
			r.changes++
			continue
		}
		list = append(list, n)
	}
	return list
}

// Changes counts changes of the neighbours; Invalid, frames that could not be read.
func (r *Receiver) Changes() (changes, invalid uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes, r.invalid
}
