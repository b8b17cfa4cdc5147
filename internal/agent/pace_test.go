package agent

import (
	"testing"
	"time"
)

// Onlookers that come and go faster than the table is drained don't put it off.
func TestOnlookersDoNotPutDrainsOff(t *testing.T) {
	host := newLab(t).Hosts()[0]
	cfg, _ := agentConfig(t, "ebpf", host)
	cfg.Flow.ScanInterval = 500 * time.Millisecond
	a := start(t, cfg)
	before := a.Status().Drain.Count
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(20 * time.Millisecond) {
		a.pace.request(time.Minute)()
	}
	if drains := a.Status().Drain.Count - before; drains < 3 || drains > 8 {
		t.Errorf("%d drains in 3 s, want about 6", drains)
	}
}
