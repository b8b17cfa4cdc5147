package toystage

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// A stage with a program at XDP is attached where it has work, counts in epochs
// like all others, and leaves with the interface; a copy that is bound to the
// device too.
func TestToyAtXDP(t *testing.T) {
	for _, bound := range []bool{false, true} {
		toy := New(60)
		s, mode := toy.Stage(Program), datapath.ModeXDP
		if bound {
			s.Bound, mode = func(datapath.Hook) bool { return true }, datapath.ModeXDPBound
		}
		d := datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{s}}, slog.New(slog.DiscardHandler))
		if err := d.Load(); err != nil {
			t.Fatalf("bound %t: %+v", bound, err)
		}
		defer d.Close()
		v := datapathtest.NewVeth(t)
		target := datapath.Target{Iface: flow.NewIface(0, uint32(v.To)), Name: "to", Do: v.Do}
		loaded := copies(t, d)
		if mode, err := d.Attach(target); err != nil || mode == "" {
			t.Fatalf("bound %t: mode %q, %+v", bound, mode, err)
		}
		if got := d.Modes(target.Iface)[datapath.XDP]; got != mode || !hasXDP(t, v) {
			t.Errorf("bound %t: mode %q at XDP; attached %t", bound, got, hasXDP(t, v))
		}
		if more := copies(t, d) - loaded; bound && more != 1 || !bound && more != 0 {
			t.Errorf("bound %t: %d further copies of the program", bound, more)
		}
		short := packet.Eth().ARP("192.0.2.1", "192.0.2.2").Bytes()
		long := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Payload(100).Bytes()
		const frames = 5
		for round := range 3 { // each in another epoch
			for range frames {
				v.Send(t, short)
				v.Send(t, long)
			}
			want := uint64(frames * (round + 1))
			await.True(t, "short frames to be counted", func() bool {
				if err := d.Drain(func(*flow.Delta) {}); err != nil {
					t.Fatal(err)
				}
				return toy.status(name).Frames["to"] >= want
			})
			if got := toy.status(name).Frames["to"]; got != want {
				t.Fatalf("bound %t: %d short frames, want %d", bound, got, want)
			}
		}
		if err := d.Detach(target.Iface); err != nil {
			t.Fatal(err)
		}
		if hasXDP(t, v) || copies(t, d) != loaded {
			t.Errorf("bound %t: after it was detached there is a program at XDP: %t; %d copies", bound, hasXDP(t, v), copies(t, d)-loaded)
		}
		// Where it has no work, nothing is attached for it.
		target.Name = "lo"
		if _, err := d.Attach(target); err != nil {
			t.Fatal(err)
		}
		modes := d.Modes(target.Iface)
		if _, there := modes[datapath.XDP]; there || len(modes) != 2 || hasXDP(t, v) {
			t.Errorf("bound %t: hooks where the stage has no work: %v", bound, modes)
		}
	}
}

func name(flow.Iface) (name, netns string) { return "to", "" }

// copies are the loaded ones of the program.
func copies(t *testing.T, d *datapath.Datapath) (n int) {
	t.Helper()
	all, err := d.Programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.Name == Program.Name {
			n++
		}
	}
	return n
}

// hasXDP asks the kernel.
func hasXDP(t *testing.T, v *datapathtest.Veth) (attached bool) {
	t.Helper()
	err := v.Do(func() error {
		l, err := netlink.LinkByIndex(v.To)
		if err == nil {
			x := l.Attrs().Xdp
			attached = x != nil && x.Attached
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return attached
}

// The section goes into the status and its text.
func TestToyReports(t *testing.T) {
	toy := New(60)
	toy.sums[flow.NewIface(0, 2)] = 7
	s := obs.Status{Sections: []obs.Section{{Name: "toy", Value: toy.status(name)}}}
	var text strings.Builder
	if err := Kind().Text(&text, &s); err != nil || text.String() != "\nTOY  map[to:7]\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
	var cfg config.Config
	if Kind().On(&cfg) {
		t.Error("on by default")
	}
	if section.Edit(&cfg).Longest = 60; !Kind().On(&cfg) {
		t.Error("off with a key")
	}
	if err := toy.forget(flow.NewIface(0, 2)); err != nil || len(toy.status(name).Frames) != 0 {
		t.Errorf("forgotten: %v, %v", toy.status(name), err)
	}
}
