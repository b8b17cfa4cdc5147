package balance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// TestCurl: HTTP by every way to the backends works with real clients and servers, over IPv4 and IPv6, with outer headers of
// either version; all backends get connections, and the connection table knows them.
func TestCurl(t *testing.T) {
	s := newScene(t, 3, Config{})
	reported := map[netip.Addr]bool{}
	for i, c := range []struct {
		name   string
		vip    netip.Addr
		how    Forwarding
		outer6 bool
	}{
		{"IPv4, L2", vip4, L2, false},
		{"IPv6, L2", vip6, L2, true},
		{"IPv4 in IPv4", vip4, IPIP, false},
		{"IPv4 in IPv6", vip4, IPIP, true},
		{"IPv6 in IPv4", vip6, IPIP, false},
		{"IPv6 in IPv6", vip6, IPIP, true},
		{"IPv4 in GUE", vip4, GUE, false},
		{"IPv6 in GUE over IPv6", vip6, GUE, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := 8000 + i // the last packets of a connection may come when the next service is there
			s.serveHTTP(t, port)
			one := s.serviceOf(c.vip, uint16(port), packet.ProtoTCP, c.how, c.outer6)
			s.apply(t, one)
			url := "http://" + netip.AddrPortFrom(c.vip, uint16(port)).String() + "/"
			seen := map[string]int{}
			for range 12 {
				out, err := s.client.Run(t.Context(), "curl", "-sS", "--max-time", "20", "--data-binary", "@/proc/self/exe", url)
				if err != nil {
					ports, _ := s.Ports()
					t.Fatalf("%v\n%+v\n%+v", err, s.stateOf(t, one.Name), ports)
				}
				seen[out]++
			}
			if len(seen) < 2 {
				t.Errorf("%v", seen)
			}
			var state ServiceState
			await.Success(t, func() error { // the ends of connections are still on their way
				state = s.stateOf(t, one.Name)
				var opened, packets uint64
				for _, b := range state.Backends {
					opened += b.Opened
					packets += b.Packets
				}
				if opened != 12 || packets != state.Packets[0] || packets < 12*20 {
					return fmt.Errorf("%d connections, %d packets: %+v", opened, packets, state)
				}
				return nil
			})
			// Segments of 1,460 bytes do not fit behind an outer header: the client gets the MTU, and sends less.
			if big := state.Packets[abiBalanceResultBALANCE_TOO_BIG]; big > 0 {
				reported[c.vip] = true
				if c.how == L2 {
					t.Errorf("%d packets were too big", big)
				}
			}
			s.apply(t) // the next one begins without connections
		})
	}
	for _, vip := range []netip.Addr{vip4, vip6} {
		if !reported[vip] {
			t.Errorf("no client of %s got an MTU", vip)
		}
	}
}
