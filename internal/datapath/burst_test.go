package datapath

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// A burst is counted as the segments that it is cut into, whatever tunnels are
// around it and whichever of them is recorded. A test run has no type of GSO, so
// that the tunnels are looked into.
func TestBurstsAreTheirSegments(t *testing.T) {
	for _, tunnels := range [][]flow.Tunnel{nil, {flow.TunnelVXLAN, flow.TunnelGeneve, flow.TunnelGRE, flow.TunnelIPIP}} {
		d := load(t, Config{MaxEntries: 1024, Tunnels: tunnels})
		p := loaded(t, d, Ingress)
		bursts := rapid.SliceOfN(packet.RandomBurst(), 2, 6)
		rapid.Check(t, func(rt *rapid.T) {
			defer datapathtest.OnOneProcessor(t)()
			for _, b := range bursts.Draw(rt, "bursts") {
				run(t, p, b.Frame)
				fillBatches(t, d)
				whole := onlyWire(counted(t, d))
				for _, s := range b.Segments {
					run(t, p, packet.Frame{Data: s})
				}
				fillBatches(t, d)
				cut := onlyWire(counted(t, d))
				for _, deltas := range [][]flow.Delta{whole, cut} {
					for i := range deltas {
						deltas[i].Frames = 0
					}
				}
				if diff := cmp.Diff(cut, whole); diff != "" {
					rt.Fatalf("%x in segments of %d (-segments +burst):\n%s", b.Frame.Data, b.Frame.GSO.Size, diff)
				}
			}
		})
	}
}
