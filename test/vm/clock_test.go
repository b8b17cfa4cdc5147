package vm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Two measurements agree to a thousandth: the kernel corrects less than a hundredth.
func TestClockOption(t *testing.T) {
	var khz [2]float64
	for i := range khz {
		option := clockOption()
		if runtime.GOARCH != "amd64" && option == "" {
			return
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(option), "tsc_early_khz=%f", &khz[i]); err != nil {
			t.Fatal(err)
		}
	}
	if r := khz[0] / khz[1]; r < 0.999 || r > 1.001 || khz[0] < 100_000 {
		t.Errorf("measured %.0f kHz, then %.0f", khz[0], khz[1])
	}
}
