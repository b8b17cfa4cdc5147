package pdm

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// Flows that meet in one place are distinguished, and what is stale makes room for others.
func TestPlaces(t *testing.T) {
	const flows, ports = 2000, 20_000
	cfg := *marking()
	cfg.Lifetime = 10 * time.Second
	h := newPDMHost(t, cfg)
	send := func(first int) (psn []uint16) {
		t.Helper()
		for port := first; port < first+flows; port++ {
			frame := packet.Eth().IPv6(hostA, hostB).UDP(uint16(port), portB).Payload(20).Bytes()
			psn = append(psn, option(t, h.send(t, frame)).PSNTP)
		}
		return psn
	}
	count := func() (near, far int) {
		t.Helper()
		err := h.pdm.reader.each(func(f foundState, _ *abiPdmState) {
			if f.place != nil {
				near++
			} else {
				far++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return near, far
	}
	first := send(ports)
	near, far := count()
	if near < flows/2 || far < flows/100 || near+far != flows {
		t.Errorf("%d flows have places, and %d none, of %d", near, far, flows)
	}
	for i, psn := range send(ports) {
		if psn != first[i]+1 {
			t.Fatalf("packet of flow %d has number %d after %d", i, psn, first[i])
		}
	}
	// No drain yet: new flows take the places of those that ended.
	h.set(t, 20e9)
	send(ports + flows)
	stats, err := h.pdm.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if taken := stats.Expired; stats.Created != 2*flows || taken < flows/10 || taken > uint64(near) {
		t.Errorf("of %d flows that ended, %d lost their places: %+v", flows, taken, stats)
	}
	for _, mono := range []int64{25e9, 60e9} {
		if err := h.pdm.reader.drain(h.epoch(t), datapath.Moment{Mono: mono}, func(*flow.Delta) {}); err != nil {
			t.Fatal(err)
		}
		if stats, err = h.pdm.Stats(); err != nil {
			t.Fatal(err)
		}
		near, far = count()
		if left := uint64(near + far); stats.States != left || stats.Created != stats.Expired+left || stats.Evicted != 0 {
			t.Errorf("%d states are left after %d s: %+v", left, mono/1e9, stats)
		}
	}
	if near+far != 0 {
		t.Errorf("%d states are left", near+far)
	}
}
