package ioam

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// identityCases is how many packets are inserted into and removed from: each takes about 30 µs.
const identityCases = 10_000

// own draws a packet that a host sends: any extension headers, and a transport with a right checksum.
func own(r *rand.Rand, seq uint32) (frame []byte, sent string) {
	options := func() (list []packet.Option) {
		for range r.IntN(4) {
			data := make([]byte, r.IntN(20))
			switch typ := []byte{0x00, 0x01, 0x1E, 0x3E, 0xC9}[r.IntN(5)]; typ {
			case 0: // PadN with zeros
				list = append(list, packet.Option{Type: 1, Data: data})
			default:
				for i := range data {
					data[i] = byte(r.Uint32() * uint32(typ>>1))
				}
				list = append(list, packet.Option{Type: typ, Data: data})
			}
		}
		return list
	}
	b := packet.Eth().IPv6(hostA, hostB)
	if r.IntN(3) == 0 {
		b = b.HopByHop(options()...)
	}
	for range max(0, r.IntN(5)-2) {
		if r.IntN(3) == 0 {
			b = b.Routing(hostB)
		} else {
			b = b.DestOpts(options()...)
		}
	}
	if r.IntN(12) == 0 {
		b = b.Fragment(8*r.IntN(3), r.IntN(2) == 0, 7)
	}
	size := r.IntN(600)
	switch r.IntN(6) {
	case 0, 1:
		return b.UDP(1000, 2000).Payload(size).Bytes(), "udp"
	case 2:
		return b.ICMPv6([]uint8{128, 129}[r.IntN(2)], 0, 77, 1).Payload(size).Bytes(), "echo"
	case 3:
		return b.ICMPv6([]uint8{1, 2, 3, 4, 127, 133, 136, 143}[r.IntN(8)], 0, 77, 1).Payload(size).Bytes(), "error"
	}
	return b.TCP(1000, 443).Seq(seq).Payload(1 + size).Bytes(), "tcp"
}

// arrive sends a frame through the hook at ingress.
func (h *insertingHost) arrive(t testing.TB, f packet.Frame) []byte {
	t.Helper()
	var ctx [48]uint32
	ctx[10], ctx[41], ctx[44] = uint32(h.veth.From), uint32(f.GSO.Segments), uint32(f.GSO.Size)
	opts := ebpf.RunOptions{Data: f.Data, DataOut: make([]byte, len(f.Data)+256), Context: ctx}
	v, err := h.program(t, "test_in").Run(&opts)
	if err != nil || int32(v) != verdictPass {
		t.Fatalf("verdict %d, %v: % x", int32(v), err, f.Data)
	}
	return opts.DataOut
}

// Insertion followed by removal is the identity, whatever headers a packet had, with PDM in the same packet and
// without; in between, options are where they belong and nothing else has changed. ICMPv6 errors never get any.
// A burst of a test run is of no type, so that the kernel makes no space in it: it stays as it is. TestRemoveOnRoute
// has real ones.
func TestInsertionThenRemoval(t *testing.T) {
	const seed = 11
	for _, withPDM := range []bool{false, true} {
		h := newInsertingHost(t, withPDM, removingAll())
		h.know(t)
		r := rand.New(rand.NewPCG(seed, 1))
		inserted, seq := map[string]int{}, uint32(0)
		for name, bodies := range insertedBlocks(t) {
			n := inserting(t, insertionTo("::/0", bodies...))
			n.Namespaces, n.ClosedDomain = removingAll().Namespaces, true
			if err := h.node.Apply(n); err != nil {
				t.Fatal(err)
			}
			h.inside(t, func() {
				for range identityCases / len(insertedBlocks(t)) / 2 {
					seq += 100_000
					if what := h.insertAndRemove(t, r, seq); what != "" {
						inserted[name+" "+what]++
					}
				}
			})
		}
		for name := range insertedBlocks(t) {
			for _, what := range []string{"udp", "tcp", "echo"} {
				if inserted[name+" "+what] < 50 {
					t.Errorf("PDM %t, %s: inserted into %d %s", withPDM, name, inserted[name+" "+what], what)
				}
			}
		}
		if why := h.reasons(t); why["broken"]+why["not_inserted_broken"]+why["not_removed"] > 0 || why["not_inserted_no_space"] == 0 {
			t.Errorf("counted %v", why)
		}
		s, err := h.pdm.Stats()
		if withPDM && (err != nil || s.Marked < 1000 || s.Stripped < s.Marked) {
			t.Errorf("PDM %+v, %v", s, err)
		}
	}
}

