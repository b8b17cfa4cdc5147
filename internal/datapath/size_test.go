package datapath

import (
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
)

// TestVerifierWork keeps the programs verifiable on older kernels, whose
// verifier prunes less: far from the million instructions it may look at.
func TestVerifierWork(t *testing.T) {
	for name, tunnels := range map[string][]flow.Tunnel{
		"plain": nil, "all tunnels": {flow.TunnelVXLAN, flow.TunnelGeneve, flow.TunnelGRE, flow.TunnelIPIP},
	} {
		d := load(t, Config{MaxEntries: 64, Tunnels: tunnels})
		for v, p := range d.loaded {
			info, err := p.Info()
			if err != nil {
				t.Fatal(err)
			}
			n, _ := info.VerifiedInstructions()
			x, _ := info.TranslatedSize()
			jited, _ := info.JitedSize()
			t.Logf("%s, %s %+v: %d instructions verified, %d bytes translated, %d of machine code", name, v.program.Name, v.variant, n, x, jited)
			if n > 100_000 {
				t.Errorf("%s, %s %+v: the verifier looked at %d instructions", name, v.program.Name, v.variant, n)
			}
		}
	}
}
