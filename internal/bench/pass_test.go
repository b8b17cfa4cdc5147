package bench

import (
	"errors"
	"slices"
	"testing"
)

// Ways pass on what is sent, by what they count themselves and by what arrives, which compare checks; a report has each way
// or says why not.
func TestPasses(t *testing.T) {
	cfg := Default()
	cfg.Progress = func(what string) { t.Log(what) }
	f := &ForwardReport{Passes: Passes{Packets: 2000, Rounds: 1}}
	if err := f.run(t.Context(), cfg, []int{100}); err != nil {
		t.Fatalf("forward: %+v", err)
	}
	b := &BalanceReport{Passes: Passes{Packets: 2000, Rounds: 1}}
	if err := b.run(t.Context(), cfg, []int{100}); err != nil {
		t.Fatalf("balance: %+v", err)
	}
	for _, r := range []struct {
		passes   Passes
		ways     int
		programs int
		want     int
	}{{f.Passes, len(forwarders()), len(f.Programs), 1}, {b.Passes, len(balancers()), len(b.Programs), 3}} {
		if n := len(r.passes.Measured) + len(r.passes.Absent); n != r.ways || r.programs != r.want {
			t.Errorf("%d ways of %d, %d programs of %d", n, r.ways, r.programs, r.want)
		}
	}
	for _, p := range slices.Concat(f.Programs, b.Programs) {
		if p.Instructions < 100 || p.Helpers < 1 {
			t.Errorf("%+v", p)
		}
	}
	if len(f.of(passForward)) != 1 || len(f.Budgets) != 1 {
		t.Errorf("%+v", f)
	}
	if err := errors.Join(f.WriteText(t.Output()), b.WriteText(t.Output()), f.WritePlots(t.TempDir()), b.WritePlots(t.TempDir())); err != nil {
		t.Error(err)
	}
}
