package pdm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

// RFC 8250 section 3.5.1: nobody is made to mark by being sent a mark.
func TestReceiptMakesNoState(t *testing.T) {
	h := newPDMHost(t, *marking())
	h.receive(t, inserted(t, aToB().Bytes(), pdm.Option{PSNTP: 1}))
	if n := h.states(t); n != 0 {
		t.Errorf("%d states", n)
	}
	if got := h.why(t); !maps.Equal(got, map[string]uint64{"no_state": 1}) {
		t.Errorf("counted %v", got)
	}
	// Nor is the answer marked unless a policy names it.
	if err := h.pdm.SetPolicies(nil); err != nil {
		t.Fatal(err)
	}
	answer := bToA().Bytes()
	if out := h.send(t, answer); !bytes.Equal(out, answer) {
		t.Error("the answer was marked")
	}
}

// The same addresses and ports in another namespace are another flow.
func TestNamespacesShareNoState(t *testing.T) {
	h := newPDMHost(t, *marking())
	if err := h.pdm.attach(flow.NewIface(1, uint32(h.ifindex)), "from"); err != nil {
		t.Fatal(err)
	}
	if err := h.pdm.SetPolicies([]policy.Policy{everything}); err != nil {
		t.Fatal(err)
	}
	p := h.egress(t, 1)
	h.coll.Programs["elsewhere"] = p
	defer delete(h.coll.Programs, "elsewhere")
	h.send(t, aToB().Bytes())
	h.pass(t, "elsewhere", aToB().Bytes())
	for netns := range uint16(2) {
		key := udpKey(hostA, hostB, portA, portB)
		key.Netns = netns
		if _, ok := h.state(t, key); !ok {
			t.Errorf("namespace %d has no state", netns)
		}
	}
	if n := h.states(t); n != 2 {
		t.Errorf("%d states, want one of each namespace", n)
	}
}

// Options that are read wherever they stand, and others that are counted.
func TestRead(t *testing.T) {
	given := pdm.Option{PSNTP: 100, PSNLR: 3, DeltaTLS: 1, ScaleDTLS: 40}
	next := func() packet.Option {
		given.PSNTP++
		return pdmOption(given)
	}
	ip := func() packet.Builder { return packet.Eth().IPv6(hostB, hostA) }
	udp := func(b packet.Builder) packet.Builder { return b.UDP(portB, portA).Payload(20) }
	pad1 := packet.Option{Type: 1, Data: make([]byte, 1)}
	for _, c := range []struct {
		name   string
		frame  packet.Builder
		reason string
	}{
		{"alone", udp(ip().DestOpts(next())), ""},
		{"behind padding", udp(ip().DestOpts(pad1, next())), ""},
		{"behind another option", udp(ip().DestOpts(unknown(5), next())), ""},
		{"before another option", udp(ip().DestOpts(next(), unknown(5))), ""},
		{"behind hop-by-hop", udp(ip().HopByHop(unknown(4)).DestOpts(next())), ""},
		{"before routing", udp(ip().DestOpts(next()).Routing(hostA)), ""},
		{"in the second header", udp(ip().DestOpts(unknown(4)).Routing(hostA).DestOpts(next())), ""},
		{"in a first fragment", udp(ip().DestOpts(next()).Fragment(0, true, 9)), ""},
		{"in hop-by-hop, where it means nothing", udp(ip().HopByHop(next())), "-"},
		{"none", udp(ip()), "-"},
		{"a later fragment", ip().DestOpts(next()).Fragment(8, false, 10).Payload(16), "fragment"},
		{"PDMv2", udp(ip().DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 0x12)})), "version2"},
		{"of another length", udp(ip().DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 9)})), "malformed"},
		{"twice", udp(ip().DestOpts(next(), next())), "malformed"},
		{"twice, in two headers", udp(ip().DestOpts(next()).Routing(hostA).DestOpts(next())), "malformed"},
		{"beyond its header", udp(ip().DestOpts(packet.Option{Type: pdm.OptionType, Data: make([]byte, 10)}).Set(3, 30)), "malformed"},
		{"of another flow", packet.Eth().IPv6(hostB, hostA).DestOpts(next()).UDP(portB, 1).Payload(20), "no_state"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newPDMHost(t, *marking())
			h.putState(t, keyA, 1)
			frame := c.frame.Bytes()
			if out := h.receive(t, frame); !bytes.Equal(out, frame) {
				t.Errorf("changed:\n%x\n%x", frame, out)
			}
			s, _ := h.state(t, keyA)
			if read := s.Received == 1; read != (c.reason == "") {
				t.Errorf("read: %t", read)
			}
			if c.reason == "" {
				o, err := pdm.Find(frame[etherLen:])
				if err != nil || uint16(s.Rx) != o.PSNTP || s.Highest != o.PSNTP {
					t.Errorf("number %d, want %d (%v)", uint16(s.Rx), o.PSNTP, err)
				}
			}
			want := map[string]uint64{c.reason: 1}
			if c.reason == "" || c.reason == "-" {
				want = map[string]uint64{}
			}
			if got := h.why(t); !maps.Equal(got, want) {
				t.Errorf("counted %v, want %v", got, want)
			}
		})
	}
}