// removingAll is the node of the tests, where all options end.
func removingAll() Node {
	n := removing()
	n.Namespaces[1].Remove = true
	return n
}

// insertAndRemove sends a packet and receives it; the kind of packet, if options were inserted.
func (h *insertingHost) insertAndRemove(t *testing.T, r *rand.Rand, seq uint32) (what string) {
	frame, sent := own(r, seq)
	f := packet.Frame{Data: frame}
	c, err := ipv6.Walk(frame[prefix:])
	if err != nil {
		t.Fatalf("% x: %v", frame, err)
	}
	payload := len(frame) - prefix - c.Upper - 20
	if sent == "tcp" && !c.Fragment && payload > 8 && r.IntN(10) == 0 {
		sent = "burst"
		f.GSO.Size = uint16(1 + r.IntN(payload-1))
		f.GSO.Segments = uint16((payload + int(f.GSO.Size) - 1) / int(f.GSO.Size))
	}
	out := h.leave(t, f, 0)
	back := h.arrive(t, packet.Frame{Data: out, GSO: f.GSO})
	if !bytes.Equal(back, frame) {
		t.Fatalf("%s, %d segments:\n   sent % x\n was    % x\nbecame % x", sent, f.GSO.Segments, frame, out, back)
	}
	found, err := wire.Find(out[prefix:])
	if err != nil || len(found) == 0 {
		if err != nil || !bytes.Equal(unmarked(t, out), frame) {
			t.Fatalf("nothing was inserted, %v\n % x\n % x", err, frame, out)
		}
		return ""
	}
	now, err := ipv6.Walk(out[prefix:])
	if sent == "error" || c.Fragment || err != nil || !bytes.Equal(out[prefix+now.Upper:], frame[prefix+c.Upper:]) ||
		int(binary.BigEndian.Uint16(out[prefix+4:])) != len(out)-prefix-40 {
		t.Fatalf("%s: inserted, %v\n % x\n % x", sent, err, frame, out)
	}
	return sent
}

// removalOf is what the specification says of a packet that arrives at the node of removing(), read by package
// wire/ioam: whether it is dropped, and the options that stay.
type removalOf struct {
	drops bool
	fixed bool // fragments, authenticated packets, jumbograms: nothing can be removed
	stay  []option
	upper []byte
}

func expectRemoval(ref *wire.Node, pkt []byte) (e removalOf, ok bool) {
	c, err := ipv6.Walk(pkt)
	if err != nil || c.Proto == ipv6.Mobility || c.Proto == ipv6.HIP || c.Proto == ipv6.Shim6 {
		return e, false
	}
	fragment := c.Proto == ipv6.Fragment // not the first
	for _, h := range c.Headers() {
		if h.Proto > 63 { // Mobility, HIP and Shim6 end what is read
			return e, false
		}
		if h.Proto == ipv6.Fragment { // an atomic one (RFC 6946) is a whole packet
			fragment = fragment || binary.BigEndian.Uint16(pkt[h.At+2:])&^6 != 0
		}
		if h.Proto != ipv6.HopByHop && h.Proto != ipv6.Destination {
			continue
		}
		for o, err := range ipv6.Options(pkt[h.At : h.At+h.Size]) {
			if err != nil {
				return e, false
			}
			if o.IsPadding() {
				continue
			}
			raw := pkt[h.At+o.At : h.At+o.At+o.Size]
			found := wire.Option{Raw: raw}
			ioam := o.Type == wire.OptionMutable || o.Type == wire.OptionImmutable
			if k, ok := found.Kind(); ioam && ok && k == wire.IncrementalTrace {
				return e, false // may grow, which tests of transit have
			}
			if ns, has := found.Namespace(); ioam && has && ns == spaceA {
				continue
			}
			if ioam {
				raw = raw[:2] // this node may write into the rest
			}
			e.stay = append(e.stay, option{string(raw), (h.At + o.At) % 8})
		}
	}
	_, verdicts, err := ref.Transit(pkt, wire.NewPassage(pkt[7]))
	if err != nil {
		return e, false
	}
	for _, v := range verdicts {
		e.drops = e.drops || v.Drops()
	}
	e.fixed = fragment || c.Authenticated || pkt[4] == 0 && pkt[5] == 0
	e.upper = pkt[c.Upper:]
	return e, true
}

