package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
)

const (
	// blockSize is the unit in which the kernel hands packets over, a power of
	// two of whole pages.
	blockSize = 256 << 10
	// retireAfter is how long the kernel keeps a block that is not full.
	retireAfter = 20 * time.Millisecond
	// vnetHdrLen is the size of struct virtio_net_hdr, which stands in front of
	// the frame and tells of segmentation.
	vnetHdrLen = 10
)

// ring is an AF_PACKET socket on one interface, whose packets the kernel writes
// into memory shared with us (TPACKET_V3, packet(7)). One goroutine at a time.
type ring struct {
	target Target
	fd     int
	memory []byte
	blocks int
	next   int // block that the kernel hands over next

	consumed  uint64    // frames read from the ring
	delivered uint64    // frames the kernel wrote, at the last reading
	seen      [2]uint64 // frames by direction, since the last reading
}

// openRing attaches to an interface. It runs in the interface's namespace.
func openRing(t Target, cfg Config) (*ring, error) {
	// Protocol 0: nothing is received until bind.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening packet socket: %w", explain(err))
	}
	r := &ring{target: t, fd: fd, blocks: max(2, int(cfg.RingSize)/blockSize)}
	if err := r.open(cfg.SnapLen); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// open makes the ring and binds the socket, in the order that the kernel wants.
func (r *ring) open(snapLen uint32) error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("asking for TPACKET_V3: %w", err)
	}
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return fmt.Errorf("asking for segmentation headers: %w", err)
	}
	if err := r.accept(snapLen); err != nil {
		return err
	}
	req := unix.TpacketReq3{
		Block_size: blockSize, Block_nr: uint32(r.blocks),
		// With variable frames only their product must be right.
		Frame_size: blockSize, Frame_nr: uint32(r.blocks),
		Retire_blk_tov: uint32(retireAfter / time.Millisecond),
	}
	if err := unix.SetsockoptTpacketReq3(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("making a ring of %d bytes: %w", r.blocks*blockSize, explain(err))
	}
	var err error
	r.memory, err = unix.Mmap(r.fd, 0, r.blocks*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the ring: %w", explain(err))
	}
	index := r.target.IfIndex
	if index == 0 {
		index = r.target.Iface.IfIndex()
	}
	addr := &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: int(index)}
	if err := unix.Bind(r.fd, addr); err != nil {
		return fmt.Errorf("binding to interface %d: %w", index, err)
	}
	return nil
}

// accept tells the kernel how many bytes of each packet to copy; 0: no packets.
func (r *ring) accept(snapLen uint32) error {
	program := r.target.filter(snapLen)
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.SetsockoptSockFprog(r.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &fprog); err != nil {
		return fmt.Errorf("setting the length captured: %w", err)
	}
	return nil
}

// filter is the program that chooses packets by their direction, where only one
// is counted, and returns how many bytes of them to copy.
func (t *Target) filter(snapLen uint32) []unix.SockFilter {
	take := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: snapLen}
	if len(t.Directions) != 1 || snapLen == 0 {
		return []unix.SockFilter{take}
	}
	const packetType = 0xfffff000 + 4 // SKF_AD_OFF + SKF_AD_PKTTYPE
	skipIf := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OUTGOING, Jt: 1}
	if t.Directions[0] == flow.Egress {
		skipIf.Jt, skipIf.Jf = 0, 1
	}
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: packetType},
		skipIf, take,
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

func (r *ring) close() {
	if r.memory != nil {
		_ = unix.Munmap(r.memory)
		r.memory = nil
	}
	if r.fd >= 0 {
		_ = unix.Close(r.fd)
		r.fd = -1
	}
}