// A ping is a flow of its own, by its identifier.
func TestPingIsAFlow(t *testing.T) {
	h := newPDMHost(t, *marking())
	ping := func(id uint16) []byte {
		return packet.Eth().IPv6(hostA, hostB).ICMPv6(128, 0, id, 1).Payload(16).Bytes()
	}
	first := option(t, h.send(t, ping(7)))
	h.send(t, ping(8))
	if again := option(t, h.send(t, ping(7))); again.PSNTP != first.PSNTP+1 {
		t.Errorf("numbers %d and %d", first.PSNTP, again.PSNTP)
	}
	// The reply, which has another type, is of the same flow.
	h.set(t, 2e9)
	reply := packet.Eth().IPv6(hostB, hostA).ICMPv6(129, 0, 7, 1).Payload(16).Bytes()
	h.receive(t, inserted(t, reply, pdm.Option{PSNTP: 5, PSNLR: first.PSNTP + 1}))
	if n := h.states(t); n != 2 {
		t.Errorf("%d states", n)
	}
	var keys []flow.Key
	if err := h.pdm.drain(datapath.Epoch{Number: h.epoch(t), At: moment(t)}, func(d *flow.Delta) { keys = append(keys, d.Key) }); err != nil {
		t.Fatal(err)
	}
	request, answer := flow.Key{}, flow.Key{}
	for _, k := range keys {
		switch {
		case k.Direction == flow.Ingress:
			answer = k
		case k.SrcPort == 7:
			request = k
		}
	}
	if request.DstPort != 128<<8 || answer.DstPort != 129<<8 || answer.SrcPort != 7 || answer != request.Reverse() {
		t.Errorf("keys %+v and %+v", request, answer)
	}
}

