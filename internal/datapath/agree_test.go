package datapath

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/capture"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// sum merges deltas by key and leaves out what depends on time.
func sum(into map[flow.Key]flow.Counts, d *flow.Delta) {
	c := into[d.Key]
	c.Add(&d.Counts)
	into[d.Key] = c
}

func timeless(in map[flow.Key]flow.Counts) map[flow.Key]flow.Counts {
	out := map[flow.Key]flow.Counts{}
	for k, c := range in {
		// Frames depend on where a tag was, which differs. What is of the first
		// packet depends on the clock where a flow has two slots, tagged and not.
		c.First, c.FirstSpread, c.Last, c.RTT, c.Frames, c.FrameBytes = 0, 0, 0, flow.RTT{}, 0, 0
		c.TOS, c.FlowLabel, c.VNI = 0, 0, 0
		out[k] = c
	}
	return out
}

// diffTimeless compares what does not depend on the time. Package cmp, which says what differs, takes far longer.
func diffTimeless(want, got map[flow.Key]flow.Counts) (diff string) {
	want, got = timeless(want), timeless(got)
	if maps.Equal(want, got) {
		return ""
	}
	readable := func(in map[flow.Key]flow.Counts) map[string]flow.Counts {
		out := map[string]flow.Counts{}
		for k, c := range in {
			out[fmt.Sprintf("%+v", k)] = c
		}
		return out
	}
	return cmp.Diff(readable(want), readable(got))
}

// TestProbesAgree: on random frames, whole, damaged and cut, the parser in the
// kernel and the one in Go count the same flows.
func TestProbesAgree(t *testing.T) {
	v := newSilentVeth(t)
	inKernel := load(t, Config{MaxEntries: 4096})
	if _, err := inKernel.Attach(v.target()); err != nil {
		t.Fatal(err)
	}
	inGo := capture.New(capture.Config{MaxEntries: 4096, SnapLen: 9216, RingSize: 1 << 20}, capture.Deps{})
	if err := inGo.Load(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inGo.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := inGo.Attach(capture.Target{Iface: v.target().Iface, Name: "to", Do: v.do}); err != nil {
		t.Fatal(err)
	}
	reported := [2]map[string]uint64{{}, {}}
	frames := rapid.SliceOfN(packet.Random(), 50, 200)
	rapid.Check(t, func(rt *rapid.T) {
		sent := 0
		for _, f := range frames.Draw(rt, "frames") {
			if len(f) >= 20 && len(f) <= 9000 {
				v.send(t, f)
				sent++
			}
		}
		var counts [2]map[flow.Key]flow.Counts
		var reasons [2]map[string]uint64
		for i, p := range []flow.Probe{inKernel, inGo} {
			counts[i] = map[flow.Key]flow.Counts{}
			deadline := time.Now().Add(time.Minute)
			for {
				if err := p.Drain(func(d *flow.Delta) { sum(counts[i], d) }); err != nil {
					rt.Fatal(err)
				}
				reasons[i] = newReasons(t, p, reported[i])
				if total(counts[i], reasons[i]) >= uint64(sent) || time.Now().After(deadline) {
					break
				}
			}
			for reason, n := range reasons[i] {
				reported[i][reason] += n
			}
		}
		if diff := diffTimeless(counts[0], counts[1]); diff != "" {
			rt.Fatalf("flows (-kernel +Go):\n%s", diff)
		}
		if !maps.Equal(reasons[0], reasons[1]) {
			rt.Fatalf("reasons: kernel %v, Go %v", reasons[0], reasons[1])
		}
	})
}

func total(flows map[flow.Key]flow.Counts, reasons map[string]uint64) (n uint64) {
	for _, c := range flows {
		n += c.Packets
	}
	for _, r := range reasons {
		n += r
	}
	return n
}

// newReasons are the packets by reason that are in no flow, since reported.
func newReasons(t *testing.T, p flow.Probe, reported map[string]uint64) map[string]uint64 {
	t.Helper()
	list, err := p.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, u := range slices.All(list) {
		if n := u.Packets - reported[strings.ToLower(u.Reason)]; n > 0 {
			out[u.Reason] += n
		}
	}
	return out
}
