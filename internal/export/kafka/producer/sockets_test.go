package producer

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/kafka"
	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

// TestSockets: connections have the mark of the agent, and an agent that is gone is an error.
func TestSockets(t *testing.T) {
	agent, theirs, err := kafka.NewSockets()
	if err != nil {
		t.Fatal(err)
	}
	go agent.Give()
	fd, err := unix.Dup(int(theirs.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	s := newSockets(fd)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := dial(t.Context(), s, nil, "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			if p, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY); err != nil || p != ownsocket.Priority {
				t.Errorf("%s: priority %#x: %v", address, p, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		b := make([]byte, 5)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n, err := peer.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("%q, %v", b[:n], err)
		}
	}
	agent.Close()
	if c, err := dial(t.Context(), s, nil, "tcp", "127.0.0.1:1"); err == nil {
		c.Close()
		t.Error("a socket without an agent")
	}
}
