// Package datapathtest is what tests of the datapath and of its stages share: an
// interface that carries nothing but a test's frames. Only tests call it.
package datapathtest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/packet"
)

// Veth is a veth pair in a namespace of its own that carries nothing but
// what a test sends: no IPv6, no addresses.
type Veth struct {
	host     *lab.Host
	From, To int // ifindex
	sender   *labtest.Sender
}

// NewVeth makes one that is deleted with the test.
func NewVeth(t testing.TB) *Veth {
	t.Helper()
	v := &Veth{host: labtest.NewHost(t)}
	if err := v.Do(v.build); err != nil {
		t.Fatal(err)
	}
	v.sender = labtest.NewSender(t, v.host, "from")
	return v
}

// Do runs a function in the namespace.
func (v *Veth) Do(f func() error) error { return v.host.Do(f) }

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
	return nil
}

// Send sends a frame from From to To.
func (v *Veth) Send(t testing.TB, frame []byte) {
	t.Helper()
	if err := v.sender.Send(frame); err != nil {
		t.Fatal(err)
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