// read counts the packets of one block that the kernel has handed over, and
// hands it back; false when there is none.
func (r *ring) read(m *meter) bool {
	block := r.memory[r.next*blockSize : (r.next+1)*blockSize]
	desc := (*unix.TpacketHdrV1)(unsafe.Pointer(&block[unsafe.Offsetof(unix.TpacketBlockDesc{}.Hdr)]))
	if atomic.LoadUint32(&desc.Block_status)&unix.TP_STATUS_USER == 0 {
		return false
	}
	rest := block[desc.Offset_to_first_pkt:]
	for n := desc.Num_pkts; n > 0; n-- {
		h := (*unix.Tpacket3Hdr)(unsafe.Pointer(&rest[0]))
		// A place that was given to a packet but not filled has another status.
		if h.Status&unix.TP_STATUS_USER != 0 {
			r.packet(m, h, rest)
		}
		rest = rest[h.Next_offset:]
	}
	atomic.StoreUint32(&desc.Block_status, unix.TP_STATUS_KERNEL)
	r.next = (r.next + 1) % r.blocks
	return true
}

// packet counts the one whose header h stands at the beginning of mem.
func (r *ring) packet(m *meter, h *unix.Tpacket3Hdr, mem []byte) {
	f := frame{
		data:   mem[h.Mac:][:h.Snaplen:h.Snaplen],
		length: int(h.Len),
		gso:    gsoOf(mem[h.Mac-vnetHdrLen:]),
	}
	if r.target.NoLinkHeader {
		f.link = linkNone
	}
	if h.Status&unix.TP_STATUS_VLAN_VALID != 0 {
		f.tagged, f.tci, f.outside = true, uint16(h.Hv1.Vlan_tci), tagLen
	}
	from := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&mem[unix.SizeofTpacket3Hdr]))
	at := place{r.target.Iface, flow.Ingress}
	if from.Pkttype == unix.PACKET_OUTGOING {
		at.direction = flow.Egress
	}
	m.add(&f, at, int64(h.Sec)*int64(time.Second)+int64(h.Nsec))
	r.consumed++
	r.seen[at.direction]++
}

// gsoOf reads struct virtio_net_hdr: flags, GSO type, header length, GSO size,
// and where the checksum begins that is still to be computed. That is the
// innermost transport header, as GSO wants it. The header length is none: it is
// what is in linear memory.
func gsoOf(header []byte) (g gso) {
	const (
		needsChecksum = 1
		tcpv4, tcpv6  = 1, 4
		ecn           = 0x80
	)
	kind := header[1] &^ ecn
	if kind == 0 {
		return g
	}
	g.size = int(binary.NativeEndian.Uint16(header[4:]))
	g.tcp = kind == tcpv4 || kind == tcpv6
	if header[0]&needsChecksum != 0 {
		g.transportAt = int(binary.NativeEndian.Uint16(header[6:]))
	}
	return g
}

// statistics asks the kernel how much it has written, and counts what it has
// not. It doesn't know of which direction that was, so it is shared out in the
// proportion of what arrived; the sum is exact.
func (r *ring) statistics(m *meter) error {
	s, err := unix.GetsockoptTpacketStatsV3(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("reading drops of %s: %w", r.target.Name, err)
	}
	// Reading resets both; the packets include the drops.
	r.delivered += uint64(s.Packets - s.Drops)
	if s.Drops > 0 {
		drops, egress := uint64(s.Drops), uint64(0)
		if sum := r.seen[flow.Ingress] + r.seen[flow.Egress]; sum > 0 {
			egress = drops * r.seen[flow.Egress] / sum
		}
		m.count(place{r.target.Iface, flow.Ingress}, reasonRingFull, amount{drops - egress, drops - egress, 0})
		m.count(place{r.target.Iface, flow.Egress}, reasonRingFull, amount{egress, egress, 0})
	}
	r.seen = [2]uint64{}
	return nil
}

// behind says whether the kernel had written frames, at the last statistics,
// that have not been read.
func (r *ring) behind() bool { return r.consumed < r.delivered }

// socketError fetches and clears what the socket reports: ENETDOWN when its
// interface went down, from which it recovers by itself.
func (r *ring) socketError() error {
	errno, err := unix.GetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return fmt.Errorf("reading socket error of %s: %w", r.target.Name, err)
	case errno == 0 || errors.Is(unix.Errno(errno), unix.ENETDOWN):
		return nil
	}
	return fmt.Errorf("packet socket of %s: %w", r.target.Name, unix.Errno(errno))
}

// bigEndian is a 16-bit number in network byte order, as the socket wants it.
func bigEndian(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
