package datapath

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// Two interfaces of one namespace run different copies of the programs where a
// stage has work on one of them only. The feature here is sampling that counts
// no packet, so that the counts show which copy ran.
func TestFeaturesPerInterface(t *testing.T) {
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Payload(100).Bytes()
	v := newSilentVeth(t)
	for _, only := range []string{"from", "to"} {
		d := New(Config{MaxEntries: 64, Stages: []*Stage{{
			Name: "none", Programs: []*Program{Ingress, Egress}, Feature: uint32(tcFeatureFEATURE_SAMPLING),
			Uses: func(h Hook) bool { return h.Target.Name == only },
			Set:  func(s *Spec) error { return s.SetConstant("cfg_sample_below", uint32(0)) },
		}}}, slog.New(slog.DiscardHandler))
		if err := d.Load(); err != nil {
			t.Fatal(err)
		}
		names := map[flow.Iface]string{}
		for name, index := range map[string]int{"from": v.from, "to": v.to} {
			iface := flow.NewIface(0, uint32(index))
			names[iface] = name
			if _, err := d.Attach(Target{Iface: iface, Name: name, Do: v.do}); err != nil {
				t.Fatal(err)
			}
		}
		const frames = 5
		for range frames {
			v.send(t, frame)
		}
		want := map[string]uint64{"to ingress": frames}
		if only == "to" {
			want = map[string]uint64{"from egress": frames}
		}
		counted := map[string]uint64{}
		drain := func() bool {
			if err := d.Drain(func(f *flow.Delta) { counted[names[f.Iface]+" "+f.Direction.String()] += f.Packets }); err != nil {
				t.Fatal(err)
			}
			return len(counted) >= len(want)
		}
		await.True(t, "packets to be counted", drain)
		drain()
		if !maps.Equal(counted, want) {
			t.Errorf("work on %s: counted %v, want %v", only, counted, want)
		}
		d.Close()
	}
}
