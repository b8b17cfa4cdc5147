package pdm

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/packet"
)

// handshake is a TCP flow of hostA to a service of hostB. Like all flows of the test
// runs, it has no socket: what is not sent again within a second has arrived.
type handshake struct {
	*unknownPath
	port, service uint16
	seq           uint32
}

func (f *handshake) segment() packet.Builder {
	return packet.Eth().IPv6(hostA, hostB).TCP(f.port, f.service).Seq(f.seq)
}

// syn sends a SYN with so much data, and reports whether it was marked.
func (f *handshake) syn(t testing.TB, data int) bool {
	t.Helper()
	return f.marks(t, f.segment().Flags(packet.SYN).Payload(data), false)
}

// data sends a segment after what was sent before has arrived.
func (f *handshake) data(t testing.TB, sent uint32) bool {
	t.Helper()
	f.wait(t, 1100*time.Millisecond)
	f.seq += sent
	return f.marks(t, f.segment().Flags(packet.ACK).Payload(100), false)
}

// A firewall that rejects marked packets with a RST or an ICMPv6 error ends the
// connection, and nothing is sent again. One connection is put at risk, then one
// after a minute, and fewer and fewer; other services have their own.
func TestMarksOfRejectedConnections(t *testing.T) {
	h := newUnknownPath(t)
	var marked []time.Duration
	port := uint16(2000)
	began := h.now
	for h.now-began < 3*time.Hour {
		port++
		if (&handshake{h, port, 443, 1000}).syn(t, 0) {
			marked = append(marked, h.now-began)
		}
		h.wait(t, 10*time.Second)
	}
	if len(marked) < 4 || len(marked) > 6 || marked[1] < time.Minute || marked[2]-marked[1] < 4*time.Minute || marked[3]-marked[2] < 16*time.Minute {
		t.Errorf("of a connection each 10 s, those at %v were marked", marked)
	}
	// Where the client may have the lower port, each connection would be another service.
	h = newUnknownPath(t)
	risked := 0
	for port := range uint16(50) {
		if (&handshake{h, 40000 + port, 50051, 1000}).syn(t, 0) {
			risked++
		}
	}
	if risked != 1 {
		t.Errorf("of 50 connections to a service with a high port %d were put at risk", risked)
	}
	// Connections that are in use are not put at risk.
	h = newUnknownPath(t)
	if !(&handshake{h, 2000, 443, 1000}).syn(t, 0) {
		t.Error("the first connection is not marked")
	}
	f := &handshake{h, 2001, 443, 1000}
	if f.syn(t, 0) || f.data(t, 1) {
		t.Error("two connections were put at risk at a time")
	}
	if !(&handshake{h, 2001, 80, 1000}).syn(t, 0) {
		t.Error("another service waits")
	}
	h.wait(t, 2*time.Minute)
	for range 40 {
		if f.data(t, 100) {
			t.Fatal("a connection in use was put at risk")
		}
	}
	// Once another one shows that they arrive, they are.
	h.takes(t, packet.ProtoTCP, 443)
	marks := 0
	for range 40 {
		if f.data(t, 100) {
			marks++
		}
	}
	if marks < 20 {
		t.Errorf("where marked packets arrive %d of 40 were marked", marks)
	}
}

// A client that always uses the same port does not rely on what its connection before
// has shown: the path may reject marked packets by now.
func TestMarksOfReconnections(t *testing.T) {
	h := newUnknownPath(t)
	f := &handshake{h, 2000, 443, 1000}
	if !f.syn(t, 0) || !f.data(t, 1) || !f.data(t, 100) {
		t.Fatal("not marked")
	}
	marked := 0
	for range 20 {
		h.wait(t, 50*time.Second) // the state lives on
		f.seq += 1 << 20
		if f.syn(t, 0) {
			marked++
		}
	}
	if marked < 2 || marked > 4 { // the first within a minute; then after one, 4 and 16 minutes
		t.Errorf("of 20 connections that are rejected %d were marked", marked)
	}
	// It learns at once what others do.
	h.takes(t, packet.ProtoTCP, 443)
	f.seq += 1 << 20
	if !f.syn(t, 0) {
		t.Error("not marked where marked packets arrive")
	}
}

