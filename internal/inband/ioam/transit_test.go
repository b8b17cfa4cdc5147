package ioam

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	wire "github.com/waymark-net/waymark/wire/ioam"
)

// allTypes are the Trace-Types of all bits that Linux fills, 2¹³ of them.
func allTypes() (all []wire.TraceType) {
	for i := range wire.TraceType(1 << 13) {
		all = append(all, i>>1<<12|i&1<<1)
	}
	return all
}

// space is a trace with free space for so many nodes.
func space(t testing.TB, namespace uint16, typ wire.TraceType, nodes int) *wire.Trace {
	t.Helper()
	snapshot := 0
	if namespace == spaceB {
		snapshot = len(schema.Data)
	}
	tr, err := wire.NewTrace(namespace, typ, min(nodes*typ.NodeSize(snapshot), wire.MaxTraceSpace))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// passage is what the node knew of a packet that leaves with a hop limit. What only the programs can know, times, is
// taken from what they wrote.
func passage(t testing.TB, option []byte, f wire.TimeFormat, through bool, leaves uint8) wire.Passage {
	t.Helper()
	p := wire.NewPassage(leaves)
	p.Ingress, p.IngressWide = fromID, fromWide
	if through {
		p.Egress, p.EgressWide = toID, toWide
		p.QueueDepth, p.BufferOccupancy = depth, occupancy
	}
	body, _ := wire.DecodeOption(option)
	tr, ok := body.(*wire.Trace)
	if !ok {
		return p
	}
	hops, _ := tr.Hops()
	if len(hops) == 0 {
		return p
	}
	hop := hops[len(hops)-1]
	seconds, fraction := hop.Seconds, hop.Fraction
	if !tr.Type.Has(wire.TimestampSeconds) {
		seconds, _ = f.Split(time.Now())
	}
	if received, ok := f.Join(seconds, fraction, time.Now()); ok {
		p.Received = received
	}
	if tr.Type.Has(wire.TimestampSeconds) && time.Since(p.Received).Abs() > 10*time.Second {
		t.Fatalf("received at %v", p.Received)
	}
	if delay, ok := hop.Delay(); ok && tr.Type.Has(wire.TransitDelay) {
		if !through || delay <= 0 || delay > time.Second {
			t.Fatalf("transit delay %v", delay)
		}
		p.Delay = delay
	} else if through && tr.Type.Has(wire.TransitDelay) && tr.Flags&wire.Overflow == 0 {
		t.Fatal("no transit delay")
	}
	return p
}

// hop is a way through the node: a program, and whether it includes the egress.
type way struct {
	name    string
	run     func(testing.TB, []byte) ([]byte, int32)
	through bool
	pass    int32
	drop    int32
}

func (h *host) ways() []way {
	tc := func(program string) func(testing.TB, []byte) ([]byte, int32) {
		return func(t testing.TB, frame []byte) ([]byte, int32) { return h.tc(t, program, frame) }
	}
	return []way{
		{"through", tc("test_through"), true, -1, 2},
		{"tc", tc("test_in"), false, -1, 2},
		{"xdp", h.early, false, 2, 2}, // tc, which is not run here, drops
	}
}

// check runs a packet with one option, and compares it with what the reference makes of it.
func (h *host) check(t testing.TB, w way, ref *wire.Node, frame []byte, at, size int) {
	t.Helper()
	h.checkOnce(t, w, ref, frame, at, size)
	h.checkOnce(t, w, ref, frame, at, size) // with node data that are prepared
}

func (h *host) checkOnce(t testing.TB, w way, ref *wire.Node, frame []byte, at, size int) {
	t.Helper()
	out, verdict := w.run(t, frame)
	if len(out) != len(frame) {
		t.Fatalf("%s: %d bytes, want %d", w.name, len(out), len(frame))
	}
	before, after := frame[at:at+size], out[at:at+size]
	offset := at - prefix
	want, v := ref.Update(before, offset, wire.NewPassage(hopLimit-1))
	if v == wire.Filled {
		want, _ = ref.Update(before, offset, passage(t, after, ref.Format, w.through, hopLimit-1))
	}
	wantVerdict := w.pass
	if v.Drops() {
		wantVerdict = w.drop
	}
	expected := append(append(bytes.Clone(frame[:at]), want...), frame[at+size:]...)
	if verdict != wantVerdict || !bytes.Equal(out, expected) {
		t.Fatalf("%s: verdict %d, want %d (%v)\n  option % x\nbecame % x\n  want % x\n  rest equal: %t", w.name, verdict, wantVerdict, v, before, after, want,
			bytes.Equal(out[:at], frame[:at]) && bytes.Equal(out[at+size:], frame[at+size:]))
	}
}

// A transit node, in one host for each time format: loading it takes longer than the tests.
func TestTransit(t *testing.T) {
	for _, f := range []wire.TimeFormat{wire.POSIX, wire.PTP, wire.NTP} {
		t.Run(f.String(), func(t *testing.T) {
			h, ref := newHost(t, Config{Time: f, Transit: TransitXDP}, node()), reference(f)
			for name, test := range map[string]func(*testing.T, *wire.Node){"times": h.fillsTimes, "fills": h.fillsAll, "overflow": h.overflows, "malformed": h.survives} {
				if (name == "times") == (f != wire.POSIX) { // all else is the same in every format
					t.Run(name, func(t *testing.T) { h.inside(t, func() { test(t, ref) }) })
				}
			}
			if f == wire.POSIX {
				t.Run("proof", h.provesTransit)
			}
		})
	}
}

func (h *host) fillsTimes(t *testing.T, ref *wire.Node) {
	h.fills(t, ref, []wire.TraceType{wire.TimestampSeconds | wire.TimestampFraction, wire.DefinedFields, 0xFFFFFE, 0xFFFFFF})
}

func (h *host) fillsAll(t *testing.T, ref *wire.Node) { h.fills(t, ref, allTypes()) }

// fills checks that node data are those of package wire/ioam, with every combination of fields, with a
// schema and without.
func (h *host) fills(t *testing.T, ref *wire.Node, types []wire.TraceType) {
	for i, typ := range types {
		for k, w := range h.ways() {
			if k > 0 && len(types) > 10 && i%13 != 0 { // the same code; TestTransitAsLinux has all at XDP
				continue
			}
			for _, ns := range []uint16{spaceA, spaceB, 0} {
				if ns != spaceA && i%5 != 0 {
					continue
				}
				tr := space(t, ns, typ, 1+int(typ>>12)%3)
				frame := carrying(t, tr)
				h.check(t, w, ref, frame, optionAt, 12+len(tr.Data))
			}
		}
	}
	if s, err := h.node.Stats(); err != nil || s.Written == 0 || s.Completed == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A second node writes in front of the first; the third finds no space and sets Overflow;
// the fourth leaves it.
func (h *host) overflows(t *testing.T, ref *wire.Node) {
	for _, typ := range []wire.TraceType{0xD40000, 0xFFF002, 0x400000, 0x000002, 0, 0x010000} {
		for _, w := range h.ways() {
			tr := space(t, spaceB, typ, 2)
			frame := carrying(t, tr)
			for range 4 {
				h.check(t, w, ref, frame, optionAt, 12+len(tr.Data))
				frame, _ = w.run(t, frame)
			}
		}
	}
}

// Options that are not as they should be get the verdict of the reference, and nothing
// outside of the option changes: every length of option, remaining space, node length and
// position, then random bytes.
func (h *host) survives(t *testing.T, ref *wire.Node) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, w := range h.ways() {
		for length := range 60 { // Opt Data Len
			for _, remaining := range []int{0, 1, 2, 11, 12, 13, 127} {
				for _, shift := range []int{0, 1, 2, 3} {
					header := make([]byte, 96)
					header[1] = 96/8 - 1
					at := 2
					for range 2 - shift&1 { // padding up to the option
						if shift < 2 {
							header[at] = 0
						}
						at++
					}
					at += shift &^ 1
					pad(header[2:at])
					option := header[at:]
					tr := wire.Trace{Namespace: spaceA, NodeLen: 3, Remaining: uint8(remaining), Type: 0xD00000, Data: make([]byte, 80)}
					copy(option, append([]byte{0x31, byte(length), 0, 0}, tr.AppendTo(nil)...))
					clear(option[2+length:])
					pad(option[2+length:])
					h.check(t, w, ref, framed(header), prefix+40+at, 2+length)
				}
			}
		}
		for range 3000 {
			header := make([]byte, 96)
			header[1] = 96/8 - 1
			pad(header[2:4])
			option := header[4:]
			size := 12 + 4*random.IntN(18)
			for i := range size {
				option[i] = byte(random.Uint32())
			}
			option[0], option[1], option[2], option[3] = 0x31, byte(size-2), 0, 0
			binary.BigEndian.PutUint16(option[4:], []uint16{spaceA, spaceB, 0, unknown}[random.IntN(4)])
			typ := wire.TraceType(random.Uint32()) & (wire.TraceType(random.Uint32()) >> 8) & 0xFFFFFF
			if random.IntN(8) > 0 {
				option[6] = byte(typ.NodeLen())<<3 | option[6]&3
			}
			if random.IntN(8) > 0 {
				option[7] = byte(random.IntN(size/4)) | option[7]&0x80
			}
			option[8], option[9], option[10] = byte(typ>>16), byte(typ>>8), byte(typ)
			pad(option[size:])
			h.check(t, w, ref, framed(header), prefix+40+4, size)
		}
	}
}

// pad fills with Pad1 or PadN.
func pad(b []byte) {
	clear(b)
	if len(b) > 1 {
		b[0], b[1] = 1, byte(len(b)-2)
	}
}
