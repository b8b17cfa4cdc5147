package ioam

import (
	"bytes"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	inbandpdm "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/internal/inband/policy"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

// insertingHost runs the programs of an interface that inserts, with PDM or without.
type insertingHost struct {
	host
	pdm *inbandpdm.Marker
}

func newInsertingHost(t testing.TB, withPDM bool, n Node) *insertingHost {
	t.Helper()
	h := &insertingHost{host: host{node: New(Config{Time: wire.POSIX, Transit: TransitTC}), veth: datapathtest.NewVeth(t), colls: map[string]*ebpf.Collection{}}}
	stages := []*datapath.Stage{h.node.Stage(func(string) bool { return true })}
	cfg := inbandpdm.Default()
	cfg.MarksPerSecond, cfg.Strip = 0, true
	if h.pdm = inbandpdm.New(cfg); withPDM {
		stages = append(stages, h.pdm.Stage())
	}
	h.Datapath = datapath.New(datapath.Config{MaxEntries: 64, Stages: stages}, slog.New(slog.DiscardHandler))
	if err := h.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(h.close)
	if err := h.veth.Do(func() error {
		_, err := h.Attach(datapath.Target{Iface: flow.NewIface(0, uint32(h.veth.From)), Name: fromName, Directions: []flow.Direction{flow.Egress}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.node.Apply(n); err != nil {
		t.Fatal(err)
	}
	if withPDM {
		if err := h.pdm.SetPolicies([]policy.Policy{{To: netip.MustParsePrefix("::/0"), For: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// leave sends a frame through the hook at egress. received: the interface where it was received.
func (h *insertingHost) leave(t testing.TB, f packet.Frame, received int) []byte {
	t.Helper()
	var ctx [48]uint32
	ctx[9], ctx[10], ctx[41], ctx[44] = uint32(received), uint32(h.veth.From), uint32(f.GSO.Segments), uint32(f.GSO.Size)
	opts := ebpf.RunOptions{Data: f.Data, DataOut: make([]byte, len(f.Data)+2048), Context: ctx}
	v, err := h.program(t, "test_leave").Run(&opts)
	if err != nil {
		t.Fatalf("%d bytes: %v", len(f.Data), err)
	}
	if int32(v) != verdictPass {
		t.Fatalf("verdict %d", int32(v))
	}
	return opts.DataOut
}

// know lets the services of the tests be known to take all kinds of marks, permanently.
func (h *insertingHost) know(t testing.TB) {
	t.Helper()
	shared, err := h.node.core.Maps("mark_paths")
	if err != nil {
		t.Fatal(err)
	}
	for _, proto := range []uint8{packet.ProtoTCP, packet.ProtoUDP, 58, 59} {
		for _, port := range []uint16{0, 443, 1000} {
			for kind := range uint8(abiMarkKindMARK_KINDS) {
				key := abiMarkPathKey{Remote: netip.MustParseAddr(hostB).As16(), Proto: proto, Port: datapath.HostPort(port), Kind: kind}
				if err := shared["mark_paths"].Put(key, abiMarkPath{Passed: math.MaxInt64}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// why are the reasons for which nothing was inserted since the last call.
func (h *insertingHost) why(t testing.TB, before map[string]uint64) map[string]uint64 {
	t.Helper()
	counts, err := h.node.Counts()
	if err != nil {
		t.Fatal(err)
	}
	moved, now := map[string]uint64{}, map[string]uint64{}
	for _, c := range counts {
		now[c.Reason] += c.Packets
	}
	for reason, n := range now {
		if n != before[reason] {
			moved[reason] = n - before[reason]
		}
		before[reason] = n
	}
	return moved
}

func unknownOption(size int) packet.Option {
	return packet.Option{Type: 0x3e, Data: make([]byte, size)}
}

// leaving are packets that leave, and what becomes of them; empty: the options are inserted.
func leaving(t testing.TB, seq uint32) map[string]struct {
	frame  packet.Builder
	reason string
} {
	ip := packet.Eth().IPv6(hostA, hostB)
	udp := func(b packet.Builder) packet.Builder { return b.UDP(1000, 2000).Payload(20) }
	present, err := wire.AppendOption(nil, space(t, spaceA, wire.HopLimitNodeID, 1))
	if err != nil {
		t.Fatal(err)
	}
	other, err := wire.AppendOption(nil, space(t, unknown, wire.HopLimitNodeID, 1))
	if err != nil {
		t.Fatal(err)
	}
	ioamOption := func(raw []byte) packet.Option { return packet.Option{Type: raw[0], Data: raw[2:]} }
	pad := packet.Option{Type: 1, Data: []byte{}}
	return map[string]struct {
		frame  packet.Builder
		reason string
	}{
		"UDP":              {udp(ip), ""},
		"TCP":              {ip.TCP(1000, 443).Seq(seq).Payload(100), ""},
		"echo request":     {ip.ICMPv6(128, 0, 77, 1).Payload(8), ""},
		"no next header":   {ip.NextHeader(59).Payload(8), ""},
		"hop-by-hop":       {udp(ip.HopByHop(unknownOption(4))), ""},
		"long hop-by-hop":  {udp(ip.HopByHop(unknownOption(250))), ""},
		"padded":           {udp(ip.HopByHop(unknownOption(0), pad, unknownOption(3))), ""},
		"routing":          {udp(ip.Routing(hostB)), ""},
		"destination":      {udp(ip.DestOpts(unknownOption(4))), ""},
		"both":             {udp(ip.HopByHop(unknownOption(2)).DestOpts(unknownOption(9), unknownOption(1))), ""},
		"all":              {udp(ip.HopByHop(unknownOption(4)).DestOpts(unknownOption(12)).Routing(hostB).DestOpts(unknownOption(4))), ""},
		"of another trace": {udp(ip.HopByHop(pad, ioamOption(other))), ""},

		"has the namespace":    {udp(ip.HopByHop(pad, ioamOption(present))), "not_inserted_marked"},
		"eight options":        {udp(ip.DestOpts(slices.Repeat([]packet.Option{unknownOption(2)}, 8)...)), "not_inserted_full_header"},
		"fragment":             {udp(ip.Fragment(0, true, 5)), "not_inserted_fragment"},
		"atomic fragment":      {udp(ip.Fragment(0, false, 5)), "not_inserted_fragment"},
		"AH":                   {udp(ip.AH(1, 1, 12)), "not_inserted_ah"},
		"ESP":                  {ip.NextHeader(packet.ProtoESP).Payload(40), "not_inserted_esp"},
		"router solicitation":  {ip.ICMPv6(133, 0, 77, 1).Payload(8), "not_inserted_neighbor"},
		"redirect":             {ip.ICMPv6(137, 0, 77, 1).Payload(32), "not_inserted_neighbor"},
		"listener report":      {ip.HopByHop().ICMPv6(143, 0, 77, 1).Payload(20), "not_inserted_neighbor"},
		"packet too big":       {ip.ICMPv6(2, 0, 0, 1400).Payload(100), "not_inserted_icmp_error"},
		"time exceeded":        {ip.ICMPv6(3, 0, 0, 0).Payload(100), "not_inserted_icmp_error"},
		"mobility":             {ip.Mobility(), "not_inserted_chain"},
		"jumbogram":            {ip.NextHeader(59), "not_inserted_jumbogram"},
		"too long to be moved": {udp(ip.HopByHop(slices.Repeat([]packet.Option{unknownOption(250)}, 3)...)), "not_inserted_deep"},
		"in a tag":             {packet.Eth().VLAN(5).IPv6(hostA, hostB).UDP(1000, 2000).Payload(20), "not_inserted_frame"},
	}
}

// edge is an edge-to-edge option.
func edge(namespace uint16) wire.Body {
	return &wire.E2E{Namespace: namespace, Type: wire.E2ESequence64 | wire.E2ESeconds}
}

// insertedBlocks are insertions of all shapes: one header or both, short and long.
func insertedBlocks(t testing.TB) map[string][]wire.Body {
	trace := space(t, spaceA, wire.HopLimitNodeID|wire.InterfaceIDs|wire.TimestampSeconds, 4)
	return map[string][]wire.Body{
		"trace":          {trace},
		"edge":           {edge(spaceA)},
		"trace and edge": {trace, edge(spaceA)},
		"many":           {trace, space(t, spaceB, wire.HopLimitNodeIDWide, 2), &wire.DEX{Namespace: spaceB, Type: wire.HopLimitNodeID, Extension: 0xc0}, edge(spaceA), edge(spaceB)},
	}
}

// Whatever headers a packet has, options are inserted where they belong: taking them out again gives
// the packet back, byte for byte. All others leave as they came, with the reason counted. So with PDM
// on the same interface, whose option is in the same packet.
func TestInsertIntoEveryPacket(t *testing.T) {
	seq := uint32(0)
	for _, withPDM := range []bool{false, true} {
		h := newInsertingHost(t, withPDM, node())
		h.know(t)
		for name, bodies := range insertedBlocks(t) {
			n := inserting(t, insertionTo("::/0", bodies...))
			n.ClosedDomain = true // so that nothing must be learned first
			if err := h.node.Apply(n); err != nil {
				t.Fatal(err)
			}
			seq += 1000
			h.inside(t, func() { h.insertsIntoAll(t, name, bodies, seq) })
		}
	}
}

func (h *insertingHost) insertsIntoAll(t *testing.T, name string, bodies []wire.Body, seq uint32) {
	seen := map[string]uint64{}
	h.why(t, seen)
	hop := slices.ContainsFunc(bodies, func(b wire.Body) bool { return b.Kind().Header() == ipv6.HopByHop })
	dest := slices.ContainsFunc(bodies, func(b wire.Body) bool { return b.Kind().Header() == ipv6.Destination })
	for what, c := range leaving(t, seq) {
		if what == "has the namespace" && !hop || what == "eight options" && !dest {
			continue
		}
		frame := c.frame.Bytes()
		out := h.leave(t, packet.Frame{Data: frame}, 0)
		moved := h.why(t, seen)
		if c.reason != "" {
			if plain := unmarked(t, out); !bytes.Equal(plain, frame) || !maps.Equal(moved, map[string]uint64{c.reason: 1}) {
				t.Errorf("%s, %s: counted %v, want %s\n  %x\n  %x", name, what, moved, c.reason, frame, plain)
			}
			continue
		}
		if len(moved) > 0 {
			t.Errorf("%s, %s: not inserted: %v", name, what, moved)
			continue
		}
		h.checkInserted(t, name+", "+what, frame, out, bodies)
	}
}

// unmarked is a frame without the option of PDM.
func unmarked(t testing.TB, frame []byte) []byte {
	t.Helper()
	if _, err := pdm.Find(frame[prefix:]); err != nil {
		return frame
	}
	plain, _, err := pdm.Remove(frame[prefix:])
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(frame[:prefix]), plain...)
}

func (h *insertingHost) checkInserted(t *testing.T, what string, frame, out []byte, bodies []wire.Body) {
	t.Helper()
	before, err := wire.Find(frame[prefix:])
	if err != nil {
		t.Fatal(err)
	}
	left, removed, err := wire.Remove(out[prefix:], wire.InNamespace(spaceA, spaceB))
	if err != nil {
		t.Errorf("%s: %v\n%x", what, err, out)
		return
	}
	if len(removed) != len(bodies) {
		t.Errorf("%s: %d options, want %d\n%x", what, len(removed), len(bodies), out)
	}
	for _, o := range removed {
		if _, err := o.Decode(); err != nil || o.At%4 != 0 {
			t.Errorf("%s: option at %d, % x: %v", what, o.At, o.Raw, err)
		}
	}
	left = unmarked(t, append(bytes.Clone(out[:prefix]), left...))
	// Removed one after the other, options of one header leave padding.
	shared := !bytes.Equal(unmarked(t, out), out) && slices.ContainsFunc(bodies, func(b wire.Body) bool { return b.Kind().Header() == ipv6.Destination })
	if len(before) == 0 && !shared && !bytes.Equal(left, frame) {
		t.Errorf("%s: without the options\n  %x, it was\n  %x", what, left, frame)
	}
}