// That a SYN arrives does not show that data does, nor that marked packets of
// another service or protocol do.
func TestMarksOfOtherServices(t *testing.T) {
	h := newUnknownPath(t)
	f := &handshake{h, 2000, 443, 1000}
	if !f.syn(t, 0) || !f.data(t, 1) {
		t.Fatal("not marked")
	}
	if p := h.path(t, packet.ProtoTCP, 443); p.Passed != 0 {
		t.Error("a SYN showed that marked packets arrive")
	}
	if (&handshake{h, 2001, 443, 1000}).syn(t, 0) {
		t.Error("another connection was put at risk before data arrived")
	}
	f.data(t, 100)
	if p := h.path(t, packet.ProtoTCP, 443); p.Passed == 0 || p.Quiet != 0 {
		t.Errorf("data has arrived: %+v", p)
	}
	if !(&handshake{h, 2002, 443, 1000}).syn(t, 0) {
		t.Error("not marked where marked packets arrive")
	}
	if h.marks(t, udpFrom(3000), false) {
		t.Error("a first datagram is marked because TCP is")
	}
	other := packet.Eth().IPv6(hostA, hostB).TCP(2003, 80).Flags(packet.ACK).Ack(5)
	if h.marks(t, other, false) {
		t.Error("a segment that nothing acknowledges is marked because another service takes marks")
	}
	// A server that closes first is not heard of but by the answer to the other FIN.
	f = &handshake{h, 2004, 25, 1000}
	f.syn(t, 0)
	f.data(t, 1)
	f.seq += 100
	for i, flags := range []uint16{packet.FIN | packet.ACK, packet.ACK} {
		if p := h.path(t, packet.ProtoTCP, 25); p.Passed != 0 {
			t.Error("data that is not acknowledged has arrived")
		}
		h.marks(t, f.segment().Flags(flags).Ack(uint32(i)+7), false)
		f.seq++
	}
	if p := h.path(t, packet.ProtoTCP, 25); p.Passed == 0 {
		t.Error("the data of a connection that was closed did not arrive")
	}
	// Few datagrams of a flow are marked, as long as the destination takes marks.
	marked, packets := 0, 4000
	for i := range packets {
		if i%10 == 0 {
			h.prove(t, 1280, hostB)
		}
		h.wait(t, 50*time.Millisecond)
		if h.marks(t, udpFrom(3000), false) {
			marked++
		}
	}
	if marked < packets/200 || marked > packets/40 {
		t.Errorf("of %d datagrams that nobody names %d were marked", packets, marked)
	}
}

// Of an acknowledgment without data the peer shows that it was lost by sending again
// what it acknowledged (RFC 2883): the next ones are not marked.
func TestMarksOfAcknowledgments(t *testing.T) {
	for _, c := range []struct {
		beyond uint32 // the SACK block ends so far after what is acknowledged
		want   int
	}{{0, 2}, {100, 6}} {
		s := newSegments(t, 100)
		marked := 0
		for i := range uint32(6) {
			ack := 5000 + 1000*i
			bare := packet.Eth().IPv6(hostA, hostB).TCP(portA, 443).Seq(s.seq).Flags(packet.ACK).Ack(ack)
			s.wait(t, 100*time.Millisecond)
			if s.marks(t, bare, false) {
				marked++
			}
			sack := binary.BigEndian.AppendUint32([]byte{1, 1, 5, 10}, ack+c.beyond-50)
			sack = binary.BigEndian.AppendUint32(sack, ack+c.beyond)
			if s.marks(t, bare.DataOffset(8).Raw(sack), false) {
				t.Error("an acknowledgment that was sent again is marked")
			}
		}
		if marked != c.want {
			t.Errorf("block %d bytes beyond: of 6 acknowledgments %d were marked, want %d", c.beyond, marked, c.want)
		}
	}
}

// A SYN with data (TCP Fast Open) is sent again without: it is not marked then.
func TestMarksOfFastOpen(t *testing.T) {
	h := newUnknownPath(t)
	f := &handshake{h, 2000, 443, 1000}
	if !f.syn(t, 300) {
		t.Fatal("the first SYN is not marked")
	}
	for range 2 {
		h.wait(t, time.Second)
		if f.syn(t, 0) {
			t.Error("marked when it was sent again without data")
		}
	}
	if got := h.why(t); got["resent"] != 2 {
		t.Errorf("counted %v", got)
	}
	// Another connection of the same ports begins.
	h.takes(t, packet.ProtoTCP, 443)
	f.seq += 1 << 20
	frame := f.segment().Flags(packet.SYN).Bytes()
	if out := h.send(t, frame); bytes.Equal(out, frame) && h.why(t)["resent"] > 0 {
		t.Error("another connection is taken for the one before")
	}
}

// What is known of a link-local address is known on its interface only: routers of several links may have the same one.
func TestMarksToLinkLocalAddresses(t *testing.T) {
	h := newUnknownPath(t)
	if err := h.pdm.SetPolicies([]policy.Policy{{To: netip.MustParsePrefix("fe80::/10"), For: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	router := netip.MustParseAddr("fe80::1")
	syn := func(port uint16) bool {
		return h.marks(t, packet.Eth().IPv6("fe80::a", router.String()).TCP(port, 179).Flags(packet.SYN), false)
	}
	if !syn(2000) || syn(2001) {
		t.Error("not one connection was put at risk")
	}
	here := router.As16()
	binary.LittleEndian.PutUint32(here[4:], uint32(flow.NewIface(0, uint32(h.ifindex))))
	for addr, want := range map[netip.Addr]bool{router: false, netip.AddrFrom16(here): true} {
		var path abiMarkPath
		key := serviceKey(addr, packet.ProtoTCP, 179)
		if err := h.pdm.maps["mark_paths"].Lookup(&key, &path); (err == nil) != want {
			t.Errorf("known of %v: %v, want %t", addr, err, want)
		}
	}
	h.wait(t, time.Second)
	sent := map[netip.Addr]uint64{}
	if err := h.Drain(func(d *flow.Delta) {
		if d.PDM != nil {
			sent[netip.AddrFrom16(d.Key.Dst)] += uint64(d.PDM.Sent)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if sent[router] != 1 || len(sent) != 1 {
		t.Errorf("marked %v", sent)
	}
}
