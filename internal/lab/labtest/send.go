package labtest

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// Sender sends frames as they are out of an interface.
type Sender struct {
	iface string
	fd    int
	to    unix.SockaddrLinklayer
}

// NewSender waits until an interface of a host has its carrier: before, the kernel drops frames silently.
func NewSender(t testing.TB, h *lab.Host, iface string) *Sender {
	t.Helper()
	s := &Sender{iface: iface}
	await.Success(t, func() error { return h.Do(s.open) })
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

func (s *Sender) open() error {
	link, err := net.InterfaceByName(s.iface)
	if err != nil {
		return err
	}
	if link.Flags&net.FlagRunning == 0 {
		return fmt.Errorf("%s has no carrier", s.iface)
	}
	s.to.Ifindex = link.Index
	s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	return err
}

// Send sends frames one after another.
func (s *Sender) Send(frames ...[]byte) error {
	for _, frame := range frames {
		if err := unix.Sendto(s.fd, frame, 0, &s.to); err != nil {
			return fmt.Errorf("send %d bytes on %s: %w", len(frame), s.iface, err)
		}
	}
	return nil
}
