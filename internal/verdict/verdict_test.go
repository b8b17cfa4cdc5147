package verdict_test

import (
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/verdict"
)

// TestHealthy: an hour of a healthy network gives no verdict at any time, and the answer says what
// was examined.
func TestHealthy(t *testing.T) {
	for seed := range uint64(2) {
		w := newWorld(seed)
		w.speeds["router/east"] = 100e6
		for n := 1; n <= 360; n++ {
			w.run(1, fault{noMarks: seed == 1})
			if n > 6 && n%40 != 0 {
				continue
			}
			a := w.examine(t)
			if a.Verdicts == nil || len(a.Verdicts) != 0 || !strings.HasPrefix(a.Summary, "No server, path, link or rule stands out") {
				t.Fatalf("seed %d, interval %d: %s: %+v", seed, n, a.Summary, a.Verdicts)
			}
			if n < 30 {
				continue
			}
			for _, m := range a.Examined {
				none := m.Kind == verdict.GateDrops || m.Kind == verdict.AgentLosses || seed == 1 && m.Kind == verdict.ServerSlow
				if (m.Count == 0) != none {
					t.Errorf("examined %d %s of %s (%s)", m.Count, m.What, m.Kind, m.Note)
				}
			}
		}
	}
}

// faults are those that tests inject, with the verdict that is the only one.
var faults = []struct {
	name  string
	fault fault
	kind  verdict.Kind
	says  []string
}{
	{"server", fault{server: 40 * time.Millisecond}, verdict.ServerSlow, []string{"[2001:db8:2::2]:443", "× the usual"}},
	{"link", fault{link: 20 * time.Millisecond}, verdict.PathDelay, []string{"The link from", "router/east", "beta/eth0"}},
	{"link without marks", fault{link: 20 * time.Millisecond, noMarks: true}, verdict.PathDelay, []string{"The link from", "router/east", "beta/eth0"}},
	{"node", fault{node: 15 * time.Millisecond}, verdict.PathDelay, []string{"Node 2 keeps packets for 15"}},
	{"link of a node", fault{behind: 15 * time.Millisecond}, verdict.PathDelay, []string{"The link from node 2 to node 3 takes 15"}},
	{"node and marks", fault{behind: 15 * time.Millisecond, link: 15 * time.Millisecond}, verdict.PathDelay, []string{"The link"}},
	{"loss", fault{loss: 0.01}, verdict.PathLoss, []string{"The link from", "router/east", "beta/eth0"}},
	{"full", fault{fill: 12_000_000}, verdict.LinkFull, []string{"router/east carries", "udp from [2001:db8:1::1]:5000"}},
	{"dead", fault{dead: true}, verdict.Unanswered, []string{"[2001:db8:2::2]:443 does not answer"}},
	{"dead with open connections", fault{dead: true, stuck: true, again: 0.05}, verdict.Unanswered, []string{"[2001:db8:2::2]:443 does not answer 3 of 3 open connections (15 segments without an answer)"}},
	{"gate", fault{drops: 1000}, verdict.GateDrops, []string{"rule 7 (drop tcp dst port 23)", "100 packets/s"}},
	{"gate and dead", fault{drops: 1000, dead: true}, verdict.GateDrops, []string{"rule 7"}},
	{"agent", fault{agent: 500}, verdict.AgentLosses, []string{"records in exporter ipfix (queue_full)"}},
	{"again", fault{again: 0.05}, verdict.Retransmissions, []string{"Namespace alpha sends", "[2001:db8:3::3]:443"}},
}

// TestFaults: within two scan intervals the first verdict names kind and place, and there is no
// other, whatever happened before.
func TestFaults(t *testing.T) {
	for _, c := range faults {
		for seed := range uint64(10) {
			w := newWorld(seed)
			w.speeds["router/east"] = 100e6
			w.run(12+int(seed)*2, fault{noMarks: c.fault.noMarks})
			w.run(2, c.fault)
			checkOnly(t, c.name, w.examine(t), c.kind, c.says)
		}
	}
}

func checkOnly(t *testing.T, name string, a verdict.Answer, kind verdict.Kind, says []string) {
	t.Helper()
	if len(a.Verdicts) == 0 {
		t.Errorf("%s: no verdict: %+v", name, a.Examined)
		return
	}
	for i, v := range a.Verdicts {
		if v.Kind != kind {
			t.Errorf("%s: verdict %d is %s: %s", name, i, v.Kind, v.Text)
		}
	}
	for _, s := range says {
		if !strings.Contains(a.Verdicts[0].Text, s) {
			t.Errorf("%s: %q does not say %q", name, a.Verdicts[0].Text, s)
		}
	}
}

