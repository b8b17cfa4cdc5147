package e2e

import (
	"testing"
	"time"
)

// TestResidentMemory: an idle agent is small, a small profile smaller, and flows take
// about what docs/explanation/sizing.md reports: the limits are a quarter above what
// was measured and catch regressions; they are not the targets (25 MB, 700 bytes). What the agent maps of the kernel's flow table
// and ring is part of its resident memory.
func TestResidentMemory(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		flows        int // that come within a scan interval
		idle, busy   int // bytes, at most
		perFlow      int // bytes beyond those of an idle agent, at most
	}{
		{name: "standard", flows: 200_000, idle: 50e6, perFlow: 1150},
		{name: "small", config: "profile: small\n", flows: 4096, idle: 31e6, busy: 43e6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := oneLink(t)
			a := start(t, setup{host: h, config: tc.config + "interfaces: [near]\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"})
			var idle int
			poll(t, func() error { // what only the start took is given back
				if idle = statusMemory(t, a.Process.Pid, "VmRSS"); idle > tc.idle {
					return notYet("%d MB resident without flows, want %d", idle/1e6, tc.idle/1e6)
				}
				return nil
			})
			newFlows(t, h, tc.flows, time.Second)
			poll(t, func() error {
				if s := a.status(t); s.Table.Live+s.Drain.Records < uint64(tc.flows) {
					return notYet("%d flows are known", s.Table.Live+s.Drain.Records)
				}
				return nil
			})
			busy := statusMemory(t, a.Process.Pid, "VmRSS")
			perFlow := (busy - idle) / tc.flows
			t.Logf("%d MB idle, %d MB with %d flows: %d bytes per flow", idle/1e6, busy/1e6, tc.flows, perFlow)
			if tc.perFlow > 0 && perFlow > tc.perFlow {
				t.Errorf("%d bytes per flow, want at most %d", perFlow, tc.perFlow)
			}
			if tc.busy > 0 && busy > tc.busy {
				t.Errorf("%d MB with %d flows, want at most %d", busy/1e6, tc.flows, tc.busy/1e6)
			}
			a.stop(t)
		})
	}
}
