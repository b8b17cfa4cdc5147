package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/datapath/parsetest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// TestParsersAgree: what the short parser takes, the whole one reads just so, on
// frames of all cases, cut anywhere, and on random ones.
func TestParsersAgree(t *testing.T) {
	for name, cfg := range map[string]Config{
		"plain":   {MaxEntries: 64},
		"tunnels": {MaxEntries: 64, Tunnels: []flow.Tunnel{flow.TunnelVXLAN, flow.TunnelGeneve, flow.TunnelGRE, flow.TunnelIPIP}},
		"a stage": {MaxEntries: 64, Stages: []*Stage{{Name: "pdm", Programs: []*Program{Ingress, Egress}, Feature: uint32(tcFeatureFEATURE_PDM)}}},
	} {
		t.Run(name, func(t *testing.T) {
			coll, err := load(t, cfg).Alongside(parsetest.Load, nil)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			defer coll.Close()
			seen := map[parsetest.Outcome]int{}
			compare := func(t rapid.TB, f packet.Frame) {
				ctx := skb{GSOSegs: uint32(f.GSO.Segments), GSOSize: uint32(f.GSO.Size)}
				got, err := coll.Programs["test_parsers"].Run(&ebpf.RunOptions{Data: f.Data, Context: &ctx})
				if err != nil {
					t.Fatalf("running %d bytes: %v", len(f.Data), err)
				}
				if got := parsetest.Outcome(got); got > parsetest.Agree {
					t.Fatalf("the parsers differ: outcome %d of %x", got, f.Data)
				}
				seen[parsetest.Outcome(got)]++
			}
			for _, c := range packet.Cases() {
				for _, c := range append(packet.Truncations(c), c) {
					for _, f := range c.Frames {
						if !f.L3 && datapathtest.Runnable(f) == "" {
							compare(t, f)
						}
					}
				}
			}
			random := packet.Random()
			rapid.Check(t, func(t *rapid.T) {
				for range 60 {
					if f := (packet.Frame{Data: random.Draw(t, "frame")}); datapathtest.Runnable(f) == "" {
						compare(t, f)
					}
				}
			})
			if seen[parsetest.Slow] < 100 || seen[parsetest.Agree] < 50 {
				t.Errorf("outcomes %v: both ways should be taken often", seen)
			}
		})
	}
}
