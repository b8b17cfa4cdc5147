package service

import (
	"log/slog"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hints"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/stage/toystage"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

func init() { datapath.ReadOnce() }

var frame = packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1000, 2000).Payload(100).Bytes()

// newReader reads all hints, or only what others need.
func newReader(always bool) *Reader {
	use := "auto"
	if always {
		use = "always"
	}
	return NewReader(&Config{Use: use}, slog.New(slog.DiscardHandler))
}

// asks wants to run at XDP of all interfaces.
func asks() *datapath.Stage {
	return &datapath.Stage{
		Name: "asks", Programs: []*datapath.Program{datapath.Early},
		Uses: func(h datapath.Hook) bool { return h.Type == datapath.XDP },
	}
}

// TestLadder: a program that is bound to its device, the same in the driver, after it, or none: whichever the kernel, the
// driver and the configuration have.
func TestLadder(t *testing.T) {
	reads := datapath.ModeXDP
	if kernel.XDPHints.Has() {
		reads = datapath.ModeXDPBound
	}
	for _, c := range []struct {
		name   string
		ifb    bool // the driver has no XDP
		reads  bool
		mustBe bool // the program is not optional
		want   datapath.Mode
	}{
		{"bound to veth", false, true, false, reads},
		{"nobody needs hints", false, false, false, datapath.ModeXDP},
		{"generic", true, true, true, datapath.ModeXDPGeneric},
		{"tc does it", true, true, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := datapathtest.NewVeth(t)
			r := newReader(c.reads)
			stages := []*datapath.Stage{asks(), r.Stage()}
			if c.mustBe {
				toy := toystage.New(60).Stage(toystage.Program)
				toy.Bound = func(datapath.Hook) bool { return true }
				stages = []*datapath.Stage{toy}
			}
			d := datapath.New(datapath.Config{MaxEntries: 64, Stages: stages}, slog.New(slog.DiscardHandler))
			if err := d.Open(); err != nil {
				t.Fatalf("%+v", err)
			}
			defer d.Close()
			target := datapath.Target{Name: "to", Iface: flow.NewIface(0, uint32(v.To)), Do: v.Do}
			if c.ifb {
				target.Name, target.Iface = "plain", flow.NewIface(0, addIfb(t, v))
			}
			if _, err := d.Attach(target); err != nil {
				t.Fatalf("%+v", err)
			}
			if got := d.Modes(target.Iface)[datapath.XDP]; got != c.want {
				t.Errorf("mode %q, want %q", got, c.want)
			}
			if c.want == datapath.ModeXDPBound {
				counts(t, v, d, r, target)
			}
		})
	}
}

func addIfb(t *testing.T, v *datapathtest.Veth) (index uint32) {
	t.Helper()
	if err := v.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "plain"}}); err != nil {
			return err
		}
		l, err := netlink.LinkByName("plain")
		if err == nil {
			index = uint32(l.Attrs().Index)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return index
}

// counts: each packet is counted by its hints; an interface that is gone leaves its place, at zero, to the next.
func counts(t *testing.T, v *datapathtest.Veth, d *datapath.Datapath, r *Reader, target datapath.Target) {
	t.Helper()
	const packets = 7
	want := map[hints.Kind]hints.Rate{hints.Time: {Absent: packets}, hints.Hash: {Present: packets}, hints.VLAN: {Absent: packets}}
	for range 2 {
		for range packets {
			v.Send(t, frame)
		}
		var got map[hints.Kind]hints.Rate
		await.True(t, "packets to be counted", func() bool {
			got = ratesOf(t, r)
			return got[hints.VLAN].Absent >= packets // that is counted last
		})
		for k, w := range want {
			if got[k] != w {
				t.Errorf("%s: %+v, want %+v", k, got[k], w)
			}
		}
		if err := d.Detach(target.Iface); err != nil {
			t.Fatal(err)
		}
		if err := r.forget(target.Iface); err != nil {
			t.Fatal(err)
		}
		if r.used[0] || len(ratesOf(t, r)) > 0 {
			t.Error("an interface that is gone has its place still")
		}
		if _, err := d.Attach(target); err != nil {
			t.Fatal(err)
		}
	}
}

func ratesOf(t *testing.T, r *Reader) map[hints.Kind]hints.Rate {
	t.Helper()
	s, err := r.status(func(flow.Iface) (string, string) { return "to", "" })
	if err != nil {
		t.Fatal(err)
	}
	out := map[hints.Kind]hints.Rate{}
	for _, i := range s.(*Status).Interfaces {
		for _, h := range i.Hints {
			out[h.Kind] = *h.Rate
		}
	}
	return out
}

// TestFull: the interface after the last place is not bound, and says why.
func TestFull(t *testing.T) {
	if !kernel.XDPHints.Has() {
		t.Skip("programs that are bound to a device: Linux 6.3")
	}
	v := datapathtest.NewVeth(t)
	r := newReader(true)
	for i := range r.used {
		r.used[i] = true
	}
	d := datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{asks(), r.Stage()}}, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	defer d.Close()
	target := datapath.Target{Name: "to", Iface: flow.NewIface(0, uint32(v.To)), Do: v.Do}
	if _, err := d.Attach(target); err != nil {
		t.Fatal(err)
	}
	if got := d.Modes(target.Iface)[datapath.XDP]; got != datapath.ModeXDP {
		t.Errorf("mode %q", got)
	}
}
