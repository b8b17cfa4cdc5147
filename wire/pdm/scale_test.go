package pdm_test

import (
	"math"
	"math/big"
	"math/bits"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/wire/pdm"
)

// times draws nanoseconds of every magnitude alike.
func times() *rapid.Generator[uint64] {
	return rapid.Custom(func(t *rapid.T) uint64 {
		n := rapid.IntRange(0, 64).Draw(t, "bits")
		return rapid.Uint64().Draw(t, "ns") >> (64 - n)
	})
}

// The definition: the 16 highest bits of ns · 10^9.
func scaleBig(ns uint64) (delta uint16, scale uint8) {
	v := new(big.Int).Mul(new(big.Int).SetUint64(ns), big.NewInt(1e9))
	s := max(0, v.BitLen()-16)
	return uint16(v.Rsh(v, uint(s)).Uint64()), uint8(s)
}

func TestScaleIsTheDefinition(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, ns uint64) {
		wantDelta, wantScale := scaleBig(ns)
		if d, s := pdm.Scale(ns); d != wantDelta || s != wantScale {
			t.Fatalf("Scale(%d): %04X scale %d, want %04X scale %d", ns, d, s, wantDelta, wantScale)
		}
		hi, lo := bits.Mul64(ns, 1e9)
		if d, s := pdm.ScaleAttoseconds(hi, lo); d != wantDelta || s != wantScale {
			t.Fatalf("ScaleAttoseconds(%d, %d): %04X scale %d, want %04X scale %d", hi, lo, d, s, wantDelta, wantScale)
		}
	}
	for n := range 64 {
		edge := uint64(1) << n
		for _, ns := range []uint64{edge - 1, edge, edge + 1} {
			check(t, ns)
		}
	}
	check(t, math.MaxUint64)
	rapid.Check(t, func(t *rapid.T) { check(t, times().Draw(t, "ns")) })
}

func TestScaleIsMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := times().Draw(t, "a"), times().Draw(t, "b")
		da, sa := pdm.Scale(min(a, b))
		db, sb := pdm.Scale(max(a, b))
		if pdm.Attoseconds(da, sa).Cmp(pdm.Attoseconds(db, sb)) > 0 {
			t.Fatalf("%d scales above %d", min(a, b), max(a, b))
		}
	})
}

// A receiver gets the sender's time back within 2^-15 of it, rounded to whole
// nanoseconds, and never longer.
func TestNanosecondsOfScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := times().Draw(t, "ns") >> 1
		got, ok := pdm.Nanoseconds(pdm.Scale(ns))
		if !ok {
			t.Fatalf("%d ns came back as too long", ns)
		}
		if got > ns || ns-got > (ns+1<<14)>>15 {
			t.Fatalf("%d ns came back as %d", ns, got)
		}
	})
}

// Every delta at every scale against big integers: exhaustively at the edges of
// delta, at random between.
func TestNanosecondsAtEveryScale(t *testing.T) {
	limit := new(big.Int).SetUint64(math.MaxInt64)
	check := func(t interface{ Fatalf(string, ...any) }, delta uint16, scale uint8) {
		want := pdm.Attoseconds(delta, scale)
		want.Add(want, big.NewInt(5e8)).Quo(want, big.NewInt(1e9))
		got, ok := pdm.Nanoseconds(delta, scale)
		if want.Cmp(limit) > 0 {
			if ok || got != math.MaxInt64 {
				t.Fatalf("%04X scale %d: %d, %v; want the maximum", delta, scale, got, ok)
			}
			return
		}
		if !ok || got != want.Uint64() {
			t.Fatalf("%04X scale %d: %d, %v; want %v", delta, scale, got, ok, want)
		}
	}
	for scale := range 256 {
		for n := range 16 {
			edge := uint16(1) << n
			for _, delta := range []uint16{edge - 1, edge, edge + 1, -edge} {
				check(t, delta, uint8(scale))
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.Uint16().Draw(t, "delta"), rapid.Uint8().Draw(t, "scale"))
	})
}

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		delta uint16
		scale uint8
		want  time.Duration
		ok    bool
	}{
		{0, 0, 0, true},
		{0, 255, 0, true},
		{0xFFFF, 0, 0, true},
		{0xEE6B, 14, time.Nanosecond, true},
		{1, 255, math.MaxInt64, false},
		{0xFFFF, 255, math.MaxInt64, false},
	} {
		if d, ok := pdm.Duration(c.delta, c.scale); d != c.want || ok != c.ok {
			t.Errorf("Duration(%04X, %d) = %v, %v; want %v, %v", c.delta, c.scale, d, ok, c.want, c.ok)
		}
	}
}

var sink uint64

func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		d, s := pdm.Scale(50_000_000)
		sink += uint64(d) + uint64(s)
	}
}

func BenchmarkNanoseconds(b *testing.B) {
	for b.Loop() {
		ns, _ := pdm.Nanoseconds(0xDE0B, 46)
		sink += ns
	}
}
