package pdm_test

import (
	"bytes"
	"encoding/hex"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/wire/pdm"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The table of RFC 8250 section 3.3 and around it.
func TestScaleAttosecondsGolden(t *testing.T) {
	for _, c := range []struct {
		name         string
		attosec      string // hexadecimal
		delta        uint16
		scale        uint8
		asNanosecond uint64 // 0: no whole number of nanoseconds
	}{
		{"39838 us", "8D88732E8FE000", 0x8D88, 40, 39838 * 1000},
		{"32311072 us", "1C067FCCAE8120000", 0xE033, 49, 32311072 * 1000},
		{"3 s", "29A2241AF62C0000", 0xA688, 46, 3e9},
		{"4 s", "3782DACE9D900000", 0xDE0B, 46, 4e9},
		{"12 s", "A688906BD8B00000", 0xA688, 48, 12e9},
		{"65536 as", "10000", 0x8000, 1, 0},
		{"65537 as", "10001", 0x8000, 1, 0},
		{"1 as", "1", 1, 0, 0},
		{"65535 as", "FFFF", 0xFFFF, 0, 0},
		{"0 as", "0", 0, 0, 0},
		{"1 ns", "3B9ACA00", 0xEE6B, 14, 1},
		{"1 us", "E8D4A51000", 0xE8D4, 24, 1e3},
		{"1 ms", "38D7EA4C68000", 0xE35F, 34, 1e6},
		{"1 s", "DE0B6B3A7640000", 0xDE0B, 44, 1e9},
	} {
		t.Run(c.name, func(t *testing.T) {
			as, ok := new(big.Int).SetString(c.attosec, 16)
			if !ok {
				t.Fatalf("bad vector %q", c.attosec)
			}
			hi, lo := new(big.Int).Rsh(as, 64).Uint64(), new(big.Int).And(as, new(big.Int).SetUint64(1<<64-1)).Uint64()
			if d, s := pdm.ScaleAttoseconds(hi, lo); d != c.delta || s != c.scale {
				t.Errorf("ScaleAttoseconds: %04X scale %d, want %04X scale %d", d, s, c.delta, c.scale)
			}
			if c.asNanosecond == 0 {
				return
			}
			if d, s := pdm.Scale(c.asNanosecond); d != c.delta || s != c.scale {
				t.Errorf("Scale: %04X scale %d, want %04X scale %d", d, s, c.delta, c.scale)
			}
		})
	}
}

// RFC 8250 appendix C.1: A at 25 asks, B at 12 answers after 4 s, and 12 s after
// asking A has the answer and goes on. B's clock is an hour ahead.
func TestExchangeGolden(t *testing.T) {
	const (
		second = uint64(time.Second)
		hour   = 3600 * second
	)
	a, b := pdm.State{PSN: 25}, pdm.State{PSN: 12}
	check := func(packet int, got, want pdm.Option, wire string) {
		t.Helper()
		if got != want {
			t.Errorf("packet %d: %+v, want %+v", packet, got, want)
		}
		header := pdm.AppendHeader(nil, 17, got)
		if w := unhex(t, wire); !bytes.Equal(header, w) {
			t.Errorf("packet %d on the wire: %x, want %x", packet, header, w)
		}
		o, h, err := pdm.DecodeHeader(header)
		if err != nil || o != want || h.Next != 17 || h.Size != 16 || h.Option != 2 {
			t.Errorf("packet %d decoded: %+v %+v %v", packet, o, h, err)
		}
	}

	one := a.Send(10 * hour)
	check(1, one, pdm.Option{PSNTP: 25}, "11 01 0f 0a 00 00 0019 0000 0000 0000 0100")
	b.Receive(one, 11*hour+3*second)
	two := b.Send(11*hour + 7*second)
	check(2, two, pdm.Option{PSNTP: 12, PSNLR: 25, DeltaTLR: 0xDE0B, ScaleDTLR: 46},
		"11 01 0f 0a 2e 00 000c 0019 de0b 0000 0100")
	a.Receive(two, 10*hour+12*second)
	three := a.Send(10*hour + 12*second)
	check(3, three, pdm.Option{PSNTP: 26, PSNLR: 12, DeltaTLS: 0xA688, ScaleDTLS: 48},
		"11 01 0f 0a 00 30 001a 000c 0000 a688 0100")
}

// RFC 8250 appendix C.2.1: nothing ever comes back.
func TestOneWayGolden(t *testing.T) {
	const second = uint64(time.Second)
	s := pdm.State{PSN: 1}
	now := uint64(1000 * second)
	for i, gap := range []uint64{0, 5, 12, 20} {
		now += gap * second
		o := s.Send(now)
		delta, scale := pdm.Scale(gap * second)
		want := pdm.Option{PSNTP: uint16(i + 1), DeltaTLS: delta, ScaleDTLS: scale}
		if o != want {
			t.Errorf("packet %d: %v, want %v", i+1, o, want)
		}
	}
}

// RFC 8250 appendices C.2.2 and C.2.3: several sends without an answer, a
// packet lost, and a retransmission that takes a new number.
func TestNumberingGolden(t *testing.T) {
	a, b := pdm.State{PSN: 1}, pdm.State{PSN: 11}
	one := a.Send(10)
	a.Send(20) // lost
	three := a.Send(30)
	b.Receive(one, 15)
	b.Receive(three, 35)
	answer := b.Send(40)
	if answer.PSNTP != 11 || answer.PSNLR != 3 {
		t.Errorf("answer %v, want PSNTP 11 PSNLR 3", answer)
	}
	a.Receive(answer, 50)
	if again := a.Send(60); again.PSNTP != 4 || again.PSNLR != 11 {
		t.Errorf("retransmission %v, want PSNTP 4 PSNLR 11", again)
	}
}
