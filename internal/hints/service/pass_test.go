package service

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/hints/hintstest"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

const outerTag = 5<<13 | 42

var (
	tagged = packet.Eth().VLAN(7).IPv4("192.0.2.1", "192.0.2.2").UDP(1000, 2000).Payload(100).Bytes()
	icmp   = packet.Eth().IPv4("192.0.2.1", "192.0.2.2").ICMP(8, 0, 1, 1).Payload(100).Bytes()
)

// taker is an interface on which packets carry their hints on.
type taker struct {
	*datapathtest.Veth
	reader *Reader
	gate   *gate.Gate
	dp     *datapath.Datapath
	coll   *ebpf.Collection // programs of the test
	iface  flow.Iface
	mode   datapath.Mode
}

// newTaker attaches the programs to an interface. text are rules; empty: no gate.
func newTaker(t *testing.T, v *datapathtest.Veth, cfg Config, name string, index int, text string, gated gate.Config) *taker {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	k := &taker{Veth: v, reader: NewReader(&cfg, log), iface: flow.NewIface(0, uint32(index))}
	stages := []*datapath.Stage{k.reader.Stage(), k.reader.Passing()}
	if text != "" {
		k.gate = gate.New(gated, log)
		stages = append(stages, k.gate.Stage(func(string) bool { return true }))
	}
	k.dp = datapath.New(datapath.Config{MaxEntries: 64, Stages: stages}, log)
	if err := k.dp.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(k.dp.Close)
	if text != "" {
		rs, _, err := rules.Parse("f", text, rules.Options{Now: time.Now()})
		if err == nil {
			err = k.gate.Apply(rs)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.dp.Attach(datapath.Target{Name: name, Iface: k.iface, Do: v.Do}); err != nil {
		t.Fatalf("%+v", err)
	}
	k.mode = k.dp.Modes(k.iface)[datapath.XDP]
	k.load(t)
	return k
}

// load loads programs at tc.
func (k *taker) load(t *testing.T) {
	t.Helper()
	spec, err := hintstest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Programs {
		if name != "hints_push" && name != "hints_tc_meta" {
			delete(spec.Programs, name)
		}
	}
	if err := spec.Variables["push_tci"].Set(uint16(outerTag)); err != nil {
		t.Fatal(err)
	}
	if k.coll, err = ebpf.NewCollection(spec); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(k.coll.Close)
}

// attachTC attaches one of them; where there is no TCX, tc is left to others.
func (k *taker) attachTC(t *testing.T, program string, index int, where ebpf.AttachType) {
	t.Helper()
	if !kernel.TCX.Has() {
		t.Skip("programs at tc are attached by TCX here: Linux 6.6")
	}
	if err := k.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: k.coll.Programs[program], Interface: index, Attach: where})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// left is what tc found of the next packet.
func (k *taker) left(t *testing.T) (l hintstest.Left) {
	t.Helper()
	await.Success(t, func() error { return k.coll.Maps["hints_lefts"].LookupAndDelete(nil, &l) })
	return l
}

// socket receives what arrives at queue 0, registered as a program of somebody else would do it.
func (k *taker) socket(t *testing.T) (s *hintstest.Socket) {
	t.Helper()
	p := k.status(t)
	if err := k.Do(func() error {
		s = hintstest.NewSocket(t, int(k.iface.IfIndex()), 0)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(p.SocketMap))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Put(p.FirstQueue, uint32(s.FD)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (k *taker) status(t *testing.T) Passed {
	t.Helper()
	s, err := k.reader.status(func(flow.Iface) (string, string) { return "to", "" })
	if err != nil {
		t.Fatal(err)
	}
	all := s.(*Status).Metadata
	if len(all) != 1 {
		t.Fatalf("passed on: %+v", all)
	}
	return all[0]
}

// uncounted are the packets that are in no flow, by reason.
func (k *taker) uncounted(t *testing.T) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	counts, err := k.dp.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		out[c.Reason] += c.Packets
	}
	return out
}

func metaOf(t *testing.T, b []byte) (m hintstest.Meta) {
	t.Helper()
	if _, err := binary.Decode(b, binary.LittleEndian, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func now(t *testing.T) uint64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return uint64(ts.Nano())
}

const metaSize = 32

// TestMetadata: an AF_XDP socket and a program at tc find the same in front of a frame, whichever step of the ladder the
// interface is on; sources say where it comes from, and no time is 0.
func TestMetadata(t *testing.T) {
	bound := kernel.XDPHints.Has()
	for _, use := range []string{"auto", "never"} {
		for _, time := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/time:%t", use, time), func(t *testing.T) {
				v := datapathtest.NewVeth(t)
				k := newTaker(t, v, Config{Use: use, Metadata: []string{"t*"}, MetadataTime: time}, "to", v.To, "drop icmp", gate.Config{Mode: gate.ModeNative, Tables: gate.Default().Tables, Sources: 64})
				want := hintstest.Meta{Version: uint32(abiHintsVersionHINTS_META_1), HashL4: true, Verdict: uint8(abiHintsVerdictHINTS_PASSED)}
				want.Source = [3]uint8{uint8(hintstest.Absent), uint8(hintstest.Computed), uint8(hintstest.Absent)}
				if time {
					want.Source[0] = uint8(hintstest.Computed)
				}
				if k.mode = datapath.ModeXDP; use == "auto" && bound {
					k.mode, want.Source[1] = datapath.ModeXDPBound, uint8(hintstest.Driver)
				}
				if got := k.dp.Modes(k.iface)[datapath.XDP]; got != k.mode {
					t.Fatalf("mode %q, want %q", got, k.mode)
				}
				k.receive(t, want)
			})
		}
	}
}

