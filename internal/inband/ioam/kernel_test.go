package ioam

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/inband/ioam/ioamtest"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/lab"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// kernelNode makes the kernel of a host the node of node(), between two interfaces.
func kernelNode(t testing.TB, h *lab.Host, in, out string) {
	t.Helper()
	set := func(path string, value any) {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6", path), []byte(fmt.Sprint(value)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Do(func() error {
		set("ioam6_id", nodeID)
		set("ioam6_id_wide", uint64(wideID))
		for name, id := range map[string][2]int{in: {fromID, fromWide}, out: {toID, toWide}} {
			set("conf/"+name+"/ioam6_enabled", 1)
			set("conf/"+name+"/ioam6_id", id[0])
			set("conf/"+name+"/ioam6_id_wide", id[1])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"namespace", "add", fmt.Sprint(spaceA), "data", fmt.Sprint(uint32(dataA)), "wide", fmt.Sprintf("%x", uint64(wideA))},
		{"namespace", "add", fmt.Sprint(spaceB), "data", "1", "wide", "2"},
		{"schema", "add", fmt.Sprint(schema.Schema), string(schema.Data)},
		{"namespace", "set", fmt.Sprint(spaceB), "schema", fmt.Sprint(schema.Schema)},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if out, err := h.Run(ctx, append([]string{"ip", "ioam"}, args...)...); err != nil {
			t.Fatalf("ip ioam %v: %v\n%s", args, err, out)
		}
	}
}

// waymarkNode makes the same node of a host, with the programs.
func waymarkNode(t testing.TB, h *lab.Host, cfg Config, in, out string) *Registrar {
	t.Helper()
	n := node()
	n.Interfaces[0].Name, n.Interfaces[1].Name = in, out
	return attachNode(t, h, cfg, n)
}

// attachNode makes a node of a host, with all interfaces that the node lists, and with other stages in the same programs.
func attachNode(t testing.TB, h *lab.Host, cfg Config, n Node, others ...*datapath.Stage) *Registrar {
	t.Helper()
	r := New(cfg)
	stages := append(others, r.Stage(func(string) bool { return true }))
	if cfg.Bound != nil {
		stages = append(stages, hints.NewReader(&hints.Config{}, slog.New(slog.DiscardHandler)).Stage())
	}
	d := datapath.New(datapath.Config{MaxEntries: 64, Stages: stages}, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(d.Close)
	if err := r.Apply(n); err != nil {
		t.Fatal(err)
	}
	for _, i := range n.Interfaces {
		iface := flow.NewIface(0, uint32(linkOf(t, h, i.Name).Index))
		if _, err := d.Attach(datapath.Target{Iface: iface, Name: i.Name, Do: h.Do}); err != nil {
			t.Fatal(err)
		}
		mode, early := d.Modes(iface)[datapath.XDP]
		if early != (cfg.Transit == TransitXDP) {
			t.Errorf("%s: at XDP: %t", i.Name, early)
		}
		if bound := cfg.Bound != nil && kernel.XDPHints.Has(); early && bound != (mode == datapath.ModeXDPBound) {
			t.Errorf("%s: mode %s", i.Name, mode)
		}
	}
	return r
}

// linkOf is an interface of a host.
func linkOf(t testing.TB, h *lab.Host, name string) (a netlink.LinkAttrs) {
	t.Helper()
	if err := h.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			a = *l.Attrs()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return a
}

// comparable clears what the kernel does not fill, and what no two nodes have the same.
func comparable(h wire.Hop) wire.Hop {
	h.Seconds, h.Fraction, h.TransitDelay, h.QueueDepth, h.Complement = 0, 0, 0, 0, 0
	return h
}

// Linux and the programs fill the same trace, one after the other: all fields that both
// have are equal but for the hop limit, which is one less, and tshark has nothing to
// add to package wire/ioam. XDP and tc, all 2¹³ Trace-Types.
func TestTransitAsLinux(t *testing.T) {
	l := datapathtest.NewLab(t, lab.Config{Topology: "chain", MTU: 1500})
	kernelNode(t, l.Host("athos"), "to-alpha", "to-porthos")
	waymarkNode(t, l.Host("porthos"), Config{Time: wire.POSIX, Transit: TransitTC}, "to-athos", "to-aramis")
	// Veth has no receive time, and the kernel's serves.
	bound := func(datapath.Hook) bool { return true }
	waymarkNode(t, l.Host("aramis"), Config{Time: wire.POSIX, Transit: TransitXDP, NICTime: true, Bound: bound}, "to-porthos", "to-beta")
	c := ioamtest.NewCourier(t, l.Host("alpha"), l.Host("beta"))
	for _, typ := range allTypes() {
		ns := uint16(spaceA)
		if typ.Has(wire.OpaqueStateSnapshot) {
			ns = spaceB
		}
		size := typ.NodeSize(len(schema.Data))
		if typ == 0 {
			continue // a trace without fields has no hops
		}
		tr, err := wire.NewTrace(ns, typ, min(3*size, wire.MaxTraceSpace))
		if err != nil {
			t.Fatal(err)
		}
		header, err := wire.AppendHeader(nil, 0, tr)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Carry(t, header)
		option := got[4:]
		body, err := wire.DecodeOption(option[:2+int(option[1])])
		if err != nil {
			t.Fatalf("%v: %v\n% x", typ, err, got)
		}
		hops, err := body.(*wire.Trace).Hops()
		want := min(3, wire.MaxTraceSpace/size)
		if err != nil || len(hops) != want {
			t.Fatalf("%v: %d hops of %d, %v\n% x", typ, len(hops), want, err, got)
		}
		for i := 1; i < want; i++ {
			first := comparable(hops[0])
			if typ.Has(wire.HopLimitNodeID) {
				first.HopLimit -= uint8(i)
			}
			if typ.Has(wire.HopLimitNodeIDWide) {
				first.HopLimitWide -= uint8(i)
			}
			if diff := cmp.Diff(first, comparable(hops[i])); diff != "" {
				t.Fatalf("%v: node %d (-kernel +ours):\n%s", typ, i, diff)
			}
			if delay, ok := hops[i].Delay(); typ.Has(wire.TransitDelay) && (!ok || delay <= 0 || delay > 3*time.Second) {
				t.Fatalf("%v: node %d: transit delay %v", typ, i, delay)
			}
			received, ok := hops[i].Time(wire.POSIX, time.Now())
			before, _ := hops[i-1].Time(wire.POSIX, time.Now())
			if ok && (received.Before(before.Add(-time.Millisecond)) || time.Since(received) > 10*time.Second) {
				t.Fatalf("%v: node %d received at %v, the node before at %v", typ, i, received, before)
			}
		}
	}
}
