package headroom

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/topology"
)

// An interface has headroom for the sum of what its stages need, also where that
// changes, and where agents need different sums.
func TestSumOfNeeds(t *testing.T) {
	h := newHost(t, 1500)
	agent := func() *Keeper {
		return New(Config{File: h.file}, Deps{In: topology.InNetns, Log: slog.New(slog.DiscardHandler)})
	}
	marks := Need{Key: "pdm.reserve", Mode: Interface, Bytes: 16}
	traces := Need{Key: "ioam.reserve", Mode: Interface, Bytes: 40, Packets: true}
	huge := Need{Key: "ioam.reserve", Mode: Interface, Bytes: 300}
	a, b := agent(), agent()
	for _, step := range []struct {
		what          string
		keeper        *Keeper
		needs         []Need
		mtu, segments int
	}{
		{"one stage", a, []Need{marks}, 1484, allSegments},
		{"two", a, []Need{marks, traces}, 1444, 1},
		{"the other one", a, []Need{traces}, 1460, 1},
		{"none", a, nil, 1500, allSegments},
		{"one again", a, []Need{marks}, 1484, allSegments},
		{"another agent with more", b, []Need{marks, traces}, 1444, 1},
		{"the first needs more", a, []Need{marks, traces}, 1444, 1},
		{"the first needs less: the other one decides", a, []Need{marks}, 1444, 1},
		{"the other one leaves", b, nil, 1444, allSegments},
		{"the first asks again", a, []Need{traces}, 1460, 1},
		{"and leaves", a, nil, 1500, allSegments},
	} {
		for range 2 { // the second time there is nothing left to do
			if err := step.keeper.Reserve(h.link, step.needs...); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			step.keeper.Keep()
		}
		h.expect(t, step.mtu, step.segments)
		if t.Failed() {
			t.Fatal(step.what)
		}
	}
	err := a.Reserve(h.link, marks, huge)
	if !errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), "takes 1596") || !strings.Contains(err.Error(), "set pdm.reserve or ioam.reserve: none") {
		t.Errorf("with too much: %v", err)
	}
	h.expect(t, 1500, allSegments)
	// At a reload the MTU is reduced already; the message has the values of the interface.
	if err := a.Reserve(h.link, traces); err != nil {
		t.Fatal(err)
	}
	err = a.Reserve(h.link, marks, huge)
	if !errors.Is(err, ErrTooSmall) || !strings.Contains(err.Error(), "is 1500, and MTU headroom takes 1596") {
		t.Errorf("with too much at a reload: %v", err)
	}
	for _, k := range []*Keeper{a, b} {
		if err := k.Restore(); err != nil {
			t.Error(err)
		}
	}
	h.hasFile(t, false)
}