// receive checks what consumers get. want lacks what differs between packets.
func (k *taker) receive(t *testing.T, want hintstest.Meta) {
	t.Helper()
	tc := kernel.TCX.Has()
	if tc {
		k.attachTC(t, "hints_tc_meta", k.To, ebpf.AttachTCXIngress)
		k.Send(t, frame)
		l := k.left(t)
		k.check(t, l.Meta, want, l.Now)
		if l.Found != 1 || want.Source[1] == uint8(hintstest.Driver) && l.Meta.Hash != l.Hash {
			t.Errorf("at tc: %+v", l)
		}
		want.Hash = l.Meta.Hash
	}
	s := k.socket(t)
	k.Send(t, icmp) // a rule drops it
	k.Send(t, frame)
	meta, got := s.Next(t, metaSize)
	m := metaOf(t, meta)
	k.check(t, m, want, now(t))
	if string(got) != string(frame) || tc && m.Hash != want.Hash {
		t.Errorf("%d bytes with hash %#x, want %#x", len(got), m.Hash, want.Hash)
	}
	k.Send(t, tagged)
	meta, _ = s.Next(t, metaSize)
	if m := metaOf(t, meta); m.Source[2] != uint8(hintstest.Computed) || m.VlanTci != 7 || m.VlanProto != 0x0081 || !m.HashL4 {
		t.Errorf("with a tag: %+v", m)
	}
	if got := k.uncounted(t); got["af_xdp"] != 2 || got["dropped_by_rule"] != 0 { // what rules drop is in flows
		t.Errorf("in no flow: %v", got)
	}
	if p := k.status(t); p.Refused != 0 || p.IfIndex != k.To {
		t.Errorf("%+v", p)
	}
	s.Close()
	if tc { // without a socket, packets go on
		k.Send(t, frame)
		if l := k.left(t); l.Found != 1 {
			t.Errorf("%+v", l)
		}
	}
}

