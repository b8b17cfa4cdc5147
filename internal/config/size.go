package config

import (
	"fmt"
	"strconv"
	"strings"
)

// sizeUnits are the letters a size may end with, as powers of 1024.
const sizeUnits = "KMGT"

// ParseSize reads bytes as a configuration has them: 4096, 4K, 16M or 16MiB.
func ParseSize(text string) (uint64, error) { return parseSize(text) }

// parseSize reads bytes: 4096, 4K, 16M or 16MiB.
func parseSize(text string) (uint64, error) {
	digits := strings.TrimSuffix(strings.TrimSuffix(text, "B"), "i")
	shift := 0
	if n := len(digits); n > 0 {
		if unit := strings.IndexByte(sizeUnits, digits[n-1]); unit >= 0 {
			shift = 10 * (unit + 1)
			digits = digits[:n-1]
		}
	}
	if shift == 0 && strings.HasSuffix(text, "iB") {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n<<shift>>shift != n {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	return n << shift, nil
}

// formatSize is the shortest text that parseSize reads back as n.
func formatSize(n uint64) string {
	unit := -1
	for n > 0 && n%1024 == 0 && unit+1 < len(sizeUnits) {
		n /= 1024
		unit++
	}
	if unit < 0 {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(n, 10) + sizeUnits[unit:unit+1] + "iB"
}