// TestNotOpenYet: a connection whose SYN alone was sent again is none that went silent: whoever drops the SYN is named for it.
func TestNotOpenYet(t *testing.T) {
	for sent, want := range map[uint64]int{100: 1, 0: 0} {
		w := newWorld(1)
		w.run(20, fault{})
		w.run(2, fault{stuck: true})
		for i := range w.stuck {
			w.stuck[i].Sent = sent
		}
		if a := w.examine(t); len(w.stuck) == 0 || len(a.Verdicts) != want {
			t.Errorf("%d segments with data: %+v", sent, a.Verdicts)
		}
	}
}

// TestBefore: a range that ended before the fault has no verdict, and one of the fault alone has.
func TestBefore(t *testing.T) {
	w := newWorld(1)
	w.run(60, fault{})
	began := w.now
	w.run(6, fault{server: 40 * time.Millisecond})
	w.run(60, fault{})
	if a := w.ask(t, verdict.Request{Until: began}); len(a.Verdicts) != 0 || !a.To.Equal(began) {
		t.Errorf("before: %s, %+v", a.Summary, a.Verdicts)
	}
	a := w.ask(t, verdict.Request{Since: began, Until: began.Add(time.Minute)})
	checkOnly(t, "of the fault", a, verdict.ServerSlow, nil)
	if v := a.Verdicts[0]; v.Usual == 0 || v.Value < 10*v.Usual/2 || a.Usual.IsZero() {
		t.Errorf("%+v, usual from %v", v, a.Usual)
	}
	if a := w.examine(t); len(a.Verdicts) != 0 {
		t.Errorf("after: %+v", a.Verdicts)
	}
}

// TestFilter: a filter takes what is not of flows out, and flows that it does not mean.
func TestFilter(t *testing.T) {
	w := newWorld(2)
	w.run(30, fault{})
	w.run(2, fault{server: 40 * time.Millisecond, drops: 1000})
	checkOnly(t, "beta", w.ask(t, verdict.Request{Filter: "host 2001:db8:2::2"}), verdict.ServerSlow, nil)
	a := w.ask(t, verdict.Request{Filter: "host 2001:db8:3::3"})
	if len(a.Verdicts) != 0 {
		t.Errorf("gamma: %+v", a.Verdicts)
	}
	for _, m := range a.Examined {
		if m.Kind == verdict.GateDrops && !strings.Contains(m.Note, "filter") {
			t.Errorf("%+v", m)
		}
	}
}

// TestThresholds: no verdict at a threshold above what is there.
func TestThresholds(t *testing.T) {
	for name, c := range map[string]struct {
		fault  fault
		change func(*config.Why)
	}{
		"server_delay":    {fault{server: 40 * time.Millisecond}, func(y *config.Why) { y.ServerDelay = 60 * time.Millisecond }},
		"unusual":         {fault{server: 40 * time.Millisecond}, func(y *config.Why) { y.Unusual = 50 }},
		"share":           {fault{server: 40 * time.Millisecond}, func(y *config.Why) { y.Share = "99.9%" }},
		"samples":         {fault{server: 40 * time.Millisecond}, func(y *config.Why) { y.Samples = 1_000_000 }},
		"path_delay":      {fault{link: 20 * time.Millisecond}, func(y *config.Why) { y.PathDelay = 80 * time.Millisecond }},
		"path_loss":       {fault{loss: 0.01}, func(y *config.Why) { y.PathLoss = "5%" }},
		"link_use":        {fault{fill: 11_500_000}, func(y *config.Why) { y.LinkUse = "100%" }},
		"unanswered":      {fault{dead: true}, func(y *config.Why) { y.Unanswered = "100%"; y.Compare = time.Minute }},
		"retransmissions": {fault{again: 0.05}, func(y *config.Why) { y.Retransmissions = "20%" }},
		"gate_drops":      {fault{drops: 1000}, func(y *config.Why) { y.GateDrops = 1_000_000 }},
		"agent_losses":    {fault{agent: 500}, func(y *config.Why) { y.AgentLosses = 1_000_000 }},
	} {
		w := newWorld(3)
		w.speeds["router/east"] = 100e6
		w.run(30, fault{})
		w.run(2, c.fault)
		if a := w.examine(t); len(a.Verdicts) == 0 {
			t.Errorf("%s: no verdict at the default", name)
		}
		if a := w.examine(t, c.change); name != "unanswered" && len(a.Verdicts) != 0 {
			t.Errorf("%s: %+v", name, a.Verdicts)
		}
	}
}
