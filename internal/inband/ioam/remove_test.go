package ioam

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	inbandpdm "github.com/waymark-net/waymark/internal/inband/pdm"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/tlv"
	wire "github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/pdm"
)

// removing is the node of the tests, where spaceA ends.
func removing() Node {
	n := node()
	n.Namespaces[0].Remove = true
	return n
}

func framedPacket(pkt []byte) []byte {
	return append(packet.Eth().EtherType(0x86dd).Bytes(), pkt...)
}

// bodies draws options of a namespace, of all kinds.
func bodies(ns uint16) *rapid.Generator[wire.Body] {
	return rapid.Custom(func(t *rapid.T) wire.Body {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0, 1:
			tr, err := wire.NewTrace(ns, 0xD40000, 4*rapid.IntRange(0, 30).Draw(t, "space"))
			if err != nil {
				t.Fatal(err)
			}
			return tr
		case 2:
			return &wire.POT{Namespace: ns, PktID: 1, Cumulative: 2}
		case 3:
			typ := rapid.SampledFrom([]wire.E2EType{0, wire.E2ESequence32, wire.E2ESequence64, wire.E2ESequence64 | wire.E2ESeconds}).Draw(t, "type")
			return &wire.E2E{Namespace: ns, Type: typ}
		}
		return &wire.DEX{Namespace: ns, Type: 0x800000, Extension: rapid.SampledFrom([]wire.DEXFlags{0, 0x80, 0xC0}).Draw(t, "flags")}
	})
}

// anyPacket draws packets with headers and options of others in any order.
func anyPacket() *rapid.Generator[[]byte] {
	other := rapid.Custom(func(t *rapid.T) packet.Option {
		return packet.Option{Type: rapid.SampledFrom([]byte{0x00, 0x01, 0x1E, 0x3E, 0xC9}).Draw(t, "type"), Data: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "data")}
	})
	return rapid.Custom(func(t *rapid.T) []byte {
		b := packet.IPv6(hostA, hostB)
		options := func() (list []packet.Option) {
			for _, o := range rapid.SliceOfN(other, 0, 4).Draw(t, "options") {
				if o.Type == 0 {
					o = packet.Option{Type: 1, Data: make([]byte, len(o.Data))}
				} else if o.Type == 1 {
					clear(o.Data)
				}
				list = append(list, o)
			}
			return list
		}
		if rapid.Bool().Draw(t, "hop by hop") {
			b = b.HopByHop(options()...)
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			if rapid.Bool().Draw(t, "routing") {
				b = b.Routing(hostB)
			} else {
				b = b.DestOpts(options()...)
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "fragment") == 0 {
			b = b.Fragment(8*rapid.IntRange(0, 2).Draw(t, "offset"), true, 7)
		}
		return b.UDP(40000, 40001).Payload(rapid.IntRange(8, 40).Draw(t, "payload")).Bytes()
	})
}

// Removal, in one host: loading it takes longer than the tests.
func TestRemove(t *testing.T) {
	h := newHost(t, Config{Transit: TransitTC}, removing())
	t.Run("undoes insertion", h.undoesInsertion)
	t.Run("only own", h.removesOnlyOwn)
	t.Run("not removed", h.leavesOptions)
	t.Run("counted as received", h.countsWhatArrived)
}

