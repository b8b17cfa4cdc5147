package bench

import (
	"testing"

	"github.com/waymark-net/waymark/internal/kernel"
)

// TestHints: every program is measured in every way in which packets arrive. Reading a packet takes no less than reading none, and
// asking the driver for what it does not have takes time: neither depends on who else uses the machine, since the minimum counts.
func TestHints(t *testing.T) {
	if !kernel.XDPHints.Has() {
		t.Skip("hints at XDP: Linux 6.3")
	}
	r, err := Hints(t.Context(), Config{Quick: true, Progress: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Computed) != 5 || len(r.Dropped) != len(hintPrograms)+hintAsked || len(r.Read) != 3*hintAsked {
		t.Errorf("%d values, %d programs, %d that measure themselves", len(r.Computed), len(r.Dropped), len(r.Read))
	}
	least := map[string]float64{}
	for _, d := range r.Read {
		least[d.Packets+d.Program] = d.NS.Low
	}
	for _, way := range []string{packetsHot, packetsCold, packetsAcross} {
		none, parsed, hinted := least[way+hintPrograms[0].name], least[way+hintPrograms[hintParsed].name], least[way+hintPrograms[2].name]
		if none <= 0 || parsed < none*0.9 || hinted < none*0.9 {
			t.Errorf("%s: nothing read in %.1f ns, parsed in %.1f, driver asked in %.1f", way, none, parsed, hinted)
		}
	}
}