// After its lifetime a state is as if it had never been, in the kernel at once
// and in memory at the next drain.
func TestLifetime(t *testing.T) {
	cfg := *marking()
	cfg.Lifetime = 10 * time.Second
	h := newPDMHost(t, cfg)
	h.send(t, aToB().Bytes())
	h.set(t, 5e9)
	h.receive(t, inserted(t, bToA().Bytes(), pdm.Option{PSNTP: 9}))
	h.set(t, 15e9) // 14 s since it was sent, 10 s since it was received
	if o := option(t, h.send(t, aToB().Bytes())); o.PSNLR != 9 || o.IsFirst() {
		t.Errorf("within the lifetime: %v", o)
	}
	h.set(t, 25e9+1)
	h.receive(t, inserted(t, bToA().Bytes(), pdm.Option{PSNTP: 10}))
	if got := h.why(t); !maps.Equal(got, map[string]uint64{"no_state": 1}) {
		t.Errorf("a packet to an old state: counted %v", got)
	}
	if o := option(t, h.send(t, aToB().Bytes())); o.PSNLR != 0 || !o.IsFirst() {
		t.Errorf("after the lifetime: %v", o)
	}
	s, err := h.pdm.Stats()
	if err != nil || s.Created != 2 || s.Expired != 1 || s.Evicted != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	drain := func(mono int64) Stats {
		t.Helper()
		if err := h.pdm.reader.drain(h.epoch(t), datapath.Moment{Mono: mono}, func(*flow.Delta) {}); err != nil {
			t.Fatal(err)
		}
		s, err := h.pdm.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := drain(35e9); s.States != 1 || h.states(t) != 1 {
		t.Errorf("a drain within the lifetime: %+v", s)
	}
	if s := drain(35e9 + 2); s.States != 0 || s.Expired != 2 || s.Evicted != 0 || h.states(t) != 0 {
		t.Errorf("a drain after the lifetime: %+v", s)
	}
}

// A packet that passes after a state was read as too old, and before it is deleted, is counted.
func TestPacketBeforeDeletion(t *testing.T) {
	cfg := *marking()
	cfg.Lifetime = 10 * time.Second
	h := newPDMHost(t, cfg)
	h.send(t, aToB().Bytes())
	var sent uint64
	if err := h.pdm.reader.drain(h.epoch(t), datapath.Moment{Mono: 35e9}, func(d *flow.Delta) {
		if sent == 0 {
			h.send(t, aToB().Bytes())
		}
		sent += d.PDM.Sent
	}); err != nil {
		t.Fatal(err)
	}
	if sent != 2 || h.states(t) != 0 {
		t.Errorf("%d of 2 packets are reported, and %d states are left", sent, h.states(t))
	}
}

// A packet that passes several interfaces on its way in is read on the first.
func TestReadOnOneInterface(t *testing.T) {
	h := newPDMHost(t, *marking())
	h.send(t, aToB().Bytes())
	receive := func(ifindex int, psn uint16) {
		t.Helper()
		h.ifindex = ifindex
		h.receive(t, inserted(t, bToA().Bytes(), pdm.Option{PSNTP: psn, DeltaTLS: 1, ScaleDTLS: 30}))
	}
	for psn := range uint16(3) {
		receive(h.veth.From, 100+psn)
		receive(h.veth.To, 100+psn)
	}
	s, _ := h.state(t, keyA)
	if got := h.why(t); s.Received != 3 || s.Duplicates != 0 || int(s.InIface) != h.veth.From || !maps.Equal(got, map[string]uint64{"elsewhere": 3}) {
		t.Errorf("%d read, the last on interface %d; %v passed over", s.Received, s.InIface, got)
	}
	// A later packet overtakes the way of one from port to bridge, and one comes again.
	receive(h.veth.From, 103)
	receive(h.veth.From, 104)
	receive(h.veth.To, 103)
	receive(h.veth.From, 104)
	s, _ = h.state(t, keyA)
	if got := h.why(t); s.Received != 6 || s.Duplicates != 1 || !maps.Equal(got, map[string]uint64{"elsewhere": 1}) {
		t.Errorf("%d read, %d twice; %v passed over", s.Received, s.Duplicates, got)
	}
}

// Single packets are reported as often as was asked for, and no more.
func TestRawEventsAreLimited(t *testing.T) {
	cfg := *marking()
	cfg.Raw = 5
	h := newPDMHost(t, cfg)
	var events []Event
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	reported := make(chan Event, 100)
	go func() { ended <- h.pdm.Stream(ctx, func(e *Event) { reported <- *e }) }()
	// On one processor: the limit is each one's own.
	if err := onCPU(0, func() error {
		for i := range 20 {
			h.set(t, uint64(3e9)+uint64(i)*1e6)
			if out, _, err := h.runHereOn("test_egress", packet.Frame{Data: aToB().Bytes()}); err != nil || len(out) == 0 {
				return fmt.Errorf("no packet: %w", err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for len(events) < 5 {
		select {
		case e := <-reported:
			events = append(events, e)
		case <-time.After(time.Minute):
			t.Fatalf("%d events came", len(events))
		}
	}
	s, err := h.pdm.Stats()
	if err != nil || s.EventsLost != 15 || s.Marked != 20 {
		t.Errorf("%+v, %v", s, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for i, e := range events {
		if e.Direction != flow.Egress || e.Local.Port() != portA || e.Remote.Port() != portB || e.Proto != 17 ||
			e.Option.PSNTP != events[0].Option.PSNTP+uint16(i) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if err := newPDMHost(t, *marking()).pdm.Stream(t.Context(), nil); !errors.Is(err, errNoRaw) {
		t.Errorf("a stream that nobody asked for: %v", err)
	}
}

// runHereOn is runHere in the namespace of the interface, on this thread's processor.
func (h *pdmHost) runHereOn(program string, f packet.Frame) (out []byte, verdict int32, err error) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return nil, 0, err
	}
	err = h.veth.Do(func() (err error) {
		if err := unix.SchedSetaffinity(0, &cpus); err != nil {
			return err
		}
		out, verdict, err = h.runHere(program, f)
		return err
	})
	return out, verdict, err
}
