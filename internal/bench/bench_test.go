package bench

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/test/built"
)

func init() { datapath.ReadOnce() }

func TestSpread(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{3}, Spread{Median: 3, Q1: 3, Q3: 3, Low: 3, High: 3}},
		{[]float64{9, 1}, Spread{Median: 5, Q1: 1, Q3: 9, Low: 1, High: 9}},
		{[]float64{9, 1, 2}, Spread{Median: 2, Q1: 1, Q3: 9, Low: 1, High: 9}},
		{[]float64{5, 900, 4, 3, 2, 1, 6, 7, -90}, Spread{Median: 4, Q1: 2, Q3: 6, Low: -90, High: 900}},
	} {
		if got := spreadOf(tc.values); got != tc.want {
			t.Errorf("spread of %v is %v, want %v", tc.values, got, tc.want)
		}
	}
	// In each round by itself: a slow round cancels.
	if got := pairwise([]float64{10, 110, 11}, []float64{1, 101, 1}, minus); got != (Spread{Median: 9, Q1: 9, Q3: 10, Low: 9, High: 10}) {
		t.Errorf("differences: %v", got)
	}
	if got := ratio([]float64{12, 31}, []float64{22, 51}, []float64{2, 11}); got != only(0.5) {
		t.Errorf("ratios: %v", got)
	}
}

