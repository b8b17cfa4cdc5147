package pdm

import (
	"errors"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// Flows that meet in one entry are distinguished, and a place goes to another flow once its state was counted.
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
			if f.near {
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
	drain := func(mono int64) Stats {
		t.Helper()
		if err := h.pdm.reader.drain(h.epoch(t), datapath.Moment{Mono: mono}, func(*flow.Delta) {}); err != nil {
			t.Fatal(err)
		}
		stats, err := h.pdm.Stats()
		if err != nil {
			t.Fatal(err)
		}
		near, far := count()
		if left := uint64(near + far); stats.States != left || stats.Created != stats.Expired+left || stats.Evicted != 0 {
			t.Errorf("%d states are left after %d s: %+v", left, mono/1e9, stats)
		}
		return stats
	}
	first := send(ports)
	near, far := count()
	if near < flows*3/4 || far < flows/100 || near+far != flows {
		t.Errorf("%d flows have places, and %d none, of %d", near, far, flows)
	}
	for i, psn := range send(ports) {
		if psn != first[i]+1 {
			t.Fatalf("packet of flow %d has number %d after %d", i, psn, first[i])
		}
	}
	// What is stale keeps its place until it is counted.
	h.set(t, 20e9)
	send(ports + flows)
	if n, f := count(); n+f != 2*flows {
		t.Errorf("%d states before the drain, want %d", n+f, 2*flows)
	}
	if stats := drain(25e9); stats.Expired != flows {
		t.Errorf("%d flows ended, want %d", stats.Expired, flows)
	}
	send(ports + 2*flows)
	n, f := count()
	if n < near+flows*3/4 || n+f != 2*flows {
		t.Errorf("%d flows have places that others had, and %d none", n-near, f-far)
	}
	checkPlaces(t, h.pdm)
	if stats := drain(60e9); stats.States != 0 {
		t.Errorf("%d states are left", stats.States)
	}
	if n := checkPlaces(t, h.pdm); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

// checkPlaces reports whether index and places agree, and whether each place is either taken, or free once. It returns how
// many are taken.
func checkPlaces(t *testing.T, m *Marker) (taken int) {
	t.Helper()
	var (
		near   datapath.Mapped[abiPdmNear]
		words  datapath.Mapped[uint64]
		shared abiPdmShared
	)
	if err := errors.Join(near.Open(m.maps["pdm_near"]), words.Open(m.maps["pdm_words"]),
		m.maps[".data.pdm"].Lookup(uint32(0), &shared)); err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer words.Close()
	behind := words.Values[abiPdmWordWORD_INDEX:]
	index, freed, numbers := behind[:entriesOf(uint32(len(near.Values)))], behind[entriesOf(uint32(len(near.Values)))], behind[entriesOf(uint32(len(near.Values)))+1:]
	free := map[uint64]bool{}
	for i := shared.Reused; i < freed; i++ {
		n := numbers[i%uint64(len(numbers))]
		if free[n] || n >= shared.Fresh {
			t.Fatalf("place %d is free twice, or was never taken", n)
		}
		free[n] = true
	}
	named := 0
	for i, entry := range index {
		if entry == 0 {
			continue
		}
		named++
		if place := &near.Values[entry&(1<<abiPdmNearsNEAR_NUMBER_BITS-1)]; place.Owner <= nearFree || place.Entry != uint64(i) {
			t.Fatalf("entry %d names a place of %d, whose entry is %d", i, place.Owner, place.Entry)
		}
	}
	for i := range near.Values {
		switch owner := near.Values[i].Owner; {
		case owner == nearFree && uint64(i) < shared.Fresh && !free[uint64(i)]:
			t.Fatalf("place %d is lost", i)
		case owner != nearFree && (free[uint64(i)] || uint64(i) >= shared.Fresh):
			t.Fatalf("place %d is free and has owner %d", i, owner)
		case owner != nearFree:
			taken++
		}
	}
	if named != taken {
		t.Fatalf("%d entries name places, of which %d are taken", named, taken)
	}
	return taken
}
