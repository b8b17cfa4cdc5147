package capture

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// Packets of a device without link header are counted in both directions, with
// nothing on the wire but themselves.
func TestNoLinkHeader(t *testing.T) {
	a, _ := quietPair(t, 1500)
	tun := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN,
		Flags: netlink.TUNTAP_DEFAULTS | netlink.TUNTAP_NO_PI, Queues: 1, NonPersist: true,
	}
	addr, err := netlink.ParseAddr("10.9.0.1/24")
	must(t, err)
	a.do(func() error {
		if _, err := os.Stat("/dev/net/tun"); err != nil {
			return err
		}
		return errors.Join(netlink.LinkAdd(tun), netlink.AddrAdd(tun, addr), netlink.LinkSetUp(tun))
	})
	defer tun.Fds[0].Close()
	e := &end{t: t, Host: a.Host, link: tun}
	e.do(func() (err error) {
		e.link, err = netlink.LinkByName("tun0")
		return err
	})
	e.iface = flow.NewIface(1, uint32(e.link.Attrs().Index))
	target := e.target()
	target.NoLinkHeader = true
	c := load(t, Default(), Deps{})
	must(t, c.Attach(target))

	in4 := packet.IPv4("10.9.0.2", "192.0.2.1").Options(1).UDP(1000, 2000).Payload(10).Bytes()
	in6 := packet.IPv6("2001:db8::1", "2001:db8::2").HopByHop().UDP(1000, 2000).Payload(10).Bytes()
	for _, data := range [][]byte{in4, in6} {
		if _, err := tun.Fds[0].Write(data); err != nil {
			t.Fatal(err)
		}
	}
	e.do(func() error {
		conn, err := net.Dial("udp4", "10.9.0.7:9")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = fmt.Fprint(conn, "hello")
		return err
	})

	arrived(t, c, 3)
	type seen struct {
		direction                  flow.Direction
		dport                      uint16
		packets, ip, wire, payload uint64
	}
	got := map[seen]bool{}
	for k, n := range drained(t, c) {
		got[seen{k.Direction, k.DstPort, n.Packets, n.Bytes, n.WireBytes, n.PayloadBytes}] = true
	}
	want := map[seen]bool{
		{flow.Ingress, 2000, 1, 42, 42, 10}: true,
		{flow.Ingress, 2000, 1, 66, 66, 10}: true,
		{flow.Egress, 9, 1, 33, 33, 5}:      true,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("flows (-want +got):\n%s; uncounted %v", diff, uncounted(t, c))
	}
}