// The ranks are those of tables of the sign test; and the median is where it is said to be.
func TestConfidence(t *testing.T) {
	for n, want := range map[int]Range{1: {0, 0}, 5: {0, 4}, 6: {0, 5}, 9: {1, 7}, 20: {5, 14}, 45: {15, 29}} {
		var ranks []float64
		for i := range n {
			ranks = append(ranks, float64(n-1-i))
		}
		if got := confidence(ranks); got != want {
			t.Errorf("of %d values: %v, want %v", n, got, want)
		}
	}
	const samples, median = 2000, 0.5
	random, right := rand.New(rand.NewPCG(1, 2)), 0
	for range samples {
		var values []float64
		for range 45 {
			values = append(values, random.Float64())
		}
		if r := confidence(values); r.From <= median && median <= r.To {
			right++
		}
	}
	if right < samples*95/100 {
		t.Errorf("%d of %d intervals have the median", right, samples)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	err := writeTable(&b, []column{{"what", false}, {"ns", true}}, [][]string{{"account", Spread{Median: 7.25, Low: 6, High: 120}.String()}, {"µ", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"| what    |              ns |",
		"| ------- | --------------: |",
		"| account | 7.25 (6.00–120) |",
		"| µ       |               1 |",
		"",
	}, "\n")
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestBudgets(t *testing.T) {
	point := func(packet string, flows int, stage, ratio float64) Point {
		return Point{Packet: packet, Flows: flows, Costs: []Cost{
			{Program: costIngress, Ratio: &Spread{Median: ratio}},
			{Program: costStage, Over: Spread{Median: stage}},
		}}
	}
	r := DatapathReport{Points: []Point{
		point("a", 1, 7, 0.2), point("a", 1<<20, 110, 0.39),
		point("b", 1, 16, 0.3), point("b", 1<<20, 100, 0.41),
	}}
	r.Drain.Milliseconds.Median = 150
	r.Features = []Cost{
		{Program: costPlain},
		{Program: costTunnels, Added: &Spread{Median: 1}},
		{Program: costSampling, Added: &Spread{Median: 16}},
		{Program: costARP, Added: &Spread{Median: -3}},
	}
	got := map[string]bool{}
	for _, b := range r.budgets() {
		got[b.Name] = b.Met
	}
	want := map[string]bool{
		"flow account, one flow":                         false,
		"flow account, 1048576 flows":                    true,
		"whole program to HASH reference, 1 flows":       true,
		"whole program to HASH reference, 1048576 flows": false,
		"ingress, tunnels on, over a plain packet":       true,
		"ingress, sampling 1:100, over a plain packet":   false,
		"ingress, ARP, over a plain packet":              true,
		"drain of 0 flows":                               true,
		"user time of an exported record":                true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("budgets met (-want +got):\n%s", diff)
	}
}

// TestPlots: probes that counted a part only say so, and one outlier does not decide the scale.
func TestPlots(t *testing.T) {
	dir := t.TempDir()
	cost := func(probe string, flows int, counted uint64, over ...float64) ProbeCost {
		return ProbeCost{Probe: probe, Flows: flows, Over: spreadOf(over), Process: over[0], Memory: 10, Sent: 100, Counted: counted}
	}
	r := ProbesReport{Measured: []ProbeCost{
		cost("whole", 1, 100, 58, 57, 59, 60, 8000), cost("whole", 1000, 100, 62, 61, 63, 60, 59),
		cost("part", 1, 100, 110, 111, 109, 108, 112), cost("part", 1000, 42, 180, 170, 190, 160, 200),
	}}
	err := r.WritePlots(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "probes-kernel.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Error(err)
	}
	for file, texts := range map[string][]string{
		"probes-kernel.svg":  {"What a probe adds", "counted 42 %"},
		"probes-process.svg": {"Processor time", "counted 42 %"},
	} {
		svg, err := os.ReadFile(filepath.Join(dir, file))
		for _, text := range texts {
			if err != nil || !bytes.Contains(svg, []byte(text)) {
				t.Errorf("%s lacks %q: %v", file, text, err)
			}
		}
		if bytes.Contains(svg, []byte("8000")) {
			t.Errorf("%s: an outlier decides the scale", file)
		}
	}
}

// Frames arrive, all of them, as packets of as many flows as were asked for.
func TestGeneratorLosesNothing(t *testing.T) {
	const flows, packets = 1000, 50_000
	r, err := newRange(2, flows)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer r.close()
	for _, l := range r.lanes {
		v, err := l.shoot(packets)
		if err != nil {
			t.Fatal(err)
		}
		if v.sent < packets || v.received != v.sent || v.ns <= 0 {
			t.Errorf("%s: %d sent, %d received, %.0f ns each; want %d", l.name, v.sent, v.received, v.ns, packets)
		}
	}
}

// The budgets of the flow stage that hold on a machine with other work to do:
// against the reference program in the same run, by the fastest rounds.
func TestCostAgainstHashMap(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			var s stage
			defer s.close()
			_, err := s.load(datapath.Config{MaxEntries: 1 << 16}, program.Bench, k, 1, [][2]string{
				{"bench_empty", costEmpty}, {"bench_ingress", costIngress}, {"bench_hash", costHash},
			})
			if err != nil {
				t.Fatalf("%+v", err)
			}
			low := func(name string) float64 { return spreadOf(s.contenders.values(name)).Low }
			var ours, reference float64
			for attempt := 0; attempt < 5 && (attempt == 0 || ours > limitRatio*reference); attempt++ {
				if err := s.run(1, 100_000, 15); err != nil {
					t.Fatal(err)
				}
				ours, reference = low(costIngress)-low(costEmpty), low(costHash)-low(costEmpty)
				t.Logf("%.1f ns, %.1f with a hash map", ours, reference)
			}
			if ours > limitRatio*reference {
				t.Errorf("%.1f ns over the empty program, more than %.1f × %.1f with a hash map", ours, limitRatio, reference)
			}
		})
	}
}

// Sampling, tunnels that no packet has, and packets in no flow add little to the cost
// of a packet, by the fastest rounds.
func TestCostOfFeatures(t *testing.T) {
	var late string
	for range 5 {
		costs, err := measureFeatures(Config{Quick: true})
		if err != nil {
			t.Fatalf("%+v", err)
		}
		low := map[string]float64{}
		for _, c := range costs {
			low[c.Program] = c.Total.Low
		}
		late = ""
		for _, name := range []string{costTunnels, costSampling, costARP} {
			if more := low[name] - low[costPlain]; more > limitFeature {
				late += fmt.Sprintf("%s: %.1f ns more than a plain packet\n", name, more)
			}
		}
		t.Logf("%v", low)
		if late == "" {
			return
		}
	}
	t.Error(late)
}

// Both forms of the keys are measured for every sort of packet.
func TestCostOfHashKeys(t *testing.T) {
	costs, err := measureHash(Config{Quick: true})
	if err != nil || len(costs) != 2*len(kinds()) || costs[1].Added == nil {
		t.Errorf("%+v, %v", costs, err)
	}
}

