package e2e

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/await"
)

// TestResidentMemory: an idle agent is small, a small profile smaller, and flows take
// what docs/explanation/sizing.md reports. What the agent maps of the kernel's flow table
// and ring is part of its resident memory.
func TestResidentMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, config string
		flows        int // that come at once
		idle, busy   int // bytes, at most
	}{
		{name: "standard", flows: 10_000, idle: 30e6, busy: 45e6},
		{name: "million", config: "flow: {max_entries: 1000000, scan_interval: 2s, idle_timeout: 60s}\n", flows: 1_000_000, idle: 40e6, busy: 700e6},
		{name: "small", config: "profile: small\n", flows: 4096, idle: 20e6, busy: 25e6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := oneLink(t)
			a := start(t, setup{host: h, config: tc.config + "interfaces: [near]\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"})
			var idle int
			await.Success(t, func() error { // what only the start took is given back
				if idle = statusMemory(t, a.Process.Pid, "VmRSS"); idle > tc.idle {
					return notYet("%d MB resident without flows, want %d", idle/1e6, tc.idle/1e6)
				}
				return nil
			})
			const soon = 20 * time.Second
			newFlows(t, h, tc.flows, time.Second)
			again := time.Now().Add(soon)
			await.Success(t, func() error {
				s := a.status(t)
				if s.Table.Live+s.Drain.Records >= uint64(tc.flows) {
					return nil
				}
				if time.Now().After(again) { // a busy machine lost some on their way, or could not attribute them in time
					newFlows(t, h, tc.flows, time.Second)
					again = time.Now().Add(soon)
				}
				return notYet("%d flows are known", s.Table.Live+s.Drain.Records)
			})
			busy := statusMemory(t, a.Process.Pid, "VmRSS")
			anonymous, file := statusMemory(t, a.Process.Pid, "RssAnon"), statusMemory(t, a.Process.Pid, "RssFile")
			s := a.status(t)
			t.Logf("%d kB idle, %d kB (%d anonymous, %d of files) with %d flows (%d live, %d in the kernel's table): %d bytes each in all", idle/1e3, busy/1e3, anonymous/1e3, file/1e3, tc.flows, s.Table.Live, s.Table.MemoryBytes, busy/tc.flows)
			if busy > tc.busy {
				t.Errorf("%d MB with %d flows, want at most %d", busy/1e6, tc.flows, tc.busy/1e6)
			}
			a.kill() // not stopped: that would export all of them
		})
	}
}
