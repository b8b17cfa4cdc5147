package pdm

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/wire/pdm"
)

const second = uint64(time.Second)

// RFC 8250 appendix C.1 through the programs: A at 25 asks, B at 12 answers after
// 4 s, and 12 s after asking A has the answer and goes on. Clocks are an hour apart.
func TestGoldenExchange(t *testing.T) {
	const hour = 3600 * second
	cfg := *marking()
	cfg.Lifetime = 2 * time.Hour // both hosts share a table, and so what is stale
	h := newPDMHost(t, cfg)
	h.putState(t, keyA, 25)
	h.putState(t, keyB, 12)
	mark := func(at uint64, frame []byte, want pdm.Option, wire string) []byte {
		t.Helper()
		h.set(t, at)
		out := h.send(t, frame)
		if !bytes.Equal(out, inserted(t, frame, want)) {
			t.Fatalf("sent %x\nwant option %v", out, want)
		}
		header := strings.Join(strings.Fields(wire), "")
		if got := hex.EncodeToString(out[etherLen+40 : etherLen+56]); got != header {
			t.Errorf("header %s, want %s", got, header)
		}
		return out
	}
	receive := func(at uint64, frame []byte) {
		t.Helper()
		h.set(t, at)
		if out := h.receive(t, frame); !bytes.Equal(out, frame) {
			t.Errorf("reading changed the packet:\n%x\n%x", frame, out)
		}
	}
	one := mark(10*hour, aToB().Bytes(), pdm.Option{PSNTP: 25}, "11 01 0f 0a 00 00 0019 0000 0000 0000 0100")
	receive(11*hour+3*second, one)
	two := mark(11*hour+7*second, bToA().Bytes(), pdm.Option{PSNTP: 12, PSNLR: 25, DeltaTLR: 0xDE0B, ScaleDTLR: 46},
		"11 01 0f 0a 2e 00 000c 0019 de0b 0000 0100")
	receive(10*hour+12*second, two)
	mark(10*hour+12*second, aToB().Bytes(), pdm.Option{PSNTP: 26, PSNLR: 12, DeltaTLS: 0xA688, ScaleDTLS: 48},
		"11 01 0f 0a 00 30 001a 000c 0000 a688 0100")

	// What A learned: the server took 4 s of the 12.
	var got *flow.PDM
	if err := h.pdm.reader.drain(h.epoch(t), datapath.Moment{Mono: int64(11 * hour)}, func(d *flow.Delta) {
		if d.Direction == flow.Ingress && d.Src == keyA.Remote {
			got = d.PDM
		}
	}); err != nil {
		t.Fatal(err)
	}
	near := func(d flow.Delays, want uint64) bool { // what 16 bits drop
		return d.Count == 1 && d.Sum >= want-want>>14 && d.Sum <= want+want>>14
	}
	if got == nil || got.Received != 1 || !near(got.Server, 4*second) || !near(got.Network, 8*second) {
		t.Fatalf("A got %+v", got)
	}
}

// Appendix C.2.1: nothing ever comes back.
func TestGoldenOneWay(t *testing.T) {
	h := newPDMHost(t, *marking())
	h.putState(t, keyA, 1)
	now := 1000 * second
	for i, gap := range []uint64{0, 5, 12, 20} {
		now += gap * second
		h.set(t, now)
		want := pdm.Option{PSNTP: uint16(i + 1)}
		want.DeltaTLS, want.ScaleDTLS = pdm.Scale(gap * second)
		if got := option(t, h.send(t, aToB().Bytes())); got != want {
			t.Errorf("packet %d: %v, want %v", i+1, got, want)
		}
	}
}

// Appendices C.2.2 and C.2.3: several sends without an answer, a packet lost, and
// a retransmission that takes a new number.
func TestGoldenNumbering(t *testing.T) {
	h := newPDMHost(t, *marking())
	h.putState(t, keyA, 1)
	h.putState(t, keyB, 11)
	sent := make([][]byte, 3)
	for i := range sent {
		h.set(t, uint64(1+i)*second)
		sent[i] = h.send(t, aToB().Bytes())
	}
	h.receive(t, sent[0])
	h.receive(t, sent[2]) // the second is lost
	answer := h.send(t, bToA().Bytes())
	if o := option(t, answer); o.PSNTP != 11 || o.PSNLR != 3 {
		t.Errorf("answer %v, want PSNTP 11 PSNLR 3", o)
	}
	h.receive(t, answer)
	if o := option(t, h.send(t, aToB().Bytes())); o.PSNTP != 4 || o.PSNLR != 11 {
		t.Errorf("retransmission %v, want PSNTP 4 PSNLR 11", o)
	}
	if s, _ := h.state(t, keyB); s.Received != 2 || s.Lost != 1 {
		t.Errorf("B counted %d received, %d lost", s.Received, s.Lost)
	}
}

// Numbers wrap from 65535 to 0, and a flow begins at random.
func TestNumbersWrapAndBeginAtRandom(t *testing.T) {
	h := newPDMHost(t, *marking())
	h.putState(t, keyA, 65535)
	for _, want := range []uint16{65535, 0, 1} {
		if o := option(t, h.send(t, aToB().Bytes())); o.PSNTP != want {
			t.Errorf("number %d, want %d", o.PSNTP, want)
		}
	}
	seen := map[uint16]bool{}
	for port := range uint16(32) {
		frame := aToB().Bytes()
		frame[etherLen+40+1] = byte(port) // of the source port
		seen[option(t, h.send(t, frame)).PSNTP] = true
	}
	if len(seen) < 20 {
		t.Errorf("32 flows began at %d numbers", len(seen))
	}
}