// The limit is one of time, which the machine's other work takes its share of: at least the process may not need more.
func TestDrainIsExactAndCheap(t *testing.T) {
	cfg := Default()
	cfg.Quick = testing.Short()
	visited := drained{rounds: 2}
	if err := visited.visit(context.Background(), cfg); err != nil {
		t.Fatalf("%+v", err)
	}
	d := visited.result()
	t.Logf("%d flows: %v ms, of it %v waiting", d.Flows, d.Milliseconds, d.Grace)
	if !d.Exact {
		t.Error("packets were lost or counted twice")
	}
	if spent := spreadOf(visited.spent); spent.Low > limitDrain {
		t.Errorf("%d flows took %v ms of processor time, want at most %d", d.Flows, spent, limitDrain)
	}
}

// Every flow becomes a record; what that costs depends on who else is here.
func TestExport(t *testing.T) {
	cfg := Default()
	cfg.Quick = true
	var visited exported
	if err := visited.visit(context.Background(), cfg); err != nil {
		t.Fatalf("%+v", err)
	}
	e := visited.result()
	t.Logf("a record: %v µs in user space, %v in the kernel", e.User, e.System)
	if e.Records == 0 || e.User.Low <= 0 {
		t.Errorf("nothing was measured: %+v", e)
	}
}

// A short run of whole probes: ours count all that arrives, and nothing stays.
func TestProbes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds the agent and runs it")
	}
	self := built.Waymark(t)
	costs, err := measureProbes(t.Context(), allTools(self)[:2], probesRun{flows: 1000, packets: 20_000, rounds: 1, scan: "200ms"})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, c := range costs[1:] {
		if !c.Exact || c.Records != 1000 || c.Memory == 0 {
			t.Errorf("%s: %d of %d packets, %d records, %.0f MiB", c.Probe, c.Counted, c.Sent, c.Records, c.Memory)
		}
	}
}

// TestBars: each way that drops has a bar, and its name.
func TestBars(t *testing.T) {
	dir := t.TempDir()
	r := DropReport{Measured: []DropCost{
		{Way: dropSending, Receive: spreadOf([]float64{1})},
		{Way: dropNFT, Receive: spreadOf([]float64{480, 500, 520})},
		{Way: dropWaymark, Receive: spreadOf([]float64{70, 80, 90})},
	}}
	if err := r.WritePlots(dir); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(filepath.Join(dir, "drop.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{dropSending: false, dropNFT: true, dropWaymark: true} {
		if strings.Contains(string(drawn), name) != want {
			t.Errorf("%s is drawn: %t", name, !want)
		}
	}
}

// Each budget names what it compares with, and is missing with it.
func TestDropBudgets(t *testing.T) {
	cost := func(way string, ns float64) DropCost {
		return DropCost{Way: way, Receive: only(ns), Ratio: only(ns / 500)}
	}
	r := DropReport{Measured: []DropCost{
		cost(dropNFT, 500), cost(dropFilterUDP, 60), cost(dropFilterAll, 200), cost(dropWaymark, 66),
		cost(dropFilterUDP+inTurns, 60), cost(dropWaymark+inTurns, 120),
	}}
	got := map[string]bool{}
	for _, b := range r.budgets() {
		got[b.Name] = b.Met
	}
	want := map[string]bool{
		"receiving and dropping, over nftables at netdev ingress":                true,
		"the same, over xdp-filter, as it loads by default":                      true,
		"the same, over xdp-filter, for UDP only (-f udp)":                       false,
		"the same, 1,024 flows in turns, over xdp-filter, for UDP only (-f udp)": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("budgets met (-want +got):\n%s", diff)
	}
}

// Each way drops what is sent, which Drop checks.
func TestDrop(t *testing.T) {
	r, err := Drop(t.Context(), Config{Quick: true, Progress: func(string) {}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, c := range r.Measured {
		t.Logf("%s: %v ns, receiving %v, %v of nftables", c.Way, c.Total, c.Receive, c.Ratio)
		if c.Way == dropWaymark && c.Receive.Median <= 0 {
			t.Errorf("%s costs nothing: %+v", c.Way, c)
		}
	}
	for _, a := range r.Absent {
		t.Logf("%s: %s", a.Probe, a.Why)
	}
	if err := r.WriteText(t.Output()); err != nil {
		t.Error(err)
	}
}
