package ioam

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// A buffer that is too short for options is replaced by a longer one, which the kernel charges to nobody. The
// receiver on the same machine must not merge such buffers: it would hold more than it is charged for, and compute a
// window from that in which no byte takes memory, which is a division by zero.
func TestInsertionBeyondBuffer(t *testing.T) {
	const sent = 2 << 20
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 9000})
	in := trace72(t)
	in.Options = nil
	for range 4 { // together longer than what TCP reserves on any kernel
		in.Options = append(in.Options, space(t, spaceA, wire.HopLimitNodeID, 50))
	}
	i := pool.inserts(t, l.Host("alpha"), headroom.Interface, false, in)
	var near, far net.Conn
	var listener net.Listener
	if err := l.Host("beta").Do(func() (err error) {
		c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4*sent); err != nil {
					t.Error(err)
				}
			})
		}}
		listener, err = c.Listen(t.Context(), "tcp6", netip.AddrPortFrom(l.Host("beta").Addr6(), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := i.Do(func() (err error) {
		near, err = (&net.Dialer{}).DialContext(t.Context(), "tcp6", listener.Addr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if _, err := near.Write(make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	raw, err := far.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var queued int
	var charged uint64
	await.True(t, "all to arrive", func() bool {
		err = raw.Control(func(fd uintptr) {
			queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ)
			charged, _ = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MEMINFO)
		})
		return err != nil || queued == sent
	})
	if charged &= 0xffffffff; err != nil || charged < sent { // the first of two words
		t.Errorf("%d bytes are in a queue that is charged for %d (%v)", queued, charged, err)
	}
	if o := i.outcome(t); o.Marked < 20 {
		t.Errorf("inserted %+v", o)
	}
}
