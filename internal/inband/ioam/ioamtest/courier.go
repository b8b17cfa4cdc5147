package ioamtest

import (
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
)

// Courier sends datagrams with options from one host to another.
type Courier struct {
	from, to *net.UDPConn
	addr     *net.UDPAddr
}

// NewCourier opens the sockets.
func NewCourier(t testing.TB, from, to *lab.Host) *Courier {
	t.Helper()
	c := &Courier{}
	listen := func(h *lab.Host, into **net.UDPConn, prepare func(fd int) error) {
		if err := h.Do(func() (err error) {
			if *into, err = net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.Addr6(), 0))); err != nil {
				return err
			}
			raw, err := (*into).SyscallConn()
			if err != nil {
				return err
			}
			var failed error
			err = raw.Control(func(fd uintptr) { failed = prepare(int(fd)) })
			if err == nil {
				err = failed
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*into).Close() })
	}
	listen(from, &c.from, func(int) error { return nil })
	listen(to, &c.to, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPOPTS, 1)
	})
	c.addr = c.to.LocalAddr().(*net.UDPAddr)
	return c
}

// Send sends a Hop-by-Hop header, whose first two bytes the kernel completes.
func (c *Courier) Send(t testing.TB, header []byte) {
	t.Helper()
	oob := make([]byte, unix.CmsgSpace(len(header)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	h.Level, h.Type = unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS
	h.SetLen(unix.CmsgLen(len(header)))
	copy(oob[unix.CmsgLen(0):], header)
	if _, _, err := c.from.WriteMsgUDP([]byte("x"), oob, c.addr); err != nil {
		t.Fatalf("sending % x: %v", header, err)
	}
}

// Carry sends a Hop-by-Hop header and returns it as it arrives.
func (c *Courier) Carry(t testing.TB, header []byte) []byte {
	t.Helper()
	c.Send(t, header)
	_ = c.to.SetReadDeadline(time.Now().Add(5 * time.Second))
	got := make([]byte, 512)
	_, n, _, _, err := c.to.ReadMsgUDP(make([]byte, 16), got)
	if err != nil {
		t.Fatalf("% x did not arrive: %v", header, err)
	}
	messages, err := unix.ParseSocketControlMessage(got[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	return messages[0].Data[:(int(messages[0].Data[1])+1)*8]
}
