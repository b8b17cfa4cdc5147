package bench

import (
	"errors"
	"maps"
	"testing"

	"github.com/waymark-net/waymark/test/built"
)

// Every program fills and completes traces, which measureIOAMCosts checks.
func TestIOAMCosts(t *testing.T) {
	costs, err := measureIOAMCosts(traceKinds[2:3], 3)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, c := range costs {
		t.Logf("%s: XDP %v (general %v), tc %v, through %v, ingress %v without %v, plain %v off %v",
			c.Fields, c.XDP, c.General, c.TC, c.Through, c.Ingress, c.Without, c.Plain, c.PlainOff)
		if c.XDP.Median <= 0 || c.TC.Median <= 0 || c.Through.Median <= c.TC.Median || c.Ingress.Median <= c.Without.Median {
			t.Errorf("%s costs nothing: %+v", c.Fields, c)
		}
		// A third to a half, as a rule.
		if c.XDP.Low > 0.8*c.General.Low {
			t.Errorf("%s: %v ns at XDP, where nothing is prepared %v", c.Fields, c.XDP, c.General)
		}
	}
}

// Routers of each kind fill traces, or ignore them, which open checks.
func TestTransitWays(t *testing.T) {
	got, err := measureTransits(t.Context(), IOAMTransit{Rounds: 3, Packets: 2000}, func(what string) { t.Log(what) })
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, n := range got.Nodes {
		t.Logf("%s: %v ns, added %v, of Linux %v", n.Node, n.Packet, n.Added, n.Linux)
	}
}

// Transfers in each lane, which reload between modes: without traces, with one, and with as many as there may be.
func TestIOAMThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds the agent and runs it")
	}
	self := built.Waymark(t)
	modes, err := ioamModes(true)
	if err != nil {
		t.Fatal(err)
	}
	long := maps.Clone(sliceBytes)
	t.Cleanup(func() { sliceBytes = long })
	sliceBytes = map[bool]int{true: 2 << 20, false: 256 << 10}
	got, err := measureThroughput(t.Context(), IOAMThroughput{Rounds: 1}, modes, func(what string) { t.Log(what) }, self)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, n := range got.Nodes {
		t.Logf("%s: %v", n.Node, n.Added)
	}
	for _, p := range got.Points {
		t.Logf("%s: %v, ratio %v", p.Mode, p.Rate, p.Ratio)
	}
	r := &IOAMReport{Throughput: got, Paper: ioamPaper}
	if err := errors.Join(r.WriteText(t.Output()), r.WritePlots(t.TempDir())); err != nil {
		t.Error(err)
	}
}
