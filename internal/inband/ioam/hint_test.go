package ioam

import (
	"log/slog"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// TestReceiveTimeOfCard: the time at which the network card received a packet is in traces, and the transit delay begins
// with it; unless it cannot be.
func TestReceiveTimeOfCard(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
	h := l.Host("porthos")
	r := New(Config{Time: wire.POSIX, Transit: TransitXDP, NICTime: true})
	s := r.Stage(func(string) bool { return true })
	s.Programs = []*datapath.Program{datapath.Ingress, datapath.Egress, ioamtest.Stamped}
	var age *ebpf.Map
	open := s.Open
	s.Open = func(c *datapath.Core) (err error) {
		if age, err = c.Map(".data.hint"); err != nil {
			return err
		}
		return open(c)
	}
	d := datapath.New(datapath.Config{MaxEntries: 64, Stages: []*datapath.Stage{s}}, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(d.Close)
	n := node()
	n.Interfaces[0].Name, n.Interfaces[1].Name = "to-athos", "to-aramis"
	if err := r.Apply(n); err != nil {
		t.Fatal(err)
	}
	for _, i := range n.Interfaces {
		iface := flow.NewIface(0, uint32(linkOf(t, h, i.Name).Index))
		if _, err := d.Attach(datapath.Target{Iface: iface, Name: i.Name, Do: h.Do}); err != nil {
			t.Fatalf("%+v", err)
		}
	}
	c := ioamtest.NewCourier(t, l.Host("alpha"), l.Host("beta"))
	stamp := func(before time.Duration) {
		t.Helper()
		if err := age.Put(uint32(0), uint64(before.Nanoseconds())); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		stamped, used time.Duration // before the program ran
	}{
		{0, 0},
		{6 * time.Millisecond, 6 * time.Millisecond},
		{time.Minute, 0},
		{-time.Minute, 0},
		{8 * time.Millisecond, 8 * time.Millisecond},
	} {
		for range 2 { // the second time with data that are prepared
			await.True(t, "two packets within a tenth of a second", func() bool {
				learnt := time.Now()
				stamp(1) // how far the clocks are apart
				journey(t, c)
				stamp(x.stamped)
				sent := time.Now()
				delay, received := journey(t, c)
				took := time.Since(sent)
				if time.Since(learnt) > 90*time.Millisecond {
					return false
				}
				// The clock may be adjusted meanwhile.
				if early := sent.Sub(received); delay < x.used || delay > x.used+took || early > x.used+time.Millisecond || early < x.used-took-time.Millisecond {
					t.Errorf("stamped %v before: transit delay %v, received %v before it was sent; the packet took %v", x.stamped, delay, early, took)
				}
				return true
			})
		}
	}
}

// journey sends a trace through the node, and returns what the node wrote.
func journey(t *testing.T, c *ioamtest.Courier) (time.Duration, time.Time) {
	t.Helper()
	const fields = wire.HopLimitNodeID | wire.TimestampSeconds | wire.TimestampFraction | wire.TransitDelay
	tr, err := wire.NewTrace(spaceA, fields, fields.NodeSize(0))
	if err != nil {
		t.Fatal(err)
	}
	header, err := wire.AppendHeader(nil, 0, tr)
	if err != nil {
		t.Fatal(err)
	}
	option := c.Carry(t, header)[4:]
	body, err := wire.DecodeOption(option[:2+int(option[1])])
	if err != nil {
		t.Fatal(err)
	}
	hops, err := body.(*wire.Trace).Hops()
	if err != nil || len(hops) != 1 {
		t.Fatalf("%d hops, %v", len(hops), err)
	}
	delay, ok := hops[0].Delay()
	received, known := hops[0].Time(wire.POSIX, time.Now())
	if !ok || !known {
		t.Fatalf("%+v", hops[0])
	}
	return delay, received
}
