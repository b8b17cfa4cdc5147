package ioam

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// Every packet is exported or counted, and no more are exported than the limits allow.
func exportsWithinLimits(t *testing.T, h *host, exports <-chan *Exported) {
	defer func() {
		if err := h.node.Apply(exporting(1, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}()
	for _, test := range []struct {
		name        string
		every, rate uint32
		numbered    bool
		sent        int
	}{
		{"all", 1, 1 << 20, true, 200},
		{"one in 100", 100, 1 << 20, false, 10000},
		{"one in 100, numbered", 100, 1 << 20, true, 10000},
		{"five per second", 1, 5, false, 2000},
		{"none per second", 1, 0, false, 100},
	} {
		if err := h.node.Apply(exporting(test.every, test.rate)); err != nil {
			t.Fatal(err)
		}
		exported, others := h.offered(t)
		began := time.Now()
		sent := uint64(0)
		// The test before may have used up what this second allows.
		for i := 0; i < test.sent || test.rate < 1<<20 && time.Since(began) < 1100*time.Millisecond; i++ {
			d := &wire.DEX{Namespace: spaceA, Type: wire.HopLimitNodeID}
			if test.numbered {
				d.Extension, d.FlowID, d.Sequence = wire.DEXFlowID|wire.DEXSequence, 7, uint32(i)
			}
			h.tc(t, "test_in", carrying(t, d))
			sent++
		}
		seconds := uint64(time.Since(began)/time.Second) + 2
		after, now := h.offered(t)
		got, limited := after-exported, uint64(0)
		for name := range now {
			limited += now[name] - others[name]
		}
		if got+limited != sent {
			t.Errorf("%s: %d exported, %d limited, of %d", test.name, got, limited, sent)
		}
		// Each CPU has limits of its own, and may have saved what is left of the test before.
		if most := sent/uint64(test.every) + 64*2; got > most {
			t.Errorf("%s: %d exported, want at most %d", test.name, got, most)
		}
		if most := uint64(test.rate) * seconds * 2; got > most {
			t.Errorf("%s: %d exported, want at most %d", test.name, got, most)
		}
		if least := min(sent/uint64(test.every)*3/4, uint64(test.rate)); got < least {
			t.Errorf("%s: %d exported, want at least %d", test.name, got, least)
		}
		for range got {
			await.Signal(t, "record", exports)
		}
	}
}

// Two nodes export the same packets of those that are numbered, and a smaller share is a part of a larger one.
func exportsSamePackets(t *testing.T, h *host, exports <-chan *Exported) {
	defer func() {
		if err := h.node.Apply(exporting(1, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}()
	defer datapathtest.OnOneProcessor(t)() // whose credit suffices, so that the choice alone decides
	const sent = 3000
	chosen := map[uint32]map[uint32]bool{}
	for _, every := range []uint32{10, 10, 40} {
		if err := h.node.Apply(exporting(every, 1<<20)); err != nil {
			t.Fatal(err)
		}
		for range 64 * 40 * 2 {
			h.tc(t, "test_in", carrying(t, &wire.DEX{Namespace: spaceA, Type: wire.HopLimitNodeID, Extension: wire.DEXSequence, Sequence: unchosen()}))
		}
		before, _ := h.offered(t)
		for i := range uint32(sent) {
			h.tc(t, "test_in", carrying(t, &wire.DEX{Namespace: spaceA, Type: wire.HopLimitNodeID, Extension: wire.DEXFlowID | wire.DEXSequence, FlowID: 42, Sequence: i}))
		}
		after, _ := h.offered(t)
		now := map[uint32]bool{}
		for range after - before {
			now[await.Signal(t, "record", exports).Option.Sequence] = true
		}
		if was := chosen[every]; was != nil {
			for s := range now {
				if !was[s] {
					t.Errorf("1 in %d: packet %d is exported by one node only", every, s)
				}
			}
		}
		if was := chosen[10]; was != nil {
			for s := range now {
				if !was[s] {
					t.Errorf("packet %d is 1 in %d, and not 1 in 10", s, every)
				}
			}
		}
		chosen[every] = now
		if n := len(now); n < sent/int(every)*2/3 || n > sent/int(every)*3/2 {
			t.Errorf("%d of %d packets, 1 in %d", n, sent, every)
		}
	}
}

// unchosen is a sequence number of flow 0 that is not 1 in 10: its hash is large.
func unchosen() uint32 { return 1 }
