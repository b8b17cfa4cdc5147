package agent

import (
	"testing"
	"time"
)

// Onlookers that come and go faster than the table is drained don't put it off.
func TestOnlookersDoNotPutDrainsOff(t *testing.T) {
	host := newLab(t).Hosts()[0]
	cfg, _ := agentConfig(t, "ebpf", host)
	const interval, want = 200 * time.Millisecond, 5
	cfg.Flow.ScanInterval = interval
	a := start(t, cfg)
	before, began := a.Status().Drain.Count, time.Now()
	var drains uint64
	for drains < want && time.Since(began) < time.Minute {
		time.Sleep(interval / 25)
		a.pace.request(time.Minute)()
		drains = a.Status().Drain.Count - before
	}
	if took := time.Since(began); drains < want || drains > uint64(took/interval)+2 {
		t.Errorf("%d drains in %v, want one every %v", drains, took, interval)
	}
}
