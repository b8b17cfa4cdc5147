// Package datapathtest is what tests of the datapath and of its stages share: an
// interface that carries nothing but a test's frames. Only tests call it.
package datapathtest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
	"github.com/waymark-net/waymark/test/packet"
)

// Veth is a veth pair in a namespace of its own that carries nothing but
// what a test sends: no IPv6, no addresses.
type Veth struct {
	netns    string
	From, To int // ifindex
	socket   int // packet socket on From
}

// NewVeth makes one that is deleted with the test.
func NewVeth(t testing.TB) *Veth {
	t.Helper()
	v := &Veth{netns: fmt.Sprintf("wmdp%d-%d", os.Getpid(), time.Now().UnixNano()%1e6), socket: -1}
	if err := lab.AddNetns(v.netns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v.socket >= 0 {
			_ = unix.Close(v.socket)
		}
		if err := lab.DeleteNetns(v.netns); err != nil {
			t.Error(err)
		}
	})
	if err := v.Do(v.build); err != nil {
		t.Fatal(err)
	}
	return v
}

// Do runs a function in the namespace.
func (v *Veth) Do(f func() error) error { return topology.InNetns(v.netns, f) }

func (v *Veth) build() error {
	for _, which := range []string{"default", "all"} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", which, "disable_ipv6"), []byte("1"), 0); err != nil {
			return err
		}
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "from", MTU: 9000}, PeerName: "to"}
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	for name, index := range map[string]*int{"from": &v.From, "to": &v.To} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		*index = l.Attrs().Index
		if err := netlink.LinkSetMTU(l, 9000); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	var err error
	v.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	return err
}

// Send sends a frame from From to To.
func (v *Veth) Send(t testing.TB, frame []byte) {
	t.Helper()
	if err := unix.Sendto(v.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: v.From}); err != nil {
		t.Fatalf("sending %d bytes: %v", len(frame), err)
	}
}

// Runnable is why BPF_PROG_TEST_RUN cannot take a frame; empty: it can.
func Runnable(f packet.Frame) string {
	switch {
	case f.Tag != nil:
		return "a test run has no accelerated tags: see TestCasesOnVeth"
	case len(f.Data) < 14:
		return "a test run wants 14 bytes"
	case len(f.Data) > 65535:
		return "a test run takes 64 KiB: BIG TCP is tested on real connections"
	case binary.BigEndian.Uint16(f.Data[12:]) == packet.TypeIPv4 && len(f.Data) < 14+20,
		binary.BigEndian.Uint16(f.Data[12:]) == packet.TypeIPv6 && len(f.Data) < 14+40:
		return "a test run wants a whole IP header: see TestCasesOnVeth"
	}
	return ""
}

// WaitUntil polls a condition; what names it.
func WaitUntil(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
