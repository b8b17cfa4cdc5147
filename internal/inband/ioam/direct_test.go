package ioam

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// exporting is the node of the tests with these limits of direct export.
func exporting(every, rate uint32) Node {
	n := node()
	n.Direct = DirectExport{Every: every, Rate: rate}
	return n
}

// collectExports is a channel of what a node exports, until the test ends.
func collectExports(t *testing.T, node *Registrar) <-chan *Exported {
	t.Helper()
	out := make(chan *Exported, 1<<16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.StreamExported(ctx, func(e *Exported) { out <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	await.True(t, "the stream", func() bool {
		node.direct.mu.Lock()
		defer node.direct.mu.Unlock()
		return node.direct.listen != nil
	})
	return out
}

// offered is how many packets were exported, and not, by reason.
func (h *host) offered(t testing.TB) (exported uint64, others map[string]uint64) {
	t.Helper()
	s, err := h.node.Stats()
	if err != nil {
		t.Fatal(err)
	}
	others = h.reasons(t)
	for name := range others {
		if name != "export_not_sampled" && name != "export_rate" && name != "export_lost" && name != "export_malformed" {
			delete(others, name)
		}
	}
	return s.Exported, others
}

// One host for all tests of direct export: loading it takes longer than they do.
func TestDirectExport(t *testing.T) {
	h := newHost(t, Config{Time: wire.PTP}, exporting(1, 1<<20))
	exports := collectExports(t, h.node)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *host, <-chan *Exported)
	}{
		{"fields", exportsFields},
		{"forwarded and delivered", exportsWholeRecords},
		{"several options", exportsEachOption},
		{"others", exportsNoOthers},
		{"malformed", exportsNothingMalformed},
		{"limits", exportsWithinLimits},
		{"same packets", exportsSamePackets},
	} {
		t.Run(test.name, func(t *testing.T) { h.inside(t, func() { test.run(t, h, exports) }) })
	}
}

// The data of a record are those that the reference node adds to a trace, for all combinations of fields.
func exportsFields(t *testing.T, h *host, exports <-chan *Exported) {
	ref := reference(wire.PTP)
	ref.ChecksumNeutral = false
	random := rand.New(rand.NewPCG(1, 2))
	types := []wire.TraceType{0, 0xffffff, wire.DefinedFields, wire.OpaqueStateSnapshot, wire.TransitDelay, wire.ChecksumComplement}
	for range 500 {
		types = append(types, wire.TraceType(random.Uint32()>>8))
	}
	for i, typ := range types {
		d := &wire.DEX{Namespace: spaceA, Type: typ, Extension: wire.DEXFlags(i & 3 << 6)}
		if i%2 == 0 {
			d.Namespace = spaceB
		}
		if d.Extension&wire.DEXFlowID != 0 {
			d.FlowID = random.Uint32()
		}
		if d.Extension&wire.DEXSequence != 0 {
			d.Sequence = random.Uint32()
		}
		before := time.Now()
		frame := carrying(t, d)
		out, verdict := h.tc(t, "test_through", frame)
		if verdict != verdictPass || !bytes.Equal(out, frame) {
			t.Fatalf("verdict %d, packet unchanged: %t", verdict, bytes.Equal(out, frame))
		}
		e := await.Signal(t, "record", exports)
		if e.Option.Namespace != d.Namespace || e.Option.Type != typ || e.Option.Extension != d.Extension || e.Option.FlowID != d.FlowID || e.Option.Sequence != d.Sequence {
			t.Fatalf("record %+v of option %+v", e.Option, d)
		}
		if e.Source != netip.MustParseAddrPort("["+hostA+"]:1000") || e.Destination != netip.MustParseAddrPort("["+hostB+"]:2000") || e.Proto != 17 || e.Packets != 1 || int(e.Iface.IfIndex()) != h.veth.From {
			t.Fatalf("record %+v", e)
		}
		if e.Time.Before(before.Add(-time.Second)) || e.Time.After(time.Now().Add(time.Second)) {
			t.Fatalf("received at %v, sent at %v", e.Time, before)
		}
		// What a trace would have.
		typ &^= 1
		if typ == 0 {
			continue
		}
		tr := &wire.Trace{Namespace: d.Namespace, Type: typ, NodeLen: uint8(typ.NodeLen()), Remaining: 127, Data: make([]byte, 127*4)}
		option := append([]byte{wire.OptionMutable, 0, 0, 0}, tr.AppendTo(nil)...)
		p := wire.NewPassage(hopLimit - 1)
		p.Ingress, p.IngressWide, p.Egress, p.EgressWide = fromID, fromWide, toID, toWide
		p.Received, p.QueueDepth, p.BufferOccupancy = e.Time, depth, occupancy
		if typ.Has(wire.TimestampSeconds) && typ.Has(wire.TimestampFraction) {
			at, ok := e.Hop.Time(wire.PTP, time.Now())
			if !ok || at.Sub(e.Time).Abs() > time.Millisecond {
				t.Fatalf("%v: time %v of a packet received at %v", typ, at, e.Time)
			}
			p.Received = at
		} else {
			e.Hop.Seconds, e.Hop.Fraction = 0, 0
		}
		if typ.Has(wire.TransitDelay) {
			delay, ok := e.Hop.Delay()
			if !ok || delay <= 0 || delay > time.Second {
				t.Fatalf("%v: transit delay %v", typ, delay)
			}
			p.Delay = delay
		}
		filled, v := ref.Update(option, 0, p)
		if v != wire.Filled {
			t.Fatalf("%v: the reference: %v", typ, v)
		}
		tr.Data = filled[12:]
		tr.Remaining = filled[7] & 127
		hops, err := tr.Hops()
		if err != nil || len(hops) != 1 {
			t.Fatalf("%v: %v", typ, err)
		}
		want := hops[0]
		if !typ.Has(wire.TimestampSeconds) || !typ.Has(wire.TimestampFraction) {
			want.Seconds, want.Fraction = 0, 0
		}
		if got, expected := e.Hop.AppendTo(nil), want.AppendTo(nil); !bytes.Equal(got, expected) {
			t.Fatalf("%v:\n got % x\nwant % x", typ, got, expected)
		}
	}
}

// A record waits for what the egress knows, and is exported without where there is no egress.
func exportsWholeRecords(t *testing.T, h *host, exports <-chan *Exported) {
	typ := wire.InterfaceIDs | wire.TransitDelay | wire.InterfaceIDsWide
	d := &wire.DEX{Namespace: spaceA, Type: typ}
	before, _ := h.offered(t)
	h.tc(t, "test_in", carrying(t, d)) // delivered: it does not leave
	e := await.Signal(t, "record of a packet that is delivered", exports)
	if e.Hop.Ingress != fromID || e.Hop.Egress != wire.Unavailable16 || e.Hop.EgressWide != wire.Unavailable32 || e.Hop.TransitDelay != wire.Unavailable32 {
		t.Errorf("delivered: %+v", e.Hop)
	}
	h.tc(t, "test_through", carrying(t, d))
	e = await.Signal(t, "record of a packet that is forwarded", exports)
	if e.Hop.Ingress != fromID || e.Hop.Egress != toID || e.Hop.EgressWide != toWide || e.Hop.TransitDelay == wire.Unavailable32 {
		t.Errorf("forwarded: %+v", e.Hop)
	}
	if after, _ := h.offered(t); after != before+2 {
		t.Errorf("%d exported, want 2", after-before)
	}
	if err := h.node.direct.sweep(); err != nil {
		t.Error(err)
	}
	if len(exports) != 0 {
		t.Errorf("exported again: %+v", <-exports)
	}
}

// Each option has a record of its own, also next to a trace.
func exportsEachOption(t *testing.T, h *host, exports <-chan *Exported) {
	tr, err := wire.NewTrace(spaceA, wire.HopLimitNodeID|wire.InterfaceIDs, 40)
	if err != nil {
		t.Fatal(err)
	}
	typ := wire.HopLimitNodeID | wire.InterfaceIDs
	h.tc(t, "test_through", carrying(t,
		&wire.DEX{Namespace: spaceA, Type: typ, Extension: wire.DEXFlowID, FlowID: 1}, tr,
		&wire.DEX{Namespace: spaceA, Type: typ, Extension: wire.DEXFlowID, FlowID: 2},
		&wire.DEX{Namespace: spaceB, Type: typ, Extension: wire.DEXFlowID, FlowID: 3}))
	seen := map[uint32]bool{}
	for range 3 {
		e := await.Signal(t, "record", exports)
		if e.Hop.NodeID != nodeID || e.Hop.Ingress != fromID || e.Hop.Egress != toID || e.Hop.HopLimit != hopLimit-1 {
			t.Errorf("flow %d: %+v", e.Option.FlowID, e.Hop)
		}
		seen[e.Option.FlowID] = true
	}
	if len(seen) != 3 {
		t.Errorf("records of flows %v", seen)
	}
}

// Options of others are not exported: unknown namespaces, and what comes from outside the domain.
func exportsNoOthers(t *testing.T, h *host, exports <-chan *Exported) {
	defer func() {
		if err := h.node.Apply(exporting(1, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}()
	before, _ := h.offered(t)
	h.tc(t, "test_in", carrying(t, &wire.DEX{Namespace: unknown, Type: wire.HopLimitNodeID}))
	for _, border := range []Border{"off", "strip", "drop"} {
		n := exporting(1, 1<<20)
		n.Interfaces[0].Role = RoleNone
		was := h.node.cfg.Border
		h.node.cfg.Border = border
		if err := h.node.Apply(n); err != nil {
			t.Fatal(err)
		}
		h.tc(t, "test_in", carrying(t, &wire.DEX{Namespace: spaceA, Type: wire.HopLimitNodeID}))
		n.Interfaces[0].Role = RoleEgress
		if err := h.node.Apply(n); err != nil {
			t.Fatal(err)
		}
		h.tc(t, "test_in", carrying(t, &wire.DEX{Namespace: spaceA, Type: wire.HopLimitNodeID}))
		h.node.cfg.Border = was
	}
	n := exporting(0, 1<<20)
	if err := h.node.Apply(n); err != nil {
		t.Fatal(err)
	}
	h.tc(t, "test_in", carrying(t, &wire.DEX{Namespace: spaceA, Type: wire.HopLimitNodeID}))
	if after, _ := h.offered(t); after != before || len(exports) != 0 {
		t.Errorf("%d exported", after-before)
	}
}

// Options of every length, whatever they say: a packet passes as it is, and what cannot be read is counted.
func exportsNothingMalformed(t *testing.T, h *host, exports <-chan *Exported) {
	random := rand.New(rand.NewPCG(3, 4))
	exported, others := h.offered(t)
	records := uint64(0)
	malformed := uint64(0)
	for length := range 64 {
		for extension := range 256 {
			body := []byte{0, 4, 0, spaceA, 0, byte(extension), 0x80, 0, 0, 0}
			for len(body) < length {
				body = append(body, byte(random.Uint32()))
			}
			option := append([]byte{wire.OptionImmutable, byte(length)}, body[:length]...)
			frame := framed(padded(append([]byte{17, 0, 1, 0}, option...)))
			out, verdict := h.tc(t, "test_in", frame)
			if verdict != verdictPass || !bytes.Equal(out, frame) {
				t.Fatalf("%d bytes, extension flags %02x: verdict %d", length, extension, verdict)
			}
			words := 0
			for b := extension; b != 0; b &= b - 1 {
				words++
			}
			switch {
			case length < 2: // nothing says that it is for direct export
			case length < 10+4*words:
				malformed++
			default:
				records++
			}
		}
	}
	// Options that are not aligned.
	for pad := range 4 {
		option := append([]byte{17, 0}, make([]byte, pad)...) // Pad1
		option = append(option, wire.OptionImmutable, 10, 0, 4, 0, spaceA, 0, 0, 0x80, 0, 0, 0)
		h.tc(t, "test_in", framed(padded(option)))
		if pad == 2 {
			records++
		} else {
			malformed++
		}
	}
	after, now := h.offered(t)
	lost := now["export_lost"] - others["export_lost"] // the reader of the ring may be too slow
	if after-exported+lost != records || now["export_malformed"]-others["export_malformed"] != malformed {
		t.Errorf("%d exported, %d lost, want %d; %d malformed, want %d", after-exported, lost, records, now["export_malformed"]-others["export_malformed"], malformed)
	}
	for range records - lost {
		await.Signal(t, "record", exports)
	}
}

// padded is a header of whole units: its length is set, and its last option is padding.
func padded(header []byte) []byte {
	switch n := -len(header) & 7; n {
	case 0:
	case 1:
		header = append(header, 0)
	default:
		header = append(header, 1, byte(n-2))
		header = append(header, make([]byte, n-2)...)
	}
	header[1] = byte(len(header)/8 - 1)
	return header
}

// Along a chain, each node exports what it knows of a packet, at tc and at XDP, and the packet arrives as it was sent.
func TestDirectExportInChain(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
	nodes := []*Registrar{
		waymarkNode(t, l.Host("porthos"), Config{Time: wire.POSIX, Transit: TransitTC}, "to-athos", "to-aramis"),
		waymarkNode(t, l.Host("aramis"), Config{Time: wire.POSIX, Transit: TransitXDP}, "to-porthos", "to-beta"),
	}
	var exports []<-chan *Exported
	for i, r := range nodes {
		n := r.node
		n.ID, n.Direct = uint32(i+3), DirectExport{Every: 1, Rate: 1 << 20}
		if err := r.Apply(n); err != nil {
			t.Fatal(err)
		}
		exports = append(exports, collectExports(t, r))
	}
	c := ioamtest.NewCourier(t, l.Host("alpha"), l.Host("beta"))
	tr, err := wire.NewTrace(spaceA, wire.HopLimitNodeID|wire.TransitDelay, 32)
	if err != nil {
		t.Fatal(err)
	}
	for i, traces := range [][]wire.Body{nil, {tr}} { // XDP leaves the receive time of packets with a trace
		d := &wire.DEX{
			Namespace: spaceA, Type: wire.HopLimitNodeID | wire.InterfaceIDs | wire.TimestampSeconds | wire.TimestampFraction | wire.TransitDelay,
			Extension: wire.DEXFlowID | wire.DEXSequence, FlowID: 7, Sequence: uint32(i),
		}
		header, err := wire.AppendHeader(nil, 17, append(traces, d)...)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Carry(t, header)
		if len(traces) == 0 && !bytes.Equal(got[2:], header[2:]) {
			t.Errorf("sent % x, arrived % x", header, got)
		}
		for k, ch := range exports {
			e := await.Signal(t, "record", ch)
			at, ok := e.Hop.Time(wire.POSIX, time.Now())
			delay, left := e.Hop.Delay()
			if e.Hop.NodeID != uint32(k+3) || e.Hop.Ingress != fromID || e.Hop.Egress != toID || !ok || !left || delay <= 0 || e.Option.Sequence != uint32(i) ||
				e.Source.Addr() != l.Host("alpha").Addr6() || e.Destination.Addr() != l.Host("beta").Addr6() || e.Proto != 17 {
				t.Errorf("packet %d, node %d: %+v", i, k+3, e)
			}
			if e.Hop.HopLimit != uint8(64-2-k) || at.Sub(e.Time).Abs() > time.Millisecond {
				t.Errorf("packet %d, node %d: hop limit %d, received at %v and %v", i, k+3, e.Hop.HopLimit, at, e.Time)
			}
		}
	}
}
