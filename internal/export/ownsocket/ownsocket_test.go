package ownsocket_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

func priority(t *testing.T, s any) (v int) {
	t.Helper()
	raw, err := s.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failed := raw.Control(func(fd uintptr) { v, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY) }); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return v
}

// Both ends of a connection can be the agent's, whoever begins it.
func TestSockets(t *testing.T) {
	l, err := (&net.ListenConfig{Control: ownsocket.Control}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if v := priority(t, l); v != ownsocket.Priority {
		t.Errorf("listener: %#x", v)
	}
	listener := ownsocket.Listener(l)
	defer listener.Close()
	d := net.Dialer{Control: ownsocket.Control}
	c, err := d.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for name, s := range map[string]net.Conn{"connected": c, "accepted": accepted} {
		if v := priority(t, s); v != ownsocket.Priority {
			t.Errorf("%s: %#x", name, v)
		}
	}
}
