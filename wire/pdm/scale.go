package pdm

import (
	"math"
	"math/big"
	"math/bits"
	"time"
)

// The base unit of PDM is the attosecond, and 1 ns = 10^9 as = 5^9 · 2^9 as. The
// nine factors of two never reach the 16 bits that are kept: they only add to
// the scale. So nanoseconds need no 128 bits.
const (
	fiveToThe9 = 1953125
	twoToThe   = 9

	// Times below 2^exactBits ns (2 h 26 min) times 5^9 fit in 64 bits.
	exactBits = 43
)

// Scale returns the 16 most significant bits of ns in attoseconds, and the
// number of bits dropped below them (RFC 8250 section 3.3). It truncates: what
// [Nanoseconds] makes of the result is less than ns by at most 2^-15 of it.
// It is exact for every ns.
func Scale(ns uint64) (delta uint16, scale uint8) {
	if ns == 0 {
		return 0, 0
	}
	if ns < 1<<exactBits {
		return top16(ns*fiveToThe9, twoToThe)
	}
	// The product has up to 85 bits; its 53 or more highest hold the 16 that
	// are kept, so the lowest 32 can be dropped after the carry.
	const half = 32
	carry := (ns & math.MaxUint32) * fiveToThe9 >> half
	return top16(ns>>half*fiveToThe9+carry, twoToThe+half)
}

func top16(v uint64, dropped int) (delta uint16, scale uint8) {
	s := max(0, bits.Len64(v)-16)
	return uint16(v >> s), uint8(s + dropped)
}

// ScaleAttoseconds is [Scale] for hi · 2^64 + lo attoseconds.
func ScaleAttoseconds(hi, lo uint64) (delta uint16, scale uint8) {
	if hi == 0 {
		return top16(lo, 0)
	}
	n := bits.Len64(hi) // bits of the whole above 64
	if n >= 16 {
		return top16(hi, 64)
	}
	// Bring the highest bits together in one word.
	return top16(hi<<(64-n)|lo>>n, n)
}

// Nanoseconds returns delta · 2^scale attoseconds in nanoseconds, rounded to the
// nearest. Every delta and scale is legal on the wire; what is beyond 2^63−1 ns
// (292 years) is cut to that, and ok is false.
func Nanoseconds(delta uint16, scale uint8) (ns uint64, ok bool) {
	const (
		round = fiveToThe9 / 2
		// delta << 47 is the last that fits in 63 bits.
		maxShift = 47
		// Beyond this even a delta of 1 exceeds 2^63 ns.
		maxRest = 36
	)
	if delta == 0 || scale < twoToThe {
		// 65535 · 2^8 as is 0.017 ns.
		return 0, true
	}
	shift := int(scale) - twoToThe
	if shift <= maxShift {
		return (uint64(delta)<<shift + round) / fiveToThe9, true
	}
	// Divide first, then shift quotient and remainder by the rest.
	v, rest := uint64(delta)<<maxShift, shift-maxShift
	q, r := v/fiveToThe9, v%fiveToThe9
	if rest > maxRest || bits.Len64(q)+rest > 63 {
		return math.MaxInt64, false
	}
	ns = q<<rest + (r<<rest+round)/fiveToThe9
	if ns > math.MaxInt64 {
		return math.MaxInt64, false
	}
	return ns, true
}

// Duration is [Nanoseconds] as a time.Duration.
func Duration(delta uint16, scale uint8) (d time.Duration, ok bool) {
	ns, ok := Nanoseconds(delta, scale)
	return time.Duration(ns), ok
}

// Attoseconds returns delta · 2^scale, exactly.
func Attoseconds(delta uint16, scale uint8) *big.Int {
	v := new(big.Int).SetUint64(uint64(delta))
	return v.Lsh(v, uint(scale))
}
