package balance

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"testing"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// explained has the programs try a frame from the client.
func (s *scene) explained(t *testing.T, frame []byte) (datapath.Decision, datapath.Explanation) {
	t.Helper()
	all, err := s.Explain("c", []datapath.MadeUp{{Data: frame, ToInterface: true}})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || len(all[0].Decisions) != 1 {
		t.Fatalf("%+v", all)
	}
	return all[0].Decisions[0], all[0]
}

// fromPort opens a connection from a port.
func (s *scene) fromPort(t *testing.T, to netip.AddrPort, port int) *conn {
	t.Helper()
	c := &conn{}
	if err := s.client.Do(func() (err error) {
		c.Conn, err = (&net.Dialer{LocalAddr: &net.TCPAddr{Port: port}}).Dial("tcp", to.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	b := make([]byte, 1)
	if _, err := c.Read(b); err != nil {
		t.Fatal(err)
	}
	c.backend = b[0]
	return c
}

// TestExplain: a dry run names the backend that a connection then gets, and keeps while it drains; in the headers of the way that
// the service has. It leaves nothing behind.
func TestExplain(t *testing.T) {
	s := newScene(t, 3, Config{})
	s.serveEcho(t, 7)
	chosen := map[string]bool{}
	for i, c := range []struct {
		vip    netip.Addr
		how    Forwarding
		outer6 bool
		added  int
	}{{vip4, L2, false, 0}, {vip4, IPIP, true, 40}, {vip6, GUE, false, 32}, {vip6, IPIP, true, 40}} {
		one := s.serviceOf(c.vip, 7, packet.ProtoTCP, c.how, c.outer6)
		s.apply(t, one)
		at := netip.AddrPortFrom(c.vip, 7)
		for n := range 3 {
			port := 20_000 + 100*i + n
			frame := packet.Eth()
			if c.vip.Is4() {
				frame = frame.IPv4("10.1.0.2", c.vip.String())
			} else {
				frame = frame.IPv6("fd01::2", c.vip.String())
			}
			before, flows := s.stateOf(t, one.Name), s.drained(t)
			var first datapath.Decision
			var e datapath.Explanation
			await.True(t, "link addresses of backends", func() bool {
				first, e = s.explained(t, frame.TCP(uint16(port), 7).Flags(packet.SYN).Bytes())
				return first.Result != "no_neighbour"
			})
			if first.To != "backend" || first.Choice != "maglev" || first.Service != one.Name || len(e.Frame) != len(e.Sent)+c.added {
				t.Fatalf("%+v", first)
			}
			if inner := e.Frame[14+c.added:]; !bytes.Equal(inner, e.Sent[14:]) {
				t.Errorf("%x leaves as %x", e.Sent, e.Frame)
			}
			if after := s.stateOf(t, one.Name); !reflect.DeepEqual(before, after) || s.drained(t) != 0 {
				t.Errorf("a dry run left %d flows, and %+v of %+v", flows, after, before)
			}
			chosen[first.Backend] = true
			got := s.fromPort(t, at, port)
			if want := addr(int(got.backend), c.outer6).String(); first.Backend != want || first.Out != fmt.Sprint("b", got.backend) {
				t.Errorf("the connection went to %s, and the dry run named %+v", want, first)
			}
			one.Backends[got.backend].Drain = true
			s.apply(t, one)
			if d, _ := s.explained(t, frame.TCP(uint16(port), 7).Flags(packet.ACK).Bytes()); d.Choice != "connection_known" || d.Backend != first.Backend {
				t.Errorf("the connection is in the table of %s: %+v", first.Backend, d)
			}
			if d, _ := s.explained(t, frame.TCP(uint16(port+5000), 7).Flags(packet.SYN).Bytes()); d.Choice != "maglev" || d.Backend == first.Backend {
				t.Errorf("%s drains: %+v", first.Backend, d)
			}
			one.Backends[got.backend].Drain = false
			s.apply(t, one)
		}
		s.apply(t)
	}
	if len(chosen) < 4 { // three of IPv4 and three of IPv6
		t.Errorf("%v", chosen)
	}
	s.explainOthers(t)
}

// drained is how many flows of TCP were counted since.
func (s *scene) drained(t *testing.T) (n int) {
	t.Helper()
	if err := s.dp.Drain(func(d *flow.Delta) {
		if d.Proto == packet.ProtoTCP {
			n++
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// explainOthers asks about packets that no backend gets, and connection IDs.
func (s *scene) explainOthers(t *testing.T) {
	t.Helper()
	one := s.serviceOf(vip4, 443, packet.ProtoUDP, IPIP, false)
	one.QUIC = &QUIC{Config: 2, Length: 1}
	one.Backends[0].ID, one.Backends[1].ID, one.Backends[2].ID = []byte{7}, []byte{8}, []byte{9}
	s.apply(t, one)
	v4 := packet.Eth().IPv4("10.1.0.2", vip4.String())
	id := func(id byte) []byte {
		return v4.UDP(5, 443).Raw(append([]byte{0x40, 2<<5 | 7, id, 1, 2, 3}, "protected payload"...)).Bytes()
	}
	for n, id := range [][]byte{id(7), id(8)} {
		if d, _ := s.explained(t, id); d.Choice != "connection_id" || d.Backend != addr(n, false).String() {
			t.Errorf("%+v", d)
		}
	}
	if d, e := s.explained(t, v4.UDP(5, 443).Payload(1470).Bytes()); d.Result != "too_big" || d.To != "client" || d.MTU != 1480 || e.Frame[14+20] != 3 || e.Frame[14+21] != 4 {
		t.Errorf("%+v, %x", d, e.Frame)
	}
	if d, _ := s.explained(t, v4.UDP(5, 444).Bytes()); d.Result != "no_service" || d.To != datapath.ToKernel || d.Service != "" {
		t.Errorf("%+v", d)
	}
	// A first fragment is not remembered: the next one of the packet, which comes, is unmatched.
	first := v4.Frag(0, true, 77).UDP(5, 443).Payload(100).Bytes()
	later := v4.Frag(104, false, 77).NextHeader(packet.ProtoUDP).Raw(make([]byte, 50)).Bytes()
	if d, _ := s.explained(t, first); d.To != "backend" {
		t.Errorf("%+v", d)
	}
	if d, _ := s.explained(t, later); d.Result != "no_service" {
		t.Errorf("%+v", d)
	}
	for n := range s.backends {
		if err := s.SetHealth(one.Address, addr(n, false), false); err != nil {
			t.Fatal(err)
		}
	}
	if d, _ := s.explained(t, v4.UDP(5, 443).Bytes()); d.Result != "none_healthy" || d.To != "dropped" || d.Service != one.Name || d.Backend != "" {
		t.Errorf("%+v", d)
	}
}