// check compares metadata, and the time in it with the clock.
func (k *taker) check(t *testing.T, got, want hintstest.Meta, at uint64) {
	t.Helper()
	if wanted := want.Source[0] != uint8(hintstest.Absent); wanted != (got.Time != 0) || got.Time > at || wanted && at-got.Time > uint64(await.Patience) {
		t.Errorf("received at %d, read at %d", got.Time, at)
	}
	if got.Hash == 0 {
		t.Error("no hash")
	}
	got.Time, got.Hash = 0, 0
	want.Hash = 0
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestMetadataGeneric: where the driver runs no programs, the kernel does, and what tc finds is computed.
func TestMetadataGeneric(t *testing.T) {
	v := datapathtest.NewVeth(t)
	index := 0
	if err := v.Do(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		index = bridge.Attrs().Index
		port, err := netlink.LinkByName("to")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, bridge); err != nil {
			return err
		}
		if err := netlink.SetPromiscOn(bridge); err != nil { // takes frames that are for others
			return err
		}
		return netlink.LinkSetUp(bridge)
	}); err != nil {
		t.Fatal(err)
	}
	k := newTaker(t, v, Config{Use: "auto", Metadata: []string{"bridge"}, MetadataTime: true}, "bridge", index, "", gate.Config{})
	if k.mode != datapath.ModeXDPGeneric {
		t.Fatalf("mode %q", k.mode)
	}
	socket := k.socket(t)
	k.Send(t, frame)
	meta, _ := socket.Next(t, metaSize)
	computed := uint8(hintstest.Computed)
	k.check(t, metaOf(t, meta), hintstest.Meta{Version: uint32(abiHintsVersionHINTS_META_1), HashL4: true, Source: [3]uint8{computed, computed, uint8(hintstest.Absent)}}, now(t))
}

// TestFlowsDoNotDependOnHints: what is counted of dropped packets at XDP, where flows are looked up by a hash, is in the same
// flows whether the driver's hints are read or computed.
func TestFlowsDoNotDependOnHints(t *testing.T) {
	if !kernel.XDPHints.Has() {
		t.Skip("programs that are bound to a device: Linux 6.3")
	}
	sent := [][]byte{frame, frame, tagged, icmp}
	flows := func(use string, want datapath.Mode) map[flow.Key]uint64 {
		v := datapathtest.NewVeth(t)
		k := newTaker(t, v, Config{Use: use, Metadata: []string{"to"}}, "to", v.To, "drop", gate.Config{Mode: gate.ModeNative, Tables: gate.Default().Tables, Sources: 64})
		if k.mode != want {
			t.Fatalf("%s: mode %q, want %q", use, k.mode, want)
		}
		for _, f := range sent {
			k.Send(t, f)
		}
		got, packets := map[flow.Key]uint64{}, uint64(0)
		await.True(t, "all packets in flows", func() bool {
			if err := k.dp.Drain(func(d *flow.Delta) {
				if d.Direction == flow.Ingress {
					d.Iface = 0 // another each time
					got[d.Key] += d.Packets
					packets += d.Packets
				}
			}); err != nil {
				t.Fatal(err)
			}
			return packets >= uint64(len(sent))
		})
		return got
	}
	read, computed := flows("always", datapath.ModeXDPBound), flows("never", datapath.ModeXDP)
	if !maps.Equal(read, computed) || len(read) != 3 {
		t.Errorf("with hints %v, without %v", read, computed)
	}
}

// TestRulesOfTags: a VLAN tag that is not in the frame is known to rules at XDP by a hint of the driver, to rules at tc by the kernel.
func TestRulesOfTags(t *testing.T) {
	for _, c := range []struct {
		mode  gate.Mode
		reads bool
		want  uint64
	}{
		{gate.ModeNative, true, 1},
		{gate.ModeNative, false, 0}, // nobody reports it: gate.mode tc is for such drivers
		{gate.ModeTC, false, 1},
	} {
		if c.reads && !kernel.XDPHints.Has() {
			continue
		}
		v := datapathtest.NewVeth(t)
		cfg := gate.Default()
		cfg.Mode, cfg.Sources = c.mode, 64
		if c.reads {
			cfg.Bound = OffersVLAN
		}
		k := newTaker(t, v, Config{}, "to", v.To, "drop vlan 42\ncount vlan 7\ncount", cfg)
		k.attachTC(t, "hints_push", v.From, ebpf.AttachTCXEgress)
		k.Send(t, frame)
		k.Send(t, icmp)
		k.Send(t, tagged) // the outer tag counts
		await.True(t, "packets to be counted", func() bool {
			got, err := k.gate.Counters()
			if err != nil {
				t.Fatal(err)
			}
			return got.Rules[0].Packets+got.Rules[2].Packets == 3
		})
		got, err := k.gate.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if got.Rules[0].Dropped != 3*c.want || got.Rules[1].Packets != 1-c.want {
			t.Errorf("%s, reading hints %t: %+v", c.mode, c.reads, got.Rules)
		}
	}
}
