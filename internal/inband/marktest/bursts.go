package marktest

import (
	"crypto/rand"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
)

// BurstPort is where Bursts are sent to.
const BurstPort = 4433

// Bursts sends datagrams many at a time (UDP_SEGMENT), with eight bytes of padding in an option of the socket unless that
// is 0, and checks that each arrives. The error is that of the sender.
func Bursts(t testing.TB, from, to *lab.Host, bursts, segments, size, options int) error {
	t.Helper()
	var receiver *net.UDPConn
	if err := to.Do(func() (err error) {
		receiver, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Addr6(), BurstPort)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	if err := receiver.SetReadBuffer(1 << 22); err != nil {
		t.Fatal(err)
	}
	received := map[string]int{}
	var sender *net.UDPConn
	if err := from.Do(func() (err error) {
		sender, err = net.DialUDP("udp", nil, receiver.LocalAddr().(*net.UDPAddr))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	raw, err := sender.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if ctl := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
		if err == nil && options != 0 { // eight bytes of padding
			err = unix.SetsockoptString(int(fd), unix.SOL_IPV6, options, "\x00\x00\x01\x04\x00\x00\x00\x00")
		}
	}); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	sent := map[string]int{}
	payload := make([]byte, segments*size)
	buf := make([]byte, 65536)
	for range bursts {
		if _, err := rand.Read(payload); err != nil {
			t.Fatal(err)
		}
		if _, err := sender.Write(payload); err != nil {
			return err
		}
		for at := 0; at < len(payload); at += size {
			sent[string(payload[at:at+size])]++
			if err := receiver.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			n, err := receiver.Read(buf)
			if err != nil {
				t.Fatalf("a datagram is missing: %v", err)
			}
			received[string(buf[:n])]++
		}
	}
	if !maps.Equal(sent, received) {
		t.Error("other datagrams arrived than were sent")
	}
	return nil
}