// Removal undoes insertion byte for byte, whatever headers the packet had.
func (h *host) undoesInsertion(t *testing.T) {
	h.inside(t, func() {
		removed := 0
		rapid.Check(t, func(r *rapid.T) {
			pkt := anyPacket().Draw(r, "packet")
			with := pkt
			for range rapid.IntRange(1, 3).Draw(r, "options") {
				if next, err := wire.Insert(with, bodies(spaceA).Draw(r, "body")); err == nil {
					with = next
				}
			}
			if bytes.Equal(with, pkt) {
				return
			}
			removed++
			out, verdict := h.tc(t, "test_in", framedPacket(with))
			if verdict != verdictPass || !bytes.Equal(out, framedPacket(pkt)) {
				r.Fatalf("verdict %d\n    in %x\nbecame %x\n  want %x", verdict, with, out[prefix:], pkt)
			}
		})
		if removed == 0 {
			t.Error("nothing was inserted")
		}
	})
	if s, err := h.node.Stats(); err != nil || s.Removed == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Options of IOAM and that of PDM go together, wherever both are: the packet is as it was.
func TestRemoveWithPDM(t *testing.T) {
	cfg := inbandpdm.Default()
	cfg.Strip = true
	marker := inbandpdm.New(cfg)
	h := newHost(t, Config{Transit: TransitTC}, removing(), marker.Stage())
	both := 0
	h.inside(t, func() {
		rapid.Check(t, func(r *rapid.T) {
			pkt := anyPacket().Draw(r, "packet")
			with, err := pdm.Insert(pkt, pdm.Option{PSNTP: 1})
			if err != nil {
				return
			}
			marked := with
			for range rapid.IntRange(0, 2).Draw(r, "options") {
				if next, err := wire.Insert(with, bodies(spaceA).Filter(func(b wire.Body) bool { return b.Kind() != wire.EdgeToEdge }).Draw(r, "body")); err == nil {
					with = next
				}
			}
			if !bytes.Equal(marked, with) {
				both++
			}
			if out, verdict := h.tc(t, "test_in", framedPacket(with)); verdict != verdictPass || !bytes.Equal(out, framedPacket(pkt)) {
				r.Fatalf("verdict %d\n    in %x\nbecame %x\n  want %x", verdict, with, out[prefix:], pkt)
			}
		})
	})
	if s, err := marker.Stats(); err != nil || s.Stripped < uint64(both) || both == 0 {
		t.Errorf("%d packets with both: %+v, %v", both, s, err)
	}
}

// option is one that is not padding, with its alignment.
type option struct {
	raw   string
	align int
}

// optionsOf are the options of all headers, and the longest run of padding.
func optionsOf(t *rapid.T, pkt []byte) (list []option, padding int) {
	placed, padding, err := tlv.Of(pkt)
	if err != nil {
		t.Fatalf("%x: %v", pkt, err)
	}
	for _, o := range placed {
		list = append(list, option{o.Raw, o.At % 8})
	}
	return list, padding
}

// Only options of the node's namespaces that end there go, wherever they are among others;
// those stay in their order, with their alignment, and padding does not grow beyond seven
// bytes in a row, which receivers refuse.
func (h *host) removesOnlyOwn(t *testing.T) {
	h.inside(t, func() {
		rapid.Check(t, func(r *rapid.T) {
			var list []wire.Body
			for range rapid.IntRange(1, 8).Draw(r, "options") {
				ns := rapid.SampledFrom([]uint16{spaceA, unknown}).Draw(r, "namespace")
				b := bodies(ns).Filter(func(b wire.Body) bool { return b.Kind() != wire.EdgeToEdge }).Draw(r, "body")
				list = append(list, b)
			}
			header, err := wire.AppendHeader(nil, 17, list...)
			if err != nil {
				r.Fatal(err)
			}
			frame := framed(header)
			before, _ := optionsOf(r, frame[prefix:])
			var want []option
			for _, o := range before {
				if binary.BigEndian.Uint16([]byte(o.raw[4:])) != spaceA {
					want = append(want, o)
				}
			}
			out, verdict := h.tc(t, "test_in", frame)
			got, padding := optionsOf(r, out[prefix:])
			if verdict != verdictPass || !slices.Equal(got, want) || padding > 7 || (len(want) == 0) != (out[prefix+6] == packet.ProtoUDP) {
				r.Fatalf("verdict %d, padding %d\n    in %x\nbecame %x", verdict, padding, frame, out)
			}
			if tail := len(out) - 28; !bytes.Equal(out[tail:], frame[len(frame)-28:]) || int(binary.BigEndian.Uint16(out[prefix+4:])) != len(out)-prefix-40 {
				r.Fatalf("in %x\nbecame %x", frame, out)
			}
		})
	})
}

// What cannot shrink stays as it is, and is counted.
func (h *host) leavesOptions(t *testing.T) {
	before := h.reasons(t)["not_removed"]
	e2e := func(b packet.Builder) []byte {
		option, err := wire.AppendOption(nil, &wire.E2E{Namespace: spaceA})
		if err != nil {
			t.Fatal(err)
		}
		return b.DestOpts(packet.Option{Type: 1, Data: nil}, packet.Option{Type: option[0], Data: option[2:]}).UDP(1, 2).Payload(20).Bytes()
	}
	base := packet.Eth().IPv6(hostA, hostB)
	for name, frame := range map[string][]byte{
		"fragment": e2e(base.Fragment(0, true, 1)),
		"AH":       e2e(base.AH(1, 1, 12)),
		"tags":     e2e(packet.Eth().VLAN(5).VLAN(6).IPv6(hostA, hostB)),
		"jumbo":    e2e(base.Set(4, 0, 0)),
	} {
		h.inside(t, func() {
			if out, verdict := h.tc(t, "test_in", frame); verdict != verdictPass || !bytes.Equal(out, frame) {
				t.Errorf("%s: verdict %d\n    in %x\nbecame %x", name, verdict, frame, out)
			}
		})
	}
	if got := h.reasons(t)["not_removed"] - before; got != 4 {
		t.Errorf("not_removed: %d, want 4", got)
	}
}

// A flow record counts what was on the wire: packets are removed from only after they are counted.
func (h *host) countsWhatArrived(t *testing.T) {
	type record struct{ packets, bytes uint64 }
	got, want := map[uint16]record{}, map[uint16]record{}
	h.drain(t) // what the tests before have sent
	h.inside(t, func() {
		for i, list := range [][]wire.Body{
			nil, {mustTrace(t, spaceA, 60)}, {mustTrace(t, spaceA, 244), &wire.POT{Namespace: spaceA}}, {mustTrace(t, spaceA, 20), mustTrace(t, unknown, 20)},
		} {
			frame := packet.Eth().IPv6(hostA, hostB).UDP(uint16(5000+i), 2000).Payload(20 + i).Bytes()
			if list != nil {
				header, err := wire.AppendHeader(nil, packet.ProtoUDP, list...)
				if err != nil {
					t.Fatal(err)
				}
				frame = slices.Concat(frame[:prefix+40], header, frame[prefix+40:])
				frame[prefix+6] = 0
				binary.BigEndian.PutUint16(frame[prefix+4:], uint16(len(frame)-prefix-40))
			}
			for n := range 1 + i {
				out, verdict := h.tc(t, "test_in", frame)
				if verdict != verdictPass || (len(out) < len(frame)) != (list != nil) {
					t.Fatalf("packet %d: verdict %d, %d bytes of %d left", n, verdict, len(out), len(frame))
				}
			}
			want[uint16(5000+i)] = record{uint64(1 + i), uint64((1 + i) * (len(frame) - prefix))}
		}
	})
	if err := h.Drain(func(d *flow.Delta) {
		if d.Direction != flow.Ingress || d.Proto != packet.ProtoUDP {
			return
		}
		r := got[d.SrcPort]
		got[d.SrcPort] = record{r.packets + d.Packets, r.bytes + d.Bytes}
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("records %v, want %v", got, want)
	}
}

// reasons are the counts of all interfaces and namespaces.
func (h *host) reasons(t testing.TB) map[string]uint64 {
	t.Helper()
	counts, err := h.node.Counts()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, c := range counts {
		out[c.Reason] += c.Packets
	}
	return out
}
