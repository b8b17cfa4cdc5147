package bench

import (
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/built"
)

// Every sort of packet takes the way it is there for, which measure checks, and
// what is left out costs less than what is done.
func TestPDMCosts(t *testing.T) {
	stage := map[string]float64{}
	for _, s := range pdmScenarios() {
		if s.flows > 1 || s.what == costMarkFull || s.what == costRead {
			continue // as the others, and longer
		}
		if s.what != costMark {
			s.whole = ""
		}
		c, err := s.measure(3)
		if err != nil {
			t.Fatalf("%s: %+v", s, err)
		}
		t.Logf("%s: %v ns", s, c.Stage)
		if c.Stage.Median <= 0 || c.Added != nil && c.Added.High <= 0 {
			t.Errorf("%s: costs nothing: stage %v, added to the program %v", s, c.Stage, c.Added)
		}
		stage[s.what] = c.Stage.Low
	}
	for _, less := range [][2]string{
		{costUnnamed, costMark}, {costMark, costMarkNew}, {costRefused, costMarkNew}, {costStranger, costAnswer},
	} {
		if stage[less[0]] >= stage[less[1]] {
			t.Errorf("%s: %.0f ns, more than %s: %.0f ns", less[0], stage[less[0]], less[1], stage[less[1]])
		}
	}
}

func TestPDMSizes(t *testing.T) {
	sizes, state, err := measurePDMSizes()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	off := map[string]int{}
	for _, s := range sizes {
		if !s.PDM {
			off[s.Program] = s.Instructions
		} else if s.Instructions <= off[s.Program] || s.Machine == 0 {
			t.Errorf("%s: %d instructions with PDM, %d without", s.Program, s.Instructions, off[s.Program])
		}
	}
	if len(sizes) != 4 || state.KeyValue == 0 || state.Kernel < float64(state.KeyValue) {
		t.Errorf("sizes %+v, state %+v", sizes, state)
	}
}

// A short run of transfers: those that should be are marked, which cost checks,
// and nothing stays.
func TestTransfers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds the agent and runs it")
	}
	self := built.Waymark(t)
	progress := func(what string) { t.Log(what) }
	got, err := measureTransfers(t.Context(), PDMTransfer{Rounds: 1, Every: 1, Seconds: 0.2}, progress, self)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if len(got.Modes) != 5 {
		t.Fatalf("measured %+v, absent %+v", got.Modes, got.Absent)
	}
	for _, m := range got.Modes {
		if m.Rate.Low <= 0 || m.Processor.Low <= 0 {
			t.Errorf("%s: %+v", m.Mode, m)
		}
	}
	// A burst has one mark. How much was sent depends on what else runs, so it is compared for a Gbit.
	marks := func(m TransferCost) float64 { return float64(m.Marked) / m.Rate.Median }
	if bursts, packets := marks(got.Modes[2]), marks(got.Modes[4]); packets <= bursts {
		t.Errorf("marks for each Gbit/s: %.0f on bursts, %.0f on packets one by one", bursts, packets)
	}
	labs, err := lab.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range labs {
		if l.Prefix == transferPrefix(modeBurst) {
			t.Errorf("the lab %s is still there", l.Prefix)
		}
	}
}
