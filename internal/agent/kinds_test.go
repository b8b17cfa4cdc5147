package agent

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/lab"
)

// Coverage is exact for interfaces whose own counters leave out the link header:
// loopback, tunnels with Ethernet inside, what a bridge receives.
func TestCoverageOfKinds(t *testing.T) {
	l := newLab(t)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	tunnel := func(from, to *lab.Host, addr string, bridged bool) {
		t.Helper()
		if err := from.Do(func() error { return addVXLAN(from, to, addr, bridged) }); err != nil {
			t.Fatal(err)
		}
	}
	tunnel(alpha, beta, "10.77.0.1/24", false)
	tunnel(beta, alpha, "10.77.0.2/24", true)
	cfg, _ := agentConfig(t, "ebpf", alpha, beta)
	cfg.Interfaces = nil
	for _, name := range []string{"lo", "vx0", "br0"} {
		cfg.Interfaces = append(cfg.Interfaces, config.Interface{Match: name, Direction: "both"})
	}
	a := start(t, cfg)
	for _, h := range []*lab.Host{alpha, beta} {
		for _, to := range []string{"[::1]:9", "127.0.0.1:9", "10.77.0.1:9", "10.77.0.2:9"} {
			sendDatagrams(t, h, to, 300)
		}
	}
	own := &lab.Host{} // its lo is watched, too
	sendDatagrams(t, own, "127.0.0.1:9", 300)
	waitCovered(t, a)
	if n := len(a.Status().Interfaces); n != 2*(3+2+1) {
		t.Errorf("%d directions of interfaces", n)
	}
}

// addVXLAN makes vx0 towards the other host, with an address of its own or as the
// port of a bridge that has it.
func addVXLAN(from, to *lab.Host, addr string, bridged bool) error {
	below, err := netlink.LinkByName(from.Interfaces[0].Name)
	if err != nil {
		return err
	}
	vx := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "vx0"}, VxlanId: 7, VtepDevIndex: below.Attrs().Index, Port: 4789,
		SrcAddr: net.IP(from.Addr6().AsSlice()), Group: net.IP(to.Addr6().AsSlice()),
	}
	if err := netlink.LinkAdd(vx); err != nil {
		return err
	}
	var holder netlink.Link = vx
	if bridged {
		holder = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := errors.Join(netlink.LinkAdd(holder), netlink.LinkSetMaster(vx, holder), netlink.LinkSetUp(vx)); err != nil {
			return err
		}
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(holder), netlink.AddrAdd(holder, a))
}

// sendDatagrams sends to a port that nothing listens on: each is refused, or lost
// while the neighbor is resolved.
func sendDatagrams(t *testing.T, h *lab.Host, to string, n int) {
	t.Helper()
	var conn *net.UDPConn
	if err := h.Do(func() (err error) {
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range n {
		_, _ = conn.Write(make([]byte, 400))
		time.Sleep(100 * time.Microsecond)
	}
}
