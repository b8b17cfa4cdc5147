package ioam

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/export/ownsocket"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/packet"
)

// Nothing is inserted into what the agent exports, neither by IOAM nor by PDM (RFC 9326 section 3.1).
func TestOwnPacketsStay(t *testing.T) {
	if uint32(abiMarkOwnMARK_OWN_PRIORITY) != ownsocket.Priority {
		t.Fatalf("programs know %#x, sockets have %#x", uint32(abiMarkOwnMARK_OWN_PRIORITY), ownsocket.Priority)
	}
	n := inserting(t, trace72(t))
	n.ClosedDomain = true
	h := newInsertingHost(t, true, n)
	h.know(t)
	frame := packet.Eth().IPv6(hostA, hostB).UDP(1000, 2000).Payload(100).Bytes()
	h.inside(t, func() {
		send := func(priority uint32) []byte {
			var ctx [48]uint32
			ctx[8], ctx[10] = priority, uint32(h.veth.From)
			opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+2048), Context: ctx}
			if _, err := h.program(t, "test_leave").Run(&opts); err != nil {
				t.Fatal(err)
			}
			return opts.DataOut
		}
		if out := send(0); bytes.Equal(out, frame) {
			t.Error("nothing was inserted into the packet of another socket")
		}
		before := h.why(t, nil)
		if out := send(ownsocket.Priority); !bytes.Equal(out, frame) {
			t.Errorf("inserted: % x", out)
		}
		if why := h.why(t, before); why["not_inserted_own"] != 1 {
			t.Errorf("counted %v", why)
		}
	})
}

// The packets of the exporters' sockets arrive without options, all others with them.
func TestOwnSocketsStay(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
	alpha, beta := l.Host("alpha"), l.Host("beta")
	n := inserting(t, trace72(t))
	n.ClosedDomain = true
	n.Interfaces = n.Interfaces[1:]
	n.Interfaces[0].Name = alpha.Interfaces[0].Name
	attachNode(t, alpha, Config{Transit: TransitTC}, n)
	var listener *net.UDPConn
	if err := beta.Do(func() (err error) {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVHOPOPTS, 1) })
			if failed != nil {
				return failed
			}
			return err
		}}
		c, err := config.ListenPacket(context.Background(), "udp6", netip.AddrPortFrom(beta.Addr6(), 0).String())
		if err == nil {
			listener = c.(*net.UDPConn)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, test := range map[string]struct {
		dialer net.Dialer
		tagged bool
	}{"another socket": {net.Dialer{}, true}, "socket of an exporter": {net.Dialer{Control: ownsocket.Control}, false}} {
		var c net.Conn
		if err := alpha.Do(func() (err error) {
			c, err = test.dialer.Dial("udp6", listener.LocalAddr().String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = listener.SetReadDeadline(time.Now().Add(time.Minute))
		_, options, _, _, err := listener.ReadMsgUDP(make([]byte, 16), make([]byte, 512))
		if err != nil || options > 0 != test.tagged {
			t.Errorf("%s: %d bytes of options, %v", name, options, err)
		}
		c.Close()
	}
}
