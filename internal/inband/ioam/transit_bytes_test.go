package ioam

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// mayChange says for each byte of a frame which of its bits a transit node may change: of traces, what RFC 9197 has nodes
// write. It reads the frame by itself, as little as needed.
func mayChange(frame []byte) (bits []byte) {
	const proto, hopByHop, changing = 6, 0, 0x31
	bits = make([]byte, len(frame))
	l3 := 14
	for l3+4 <= len(frame) && (binary.BigEndian.Uint16(frame[l3-2:]) == 0x8100 || binary.BigEndian.Uint16(frame[l3-2:]) == 0x88a8) {
		l3 += 4
	}
	if len(frame) < l3+40+8 || frame[l3]>>4 != 6 || frame[l3+proto] != hopByHop || binary.BigEndian.Uint16(frame[l3-2:]) != 0x86dd {
		return bits
	}
	at, end := l3+40+2, l3+40+8*(int(frame[l3+41])+1)
	// Of a frame that is cut, the option where it ends is there in part.
	whole := append(bytes.Clone(frame), make([]byte, 256)...)
	for at < min(end, len(frame)) {
		if frame[at] == 0 {
			at++
			continue
		}
		if at+2 > end || at+2+int(whole[at+1]) > end {
			break
		}
		option := whole[at : at+2+int(whole[at+1])]
		if option[0] == changing && len(option) >= 12 && (at-l3)%4 == 0 && option[3] < 2 {
			copy(bits[min(at+6, len(bits)):], []byte{0x04, 0x7f}) // Overflow, RemainingLen
			if free := 12 + 4*int(option[7]&0x7f); option[3] == 0 && free <= len(option) {
				for i := at + 12; i < min(at+free, len(bits)); i++ {
					bits[i] = 0xff
				}
			}
		}
		at += len(option)
	}
	return bits
}

// judgeTransit: whatever a frame is, transit at XDP passes it on, as long as it was, and changes nothing but free space of
// traces, of which less is left then, or their flag Overflow; so it does once more, with node data that are prepared.
func (h *host) judgeTransit(t *testing.T, frame []byte) (changed bool) {
	t.Helper()
	for range 2 {
		out, verdict := h.early(t, frame)
		if verdict != 2 || len(out) != len(frame) {
			t.Fatalf("verdict %d, %d bytes of\n% x", verdict, len(out), frame)
		}
		bits := mayChange(frame)
		for i := range frame {
			if (frame[i]^out[i])&^bits[i] != 0 {
				t.Fatalf("byte %d changed:\n% x\n% x", i, frame, out)
			}
			if bits[i] == 0x7f && out[i]&0x7f > frame[i]&0x7f {
				t.Fatalf("byte %d: more space is free:\n% x\n% x", i, frame, out)
			}
		}
		changed = changed || !bytes.Equal(frame, out)
		frame = out
	}
	return changed
}

// anyTrace draws a packet with traces and other options, of the node's namespaces or not, with padding in many forms.
func anyTrace(t testing.TB, r *rand.Rand) []byte {
	t.Helper()
	var bodies []wire.Body
	for range 1 + r.IntN(3) {
		if r.IntN(4) == 0 {
			bodies = append(bodies, randomBody(t, r))
			continue
		}
		typ := []wire.TraceType{0xC00000, 0xF80000, wire.DefinedFields &^ wire.OpaqueStateSnapshot, wire.DefinedFields, wire.TraceType(r.Uint32()) & 0xFFFFFF}[r.IntN(5)]
		tr := space(t, []uint16{spaceA, spaceA, spaceB, unknown, 0}[r.IntN(5)], typ, 1+r.IntN(3))
		tr.Flags = []wire.TraceFlags{0, 0, 0, wire.Loopback, wire.Overflow}[r.IntN(5)]
		bodies = append(bodies, tr)
	}
	var hop []wire.Body
	for _, b := range bodies {
		if b.Kind() != wire.EdgeToEdge { // which has another header
			hop = append(hop, b)
		}
	}
	if hop == nil {
		hop = []wire.Body{space(t, spaceA, 0xF80000, 2)}
	}
	frame := carrying(t, hop...)
	if r.IntN(5) == 0 {
		frame = append(append(bytes.Clone(frame[:12]), 0x81, 0, 0, 7), frame[12:]...)
	}
	return frame
}

// Transit at XDP is given frames as they are, with bytes changed, cut anywhere, and random ones.
func TestTransitChangesNothingElse(t *testing.T) {
	h := newHost(t, Config{Time: wire.POSIX, Transit: TransitXDP}, node())
	r := rand.New(rand.NewPCG(14, 1))
	h.inside(t, func() {
		whole, mutated := 0, 0
		for range 3000 {
			frame := anyTrace(t, r)
			if h.judgeTransit(t, frame) {
				whole++
			}
			for range 3 {
				changed := bytes.Clone(frame)
				for range 1 + r.IntN(4) { // most in front of what is written
					changed[r.IntN(min(len(frame), prefix+40+16+r.IntN(80)))] ^= 1 << r.IntN(8)
				}
				if h.judgeTransit(t, changed) {
					mutated++
				}
			}
			h.judgeTransit(t, frame[:prefix+r.IntN(len(frame)-prefix)])
			for i := prefix + 40 + r.IntN(16); i < len(frame); i++ {
				frame[i] = byte(r.Uint32())
			}
			h.judgeTransit(t, frame)
		}
		if whole < 1000 || mutated < 1000 {
			t.Errorf("%d frames changed, and %d of those with other bytes: too few to tell", whole, mutated)
		}
	})
}

// FuzzTransit runs transit at XDP on frames of any bytes.
func FuzzTransit(f *testing.F) {
	h := newHost(f, Config{Time: wire.POSIX, Transit: TransitXDP}, node())
	r := rand.New(rand.NewPCG(15, 1))
	for range 100 {
		f.Add(anyTrace(f, r))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if datapathtest.Runnable(packet.Frame{Data: frame}) != "" || len(frame) > 3000 {
			t.Skip("a test run does not take it")
		}
		h.inside(t, func() { h.judgeTransit(t, frame) })
	})
}
