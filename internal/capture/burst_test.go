package capture

import (
	"math/rand/v2"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// A burst is counted as the segments that it is cut into, whatever tunnels are
// around it and whichever of them is recorded, and wherever the kernel says that
// the innermost transport header is, or does not.
func TestBurstsAreTheirSegments(t *testing.T) {
	for _, tunnels := range []packet.Tunnels{0, packet.AllTunnels} {
		rapid.Check(t, func(t *rapid.T) {
			b := packet.RandomBurst().Draw(t, "burst")
			whole, cut := newMeter(config(tunnels), rand.Uint32), newMeter(config(tunnels), rand.Uint32)
			frame := asFrame(b.Frame)
			if rapid.Bool().Draw(t, "the kernel says where") {
				frame.gso.transportAt, frame.gso.tcp = b.TransportAt, b.TCP
			}
			whole.add(&frame, place{}, 1)
			for _, s := range b.Segments {
				frame := asFrame(packet.Frame{Data: s})
				cut.add(&frame, place{}, 1)
			}
			if diff := gocmp.Diff(wireOnly(cut.flows()), wireOnly(whole.flows())); diff != "" {
				t.Fatalf("%x in segments of %d (-segments +burst):\n%s", b.Frame.Data, b.Frame.GSO.Size, diff)
			}
		})
	}
}

// wireOnly leaves out what counts frames.
func wireOnly(deltas []flow.Delta) []flow.Delta {
	for i := range deltas {
		deltas[i].Frames, deltas[i].FrameBytes = 0, 0
	}
	return deltas
}
