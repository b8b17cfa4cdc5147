package hints

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/await"
)

// TestMeasure counts on the end of a pair that has no program, and leaves the other and itself as they were.
func TestMeasure(t *testing.T) {
	needBinding(t)
	v := datapathtest.NewVeth(t)
	r := newReader(t, v.Do, v.To, nil)
	r.attach(t, "hints_unbound", v.From, link.XDPDriverMode)
	var devices []*Device
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		done <- v.Do(func() (err error) {
			if devices, err = ExamineAll(); err != nil {
				return err
			}
			close(ready)
			return Measure(ctx, devices, time.Hour)
		})
	}()
	await.Signal(t, "interfaces", ready)
	const packets = 20
	await.True(t, "a program at XDP", func() bool { return programAt(t, v) != nil })
	counts := countsOf(t, programAt(t, v).ID)
	for range packets {
		v.Send(t, frame)
	}
	await.True(t, "packets to be counted", func() bool {
		rates, err := ReadCounts(counts, 0)
		return err == nil && rates[Hash].Present >= packets && rates[VLAN].Absent >= packets
	})
	cancel()
	if err := await.Signal(t, "the end", done); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		switch d.Name {
		case "from":
			if d.NotMeasured == "" || d.Program == nil || d.Program.Name != "hints_unbound" || d.Program.Mode != "native" || d.Hints[Hash].Rate != nil {
				t.Errorf("%+v", d)
			}
		case "to":
			hash, clock := d.Hints[Hash].Rate, d.Hints[Time].Rate
			if d.NotMeasured != "" || hash == nil || hash.Present != packets || hash.Share() != 1 || clock.Present != 0 || clock.Absent != packets {
				t.Errorf("%s: %+v %+v, %s", d.Name, hash, clock, d.NotMeasured)
			}
		}
	}
	if programAt(t, v) != nil {
		t.Error("the program is still there")
	}
}

// TestNotMeasured: the kernel can be asked for an interface that the driver has no hints for.
func TestNotMeasured(t *testing.T) {
	for _, c := range []struct {
		d    Device
		want string
	}{
		{Device{}, ErrNotReported.Error()},
		{Device{Reported: true}, "the driver offers none"},
		{Device{Reported: true, Offered: 2, Program: &Program{}}, "another program is at XDP"},
		{Device{Reported: true, Offered: 2, Program: &Program{Name: "waymark_xdp"}}, "the agent's program is at XDP: hints.use: always has it count all hints"},
		{Device{Reported: true, Offered: 2}, ""},
	} {
		if got := c.d.obstacle(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.d, got, c.want)
		}
	}
	if (Rate{}).Share() != 0 || (Rate{Present: 1, Absent: 3}).Share() != 0.25 {
		t.Error("shares")
	}
}

// countsOf is the map in which a program counts.
func countsOf(t *testing.T, id uint32) *ebpf.Map {
	t.Helper()
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		if m.Type() == ebpf.PerCPUArray {
			t.Cleanup(func() { m.Close() })
			return m
		}
		m.Close()
	}
	t.Fatalf("program %d counts nowhere", id)
	return nil
}

// programAt is what runs at XDP of the receiving end.
func programAt(t *testing.T, v *datapathtest.Veth) (p *Program) {
	t.Helper()
	if err := v.Do(func() error {
		l, err := netlink.LinkByIndex(v.To)
		if err == nil {
			p = programOf(l)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p
}