// judgeRemoval runs removal on any bytes, and compares what it makes of them with what package wire/ioam reads.
func (h *host) judgeRemoval(t *testing.T, ref *wire.Node, frame []byte) {
	t.Helper()
	out, verdict := h.tc(t, "test_in", frame)
	pkt := frame[prefix:]
	if !bytes.Equal(out[:prefix], frame[:prefix]) || verdict != verdictPass && verdict != verdictDrop {
		t.Fatalf("verdict %d\n    in % x\nbecame % x", verdict, frame, out)
	}
	if pkt[0]>>4 != 6 || !bytes.Equal(frame[12:prefix], []byte{0x86, 0xdd}) {
		if len(out) != len(frame) { // with a tag in the frame, the kernel would shrink it elsewhere
			t.Fatalf("removed from what is not IPv6\n    in % x\nbecame % x", frame, out)
		}
		return
	}
	if verdict == verdictDrop {
		if e, ok := expectRemoval(ref, pkt); ok && !e.drops {
			t.Fatalf("dropped % x", frame)
		}
		return
	}
	// Of the IPv6 header only length and next header change, and that by what was removed.
	left := out[prefix:]
	gone := len(pkt) - len(left)
	fixed := func(b []byte) []byte { return append(append(bytes.Clone(b[:4]), 0, 0, 0), b[7:40]...) }
	if gone < 0 || gone%8 != 0 || !bytes.Equal(fixed(left), fixed(pkt)) ||
		binary.BigEndian.Uint16(pkt[4:])-binary.BigEndian.Uint16(left[4:]) != uint16(gone) {
		t.Fatalf("%d bytes removed\n    in % x\nbecame % x", gone, frame, out)
	}
	e, ok := expectRemoval(ref, pkt)
	if !ok {
		return // what cannot be read as a whole has no more to compare
	}
	if e.drops {
		t.Fatalf("not dropped: % x", frame)
	}
	if !bytes.HasSuffix(left, e.upper) || len(left)-len(e.upper) < 40 {
		t.Fatalf("the upper layer changed\n    in % x\nbecame % x", frame, out)
	}
	if e.fixed {
		if gone > 0 {
			t.Fatalf("removed from what cannot shrink\n    in % x\nbecame % x", frame, out)
		}
		return
	}
	if again, ok := expectRemoval(ref, left); !ok || !slices.Equal(again.stay, e.stay) || !bytes.Equal(again.upper, e.upper) {
		t.Fatalf("options %+v, want %+v\n    in % x\nbecame % x", again.stay, e.stay, frame, out)
	}
	for _, o := range mustFind(t, left) {
		if ns, has := o.Namespace(); has && ns == spaceA {
			t.Fatalf("left over\n    in % x\nbecame % x", frame, out)
		}
	}
}

func mustFind(t *testing.T, pkt []byte) []wire.Option {
	t.Helper()
	found, err := wire.Find(pkt)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// withOptions draws a packet with options of the node's namespaces and of others somewhere in its headers.
func withOptions(r *rand.Rand) []byte {
	return crafted(r, []uint16{spaceA, spaceA, spaceB, unknown, 0}[r.IntN(5)])
}

// Malformed, truncated and random packets get the verdict of package wire/ioam, and nothing but options of the
// node's namespaces goes: every packet as it is, with random bytes changed, and cut at a random length.
func TestRemovalOfAnything(t *testing.T) {
	h := newHost(t, Config{Transit: TransitTC}, removing())
	ref := reference(wire.POSIX)
	r := rand.New(rand.NewPCG(12, 1))
	h.inside(t, func() {
		// The packet ends directly behind an option that is too short for its header.
		h.judgeRemoval(t, ref, packet.Eth().IPv6(hostA, hostB).NextHeader(0).Raw([]byte{59, 0, 0x30, 0, 0, 0x31, 0, 0}).Bytes())
		for range 4000 {
			frame := withOptions(r)
			h.judgeRemoval(t, ref, frame)
			changed := bytes.Clone(frame)
			for range 1 + r.IntN(3) {
				changed[prefix+r.IntN(len(frame)-prefix)] = byte(r.Uint32())
			}
			h.judgeRemoval(t, ref, changed)
			h.judgeRemoval(t, ref, frame[:prefix+40+r.IntN(len(frame)-prefix-40)])
		}
	})
}

// FuzzRemoval runs removal on packets of any bytes.
func FuzzRemoval(f *testing.F) {
	h := newHost(f, Config{Transit: TransitTC}, removing())
	ref := reference(wire.POSIX)
	r := rand.New(rand.NewPCG(13, 1))
	for range 100 {
		f.Add(withOptions(r))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if datapathtest.Runnable(packet.Frame{Data: frame}) != "" || len(frame) < prefix+40 || len(frame) > 3000 {
			t.Skip("a test run does not take it")
		}
		h.inside(t, func() { h.judgeRemoval(t, ref, frame) })
	})
}
