package filter

import (
	"errors"
	"math/bits"
	"strconv"
	"strings"
)

var (
	errNumber = errors.New("write a whole number; k, M, G, T (powers of 1000) and Ki, Mi, Gi, Ti (of 1024) may follow it")
	errBytes  = errors.New("write a number of bytes, such as 1500, 1MB or 64KiB")
)

// units are the powers of the base that the letters stand for.
const units = "kmgt"

// parseScaled reads 10, 10k and 1.5M (powers of 1000) and 10Ki (of 1024), in
// letters of any case; a number of bytes may end with B.
func parseScaled(s string, bytes bool) (uint64, error) {
	err := errNumber
	digits := strings.ToLower(s)
	if bytes {
		err = errBytes
		digits = strings.TrimSuffix(digits, "b")
	}
	base := uint64(1000)
	if d, ok := strings.CutSuffix(digits, "i"); ok {
		digits, base = d, 1024
	}
	factor := uint64(1)
	if n := len(digits); n > 0 {
		if unit := strings.IndexByte(units, digits[n-1]); unit >= 0 {
			for range unit + 1 {
				factor *= base
			}
			digits = digits[:n-1]
		}
	}
	if factor == 1 && base == 1024 {
		return 0, err
	}
	whole, fraction, point := strings.Cut(digits, ".")
	n, bad := strconv.ParseUint(whole, 10, 64)
	high, low := bits.Mul64(n, factor)
	if bad != nil || high != 0 {
		return 0, err
	}
	if !point {
		return low, nil
	}
	part, ok := parseFraction(fraction, factor)
	if sum := low + part; ok && sum >= low {
		return sum, nil
	}
	return 0, err
}

// parseFraction multiplies the digits behind a point; the product must be whole.
func parseFraction(digits string, factor uint64) (uint64, bool) {
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || len(digits) > 9 {
		return 0, false
	}
	ten := uint64(1)
	for range digits {
		ten *= 10
	}
	high, low := bits.Mul64(n, factor)
	return low / ten, high == 0 && low%ten == 0
}

// isUnit reports whether a word is what may follow a number.
func isUnit(s string) bool {
	if _, err := parseScaled("1"+s, true); err == nil && s != "" && !strings.ContainsAny(s, "0123456789.") {
		return true
	}
	switch strings.ToLower(s) {
	case "ns", "us", "µs", "ms", "s", "m", "h", "d", "w":
		return true
	}
	return false
}

// Scaled reads a number with units as filters have them: 10, 10k, 1.5M and 10Ki; a
// number of bytes may end with B.
func Scaled(s string, bytes bool) (uint64, error) { return parseScaled(s, bytes) }
