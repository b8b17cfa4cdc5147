package forward

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/packet"
)

// TestConnectionsBetweenVLANs: connections between VLAN interfaces of two ports, and between two of one port, work; XDP forwards
// nearly all of them, though tags come as hints only, and flows of both ports count that, with the tags and their bytes.
func TestConnectionsBetweenVLANs(t *testing.T) {
	if !(scene{kind: vlanKind}).has(t) {
		t.Skip("this kernel makes no VLAN interfaces")
	}
	for _, c := range []struct{ name, toServer string }{{"two ports", "s"}, {"one port", "c"}} {
		t.Run(c.name, func(t *testing.T) { connectVLANs(t, c.toServer) })
	}
}

// connectVLANs has a client in VLAN 10 of port c, and a server in VLAN 20 of a port.
func connectVLANs(t *testing.T, toServer string) {
	client, server := labtest.UpHost(t), labtest.UpHost(t)
	router := labtest.UpHost(t)
	ip(t, router, fmt.Sprintf("link add c type veth peer name c netns %s", client.Netns))
	ip(t, router, fmt.Sprintf("link add s type veth peer name s netns %s", server.Netns))
	if toServer == "c" { // in one namespace with the client, it would not need the router
		ip(t, client, fmt.Sprintf("link add s type veth peer name c netns %s", server.Netns))
		ip(t, client, "link add bridged type bridge")
		ip(t, client, "link set c master bridged")
		ip(t, client, "link set s master bridged")
		for _, name := range []string{"bridged", "c", "s"} {
			ip(t, client, "link set "+name+" up")
		}
	}
	below := map[*lab.Host]string{client: "c", server: toServer}
	if toServer == "c" {
		below[client] = "bridged"
	}
	for n, h := range []*lab.Host{client, server} {
		vid := 10 * (n + 1)
		for _, one := range []struct {
			host  *lab.Host
			below string
			last  int
		}{{h, below[h], 2}, {router, []string{"c", toServer}[n], 1}} {
			ip(t, one.host, "link set "+one.below+" up")
			ip(t, one.host, fmt.Sprintf("link add link %s name v%d type vlan id %d", one.below, vid, vid))
			ip(t, one.host, fmt.Sprintf("link set v%d up", vid))
			ip(t, one.host, fmt.Sprintf("addr add 10.8.%d.%d/24 dev v%d", vid, one.last, vid))
			ip(t, one.host, fmt.Sprintf("-6 addr add 2001:db8:%d::%d/64 dev v%d nodad", vid, one.last, vid))
		}
		ip(t, h, fmt.Sprintf("route add default via 10.8.%d.1", vid))
		ip(t, h, fmt.Sprintf("-6 route add default via 2001:db8:%d::1", vid))
		h.Interfaces = []lab.Interface{{Addr4: netip.MustParsePrefix(fmt.Sprintf("10.8.%d.2/24", vid)), Addr6: netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::2/64", vid))}}
	}
	for _, name := range []string{"c", toServer} {
		router.Interfaces = append(router.Interfaces, lab.Interface{Name: name})
	}
	if toServer == "c" {
		router.Interfaces = router.Interfaces[:1]
	}
	run(t, router, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	for _, h := range []*lab.Host{client, server} {
		if err := errors.Join(h.SetFeatures("c", true, "rx-gro"), h.SetFeatures("c", false, "tx-checksum-ip-generic")); err != nil && h == client {
			t.Fatal(err)
		}
		if err := h.SetFeatures("s", false, "tx-checksum-ip-generic"); err == nil {
			if err := h.SetFeatures("s", true, "rx-gro"); err != nil {
				t.Fatal(err)
			}
		}
	}
	const size = 1 << 18
	for _, network := range []string{"tcp4", "tcp6"} {
		transfer(t, client, server, network, 1) // the kernel: now all neighbours are known
	}
	r := newRouter(t, router, Config{})
	follow(t, r)
	if err := r.dp.Drain(func(*flow.Delta) {}); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		transfer(t, client, server, network, size)
	}
	var forwarded uint64
	for n := range r.ifaces {
		p := r.portOf(t, n)
		t.Log(router.Interfaces[n].Name, becameOf(&p), p.Off, p.Closed)
		forwarded += p.Packets[0]
	}
	if forwarded < 2*2*size/1500 {
		t.Errorf("%d packets are forwarded", forwarded)
	}
	var records [2]uint64
	if err := r.dp.Drain(func(d *flow.Delta) {
		if d.Proto != packet.ProtoTCP {
			return
		}
		vlan, src := uint16(10), netip.AddrFrom16(d.Src).Unmap()
		fromServer := src == server.Addr4() || src == server.Addr6()
		if fromServer == (d.Direction == flow.Ingress) {
			vlan = 20
		}
		if d.VLAN != vlan || d.WireBytes != d.Bytes+18*d.Packets {
			t.Errorf("VLAN %d, %d bytes in %d packets of %d bytes: %+v", vlan, d.WireBytes, d.Packets, d.Bytes, d.Key)
		}
		records[d.Direction] += d.Forwarded
	}); err != nil {
		t.Fatal(err)
	}
	if records != [2]uint64{forwarded, forwarded} {
		t.Errorf("%d packets are forwarded, in records are %d", forwarded, records)
	}
}
