package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/analyze/device/decode"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/analyze/state"
)

// socket is one that devices send to.
type socket struct {
	receiver *Receiver
	cfg      *settings.Receive
	conn     *net.UDPConn

	mu     sync.Mutex
	status state.Receiver
	last   uint32 // the kernel's count of what it dropped
}

// bufferBytes is how much the kernel may keep for a socket, if net.core.rmem_max allows it.
const bufferBytes = 8 << 20

func (r *Receiver) open(cfg *settings.Receive) (*socket, error) {
	address, err := net.ResolveUDPAddr("udp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("receive from devices: %w; set analyze.receive to addresses of this host", err)
	}
	conn, err := net.ListenUDP("udp", address)
	if err != nil {
		return nil, fmt.Errorf("receive from devices: %w; set analyze.receive to addresses of this host and free ports", err)
	}
	s := &socket{receiver: r, cfg: cfg, conn: conn, status: state.Receiver{Listen: conn.LocalAddr().String(), Refused: map[string]uint64{}}}
	if err := errors.Join(conn.SetReadBuffer(bufferBytes), s.countDrops()); err != nil {
		return nil, errors.Join(fmt.Errorf("receive from devices at %s: %w", cfg.Listen, err), conn.Close())
	}
	return s, nil
}

// countDrops has the kernel say with a datagram how many it dropped before, and asks how large the buffer is.
func (s *socket) countDrops() error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1); failed == nil {
			s.status.Buffer, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
		}
	})
	return errors.Join(err, failed)
}

func (s *socket) takes(p decode.Protocol) bool {
	return len(s.cfg.Protocols) == 0 || slices.Contains(s.cfg.Protocols, p.String())
}

// run reads until the deadline that the end sets.
func (s *socket) run() error {
	b, oob := make([]byte, 1<<16), make([]byte, 128)
	for {
		n, m, flags, from, err := s.conn.ReadMsgUDPAddrPort(b, oob)
		if errors.Is(err, os.ErrDeadlineExceeded) { // the end
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive from devices at %s: %w", s.status.Listen, err)
		}
		dropped, counted := overflow(oob[:m])
		refused, text := refusedForm, "it is longer than a datagram can be"
		if flags&unix.MSG_TRUNC == 0 {
			refused, text = s.receiver.take(s, from, b[:n])
		}
		s.mu.Lock()
		s.status.Datagrams++
		s.status.Bytes += uint64(n)
		more := dropped - s.last
		if counted {
			s.status.KernelDropped += uint64(more)
			s.last = dropped
		}
		if refused != "" {
			s.status.Refused[refused]++
			s.status.LastRefused = from.Addr().Unmap().String()
		}
		s.mu.Unlock()
		if refused != "" {
			// Not for each address: they can be forged.
			s.receiver.deps.Warn("device "+refused+" "+s.status.Listen, "datagrams of a device are refused", "reason", refused, "from", from, "at", s.status.Listen, "what", text)
		}
		if counted && more > 0 {
			s.receiver.deps.Warn("drops "+s.status.Listen, "the kernel dropped datagrams of devices, whose buffer was full", "at", s.status.Listen, "datagrams", dropped,
				"remedy", "raise net.core.rmem_max, or have devices send less, or to several ports")
		}
	}
}

// overflow is the kernel's count of datagrams that it dropped, of the socket.
func overflow(oob []byte) (n uint32, ok bool) {
	for len(oob) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0, false
		}
		if header.Level == unix.SOL_SOCKET && header.Type == unix.SO_RXQ_OVFL && len(data) >= 4 {
			return binary.NativeEndian.Uint32(data), true
		}
		oob = rest
	}
	return 0, false
}

func (s *socket) report() state.Receiver {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.status
	r.Refused = maps.Clone(r.Refused)
	return r
}
