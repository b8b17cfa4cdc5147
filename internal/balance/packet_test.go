package balance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// ask sends a datagram, and returns the number of the backend that sends it back.
func (s *scene) ask(t *testing.T, c net.Conn, payload []byte) (int, error) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(payload); err != nil && !errors.Is(err, syscall.EMSGSIZE) {
		return 0, err
	}
	answer := make([]byte, 1<<16)
	n, err := c.Read(answer)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(answer[1:n], payload) {
		return 0, fmt.Errorf("%d bytes come back for %d", n-1, len(payload))
	}
	return int(answer[0]), nil
}

func (s *scene) udp(t *testing.T, vip netip.Addr, port uint16) (c net.Conn) {
	t.Helper()
	if err := s.client.Do(func() (err error) {
		c, err = net.Dial("udp", netip.AddrPortFrom(vip, port).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestFragments: fragments of a datagram all get to the backend that other datagrams of the socket get to. Those that do not fit
// behind the outer header have the client send smaller ones.
func TestFragments(t *testing.T) {
	s := newScene(t, 3, Config{})
	s.serveEcho(t, 7)
	for _, vip := range []netip.Addr{vip4, vip6} {
		one := s.serviceOf(vip, 7, packet.ProtoUDP, IPIP, vip.Is6())
		s.apply(t, one)
		c := s.udp(t, vip, 7)
		var first int
		await.Success(t, func() (err error) {
			first, err = s.ask(t, c, []byte("small"))
			return err
		})
		var second int
		await.Success(t, func() (err error) {
			second, err = s.ask(t, c, bytes.Repeat([]byte("large"), 1000))
			return err
		})
		if first != second {
			t.Errorf("%s: backend %d, for fragments %d", vip, first, second)
		}
		if state := s.stateOf(t, one.Name); state.Packets[abiBalanceResultBALANCE_TOO_BIG] == 0 || state.Backends[first].Packets < 5 {
			t.Errorf("%+v", state)
		}
	}
}

// TestQUIC: packets whose connection ID names a backend get there, from whatever address; others go by addresses and ports.
func TestQUIC(t *testing.T) {
	s := newScene(t, 3, Config{})
	s.serveEcho(t, 443)
	one := s.serviceOf(vip4, 443, packet.ProtoUDP, IPIP, false)
	one.QUIC = &QUIC{Config: 2, Length: 2}
	for n := range one.Backends {
		one.Backends[n].ID = []byte{0xab, byte(n)}
	}
	s.apply(t, one)
	cid := func(first byte, backend byte) []byte { return []byte{first, 0xab, backend, 1, 2, 3, 4, 5} }
	long := func(id []byte) []byte {
		return append(append([]byte{0xc0, 0, 0, 0, 1, byte(len(id))}, id...), "padding of a packet"...)
	}
	short := func(id []byte) []byte { return append(append([]byte{0x40}, id...), "protected payload"...) }
	for n := range 3 {
		for _, payload := range [][]byte{long(cid(2<<5|7, byte(n))), short(cid(2<<5|7, byte(n)))} {
			for range 4 { // each from another port
				c := s.udp(t, vip4, 443)
				var got int
				await.Success(t, func() (err error) {
					got, err = s.ask(t, c, payload)
					return err
				})
				if got != n {
					t.Errorf("%x gets to backend %d, not %d", payload, got, n)
				}
			}
		}
	}
	before := s.stateOf(t, one.Name)
	for _, payload := range [][]byte{short(cid(1<<5|7, 1)), short(cid(2<<5, 9)), {0x40}, long(nil)} {
		seen := map[int]bool{}
		for range 24 {
			c := s.udp(t, vip4, 443)
			await.Success(t, func() error {
				n, err := s.ask(t, c, payload)
				seen[n] = true
				return err
			})
		}
		if len(seen) < 2 {
			t.Errorf("%x, which names nobody, always gets to the same backend", payload)
		}
	}
	var opened uint64
	for n, b := range s.stateOf(t, one.Name).Backends {
		opened += b.Opened - before.Backends[n].Opened
		if before.Backends[n].Opened != 0 {
			t.Errorf("%+v", before)
		}
	}
	if opened < 4*24 {
		t.Errorf("%d connections without such an ID are known", opened)
	}
	// IDs change hands, and one is nobody's any more.
	one.Backends[0].ID, one.Backends[1].ID, one.Backends[2].ID = []byte{0xab, 1}, []byte{0xab, 0}, []byte{0xab, 7}
	s.apply(t, one)
	for id, want := range map[byte]int{0: 1, 1: 0, 7: 2} {
		c := s.udp(t, vip4, 443)
		await.Success(t, func() error {
			got, err := s.ask(t, c, short(cid(2<<5|7, id)))
			if err == nil && got != want {
				t.Errorf("id %d now gets to backend %d, not %d", id, got, want)
			}
			return err
		})
	}
	ids, key, number := map[abiBalanceId]uint32{}, abiBalanceId{}, uint32(0)
	for all := s.maps["balance_ids"].Iterate(); all.Next(&key, &number); {
		ids[key] = number
	}
	if len(ids) != 3 {
		t.Errorf("connection IDs name backends: %v", ids)
	}
}

// TestGone: a packet is not counted as balanced when the device where it is to leave has just gone.
func TestGone(t *testing.T) {
	s := newScene(t, 1, Config{})
	s.serveEcho(t, 7)
	one := s.serviceOf(vip4, 7, packet.ProtoUDP, IPIP, false)
	s.apply(t, one)
	c := s.udp(t, vip4, 7)
	await.Success(t, func() error {
		_, err := s.ask(t, c, []byte("hello"))
		return err
	})
	before := s.stateOf(t, one.Name)
	if err := s.maps["balance_out"].Delete(uint32(s.ifaces["b0"])); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the packet is counted", func() bool { return s.stateOf(t, one.Name).Packets[abiBalanceResultBALANCE_NO_PORT] == 1 })
	if after := s.stateOf(t, one.Name); after.Packets[0] != before.Packets[0] || after.Backends[0].Packets != before.Backends[0].Packets {
		t.Errorf("%+v, then %+v", before, after)
	}
}

// TestICMPError: an error about what a backend sent gets to this backend.
func TestICMPError(t *testing.T) {
	s := newScene(t, 3, Config{})
	s.serveEcho(t, 7)
	send := labtest.NewSender(t, s.client, "e")
	link := s.linkTo(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		one := s.serviceOf(vip, 7, packet.ProtoTCP, IPIP, vip.Is6())
		s.apply(t, one)
		unanswered := uint64(0)
		for _, c := range s.open(t, netip.AddrPortFrom(vip, 7), 4) {
			before := s.stateOf(t, one.Name).Backends
			port := c.LocalAddr().(*net.TCPAddr).Port
			var frame []byte
			if vip.Is4() {
				quoted := packet.Eth().IPv4(vip.String(), "10.1.0.2").TCP(7, uint16(port)).Flags(packet.ACK).Payload(100).Bytes()[14:]
				frame = packet.Eth().IPv4("10.1.0.1", vip.String()).ICMP(3, 4, 0, 1300).Raw(quoted).Bytes()
			} else {
				quoted := packet.Eth().IPv6(vip.String(), "fd01::2").TCP(7, uint16(port)).Flags(packet.ACK).Payload(100).Bytes()[14:]
				frame = packet.Eth().IPv6("fd01::1", vip.String()).ICMPv6(2, 0, 0, 1300).Raw(quoted).Bytes()
			}
			copy(frame, link[:12])
			const sent = 8 // more than acknowledgements that are late
			for range sent {
				if err := send.Send(frame); err != nil {
					t.Fatal(err)
				}
			}
			await.True(t, "the errors get to a backend", func() bool {
				arrived := false
				for n, b := range s.stateOf(t, one.Name).Backends {
					if b.Packets < before[n].Packets+sent {
						continue
					}
					if arrived = true; int(c.backend) != n {
						t.Fatalf("they are for backend %d and get to %d", c.backend, n)
					}
				}
				return arrived
			})
			if err := c.works(); err != nil {
				t.Error(err)
			}
			// One that does not fit behind the outer header gets no error in return.
			long := append(frame, make([]byte, 1514-len(frame))...)
			sizeIP(long)
			if err := send.Send(long); err != nil {
				t.Fatal(err)
			}
			await.True(t, "it is counted", func() bool { return s.stateOf(t, one.Name).Packets[abiBalanceResultBALANCE_UNANSWERED] > unanswered })
			unanswered++
		}
		if n := s.stateOf(t, one.Name).Packets[abiBalanceResultBALANCE_TOO_BIG]; n != 0 {
			t.Errorf("%d errors were answered", n)
		}
	}
}

// sizeIP has the IP header of a frame say how long the frame is.
func sizeIP(frame []byte) {
	ip := frame[14:]
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}

// TestNobody: without a healthy backend, clients get an answer, or none, as configured.
func TestNobody(t *testing.T) {
	s := newScene(t, 1, Config{})
	s.serveEcho(t, 7)
	for _, vip := range []netip.Addr{vip4, vip6} {
		for _, none := range []None{NoneReset, NoneDrop, NonePass} {
			tcp, udp := s.serviceOf(vip, 7, packet.ProtoTCP, L2, vip.Is6()), s.serviceOf(vip, 7, packet.ProtoUDP, L2, vip.Is6())
			udp.Name = "udp"
			tcp.None, udp.None = none, none
			if err := s.Apply([]Service{tcp, udp}, func(Address, netip.Addr) bool { return false }); err != nil {
				t.Fatal(err)
			}
			want := map[None]abiBalanceResult{NoneReset: abiBalanceResultBALANCE_REFUSED, NoneDrop: abiBalanceResultBALANCE_NONE_DROPPED, NonePass: abiBalanceResultBALANCE_NONE_PASSED}[none]
			err := s.client.Do(func() error {
				timeout := 20 * time.Second
				if none != NoneReset {
					timeout = 100 * time.Millisecond
				}
				c, err := net.DialTimeout("tcp", netip.AddrPortFrom(vip, 7).String(), timeout)
				if err == nil {
					c.Close()
				}
				return err
			})
			if err == nil || none == NoneReset && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s, %d: %v", vip, none, err)
			}
			if none == NoneReset {
				c := s.udp(t, vip, 7)
				await.True(t, "an error for UDP", func() bool {
					_, err := s.ask(t, c, []byte("hello"))
					return errors.Is(err, syscall.ECONNREFUSED)
				})
				if n := s.stateOf(t, "udp").Packets[want]; n == 0 {
					t.Errorf("%s: %+v", vip, s.stateOf(t, "udp"))
				}
			}
			if n := s.stateOf(t, tcp.Name).Packets[want]; n == 0 {
				t.Errorf("%s, %d: %+v", vip, none, s.stateOf(t, tcp.Name))
			}
			s.apply(t)
		}
	}
}

// TestFlows: a flow counts what clients send at the ingress of one interface, and one what leaves at the egress of another, as the balancer
// counts.
func TestFlows(t *testing.T) {
	s := newScene(t, 1, Config{})
	s.serveHTTP(t, 80)
	one := s.serviceOf(vip6, 80, packet.ProtoTCP, GUE, false)
	s.apply(t, one)
	if err := s.dp.Drain(func(*flow.Delta) {}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.client.Run(t.Context(), "curl", "-sS", "--max-time", "20", "http://["+vip6.String()+"]/"); err != nil {
			t.Fatal(err)
		}
	}
	var in, out, outer uint64
	add := func(d *flow.Delta) {
		vip := vip6.As16()
		switch {
		case d.Iface == s.ifaces["c"] && d.Direction == flow.Ingress && d.Dst == vip && d.DstPort == 80:
			in += d.Packets
		case d.Iface == s.ifaces["b0"] && d.Direction == flow.Egress && d.Proto == packet.ProtoUDP && d.Dst == addr(0, false).As16():
			out += d.Packets
			outer += d.Bytes
		}
		if d.WireBytes != d.Bytes+14*d.Packets {
			t.Errorf("%+v", d)
		}
	}
	await.Success(t, func() error { // the ends of connections are still on their way
		if err := s.dp.Drain(add); err != nil {
			return err
		}
		state := s.stateOf(t, one.Name)
		if in != state.Packets[0] || out != in || in < 12 || outer != state.Backends[0].Bytes+32*in {
			return fmt.Errorf("%d packets arrive and %d leave with %d bytes: %+v", in, out, outer, state)
		}
		return nil
	})
}

// TestLuckyChecksum: a datagram whose checksum is also what a sender would leave for its device gets to a backend.
func TestLuckyChecksum(t *testing.T) {
	s := newScene(t, 1, Config{})
	send, link := labtest.NewSender(t, s.client, "e"), s.linkTo(t)
	one := s.serviceOf(vip4, 7, packet.ProtoUDP, L2, false)
	s.apply(t, one)
	for _, size := range []int{2, 700, 1399} {
		frame := lucky(t, size)
		copy(frame, link)
		before := s.stateOf(t, one.Name)
		if err := send.Send(frame); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the datagram leaves", func() bool { return s.stateOf(t, one.Name).Packets[0] > before.Packets[0] })
		frame[len(frame)-1]++
		if err := send.Send(frame); err != nil {
			t.Fatal(err)
		}
		await.True(t, "one with a wrong checksum is the kernel's", func() bool {
			return s.stateOf(t, one.Name).Packets[abiBalanceResultBALANCE_CHECKSUM] > before.Packets[abiBalanceResultBALANCE_CHECKSUM]
		})
	}
	if state := s.stateOf(t, one.Name); state.Packets[0] != 3 {
		t.Errorf("%+v", state.Packets)
	}
}

// lucky is a datagram whose checksum is the sum of addresses, protocol and length.
func lucky(t *testing.T, size int) []byte {
	t.Helper()
	payload := make([]byte, size)
	for n := range 1 << 16 {
		payload[0], payload[1] = byte(n>>8), byte(n)
		frame := packet.Eth().IPv4("10.1.0.2", vip4.String()).UDP(1000, 7).Raw(payload).Bytes()
		sum := 0
		for _, half := range [][]byte{frame[26:28], frame[28:30], frame[30:32], frame[32:34], {0, 17}, frame[38:40]} {
			sum += int(half[0])<<8 | int(half[1])
		}
		if sum = sum>>16 + sum&0xffff; int(frame[40])<<8|int(frame[41]) == sum {
			return frame
		}
	}
	t.Fatal("there is none")
	return nil
}
