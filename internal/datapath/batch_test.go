package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/datapath/parsetest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// filler is a packet that counts for nothing but to fill batches.
var filler = packet.Frame{Data: packet.Eth().IPv4("198.51.100.1", "198.51.100.2").UDP(9, 9).Payload(0).Bytes()}

func isFiller(d *flow.Delta) bool {
	return !d.IPv6 && d.Src == netip.MustParseAddr("198.51.100.1").As16()
}

// fillBatches has the kernel count what waits; all of it came on this processor.
func fillBatches(t testing.TB, d *Datapath) {
	t.Helper()
	b := &d.table.batches[*d.table.epoch] // of processor 0
	for range b.Packet {
		if b.Waiting > 0 {
			run(t, loaded(t, d, Ingress), filler)
		}
	}
	if b.Waiting > 0 {
		t.Fatalf("%d packets still wait: the fillers went to another processor", b.Waiting)
	}
}

// TestBatchesAgree: packets that are counted by the kernel, together, give the
// same flows as those that a drain finds waiting, each alone.
func TestBatchesAgree(t *testing.T) {
	var frames []packet.Frame
	for _, c := range packet.Cases() {
		for _, f := range c.Frames {
			if !f.L3 && datapathtest.Runnable(f) == "" && !isPriorityTagged(f.Data) {
				frames = append(frames, f)
			}
		}
	}
	together, alone := load(t, Config{MaxEntries: 4096}), load(t, Config{MaxEntries: 4096})
	random := packet.Random()
	var batches int
	rapid.Check(t, func(rt *rapid.T) {
		defer datapathtest.OnOneProcessor(rt)()
		send := func(d *Datapath, f packet.Frame) {
			ctx := skb{GSOSegs: uint32(f.GSO.Segments), GSOSize: uint32(f.GSO.Size)}
			if _, err := loaded(t, d, Ingress).Run(&ebpf.RunOptions{Data: f.Data, Context: &ctx}); err != nil {
				rt.Fatalf("running %d bytes: %v", len(f.Data), err)
			}
		}
		var one []flow.Delta
		for range 40 {
			f := packet.Frame{Data: random.Draw(rt, "random")}
			if datapathtest.Runnable(f) != "" || isPriorityTagged(f.Data) || rapid.Bool().Draw(rt, "from the table") {
				f = rapid.SampledFrom(frames).Draw(rt, "frame")
			}
			for range rapid.IntRange(1, 4).Draw(rt, "times") {
				send(together, f)
				send(alone, f)
				one = append(one, counted(t, alone)...)
			}
		}
		eachSlot(together, func(s *slot) { batches += int(s.Packets) })
		if diff := diffFlows(merged(one), counted(t, together)); diff != "" {
			rt.Fatalf("flows (-alone +together):\n%s", diff)
		}
	})
	if batches < 1000 {
		t.Errorf("%d packets were counted by the kernel", batches)
	}
	t.Logf("%d packets were counted by the kernel", batches)
}

// eachSlot visits all slots of the table, of both epochs.
func eachSlot(d *Datapath, visit func(*slot)) {
	for _, p := range d.table.parts {
		for _, c := range p.chunks {
			for i := range c.slots {
				for w := range c.slots[i].Way {
					visit(&c.slots[i].Way[w])
				}
			}
		}
	}
}

// isPriorityTagged says that a tag has VLAN 0: the kernel's table tells such flows
// from those without a tag, and a record does not, so that it is open which of
// their packets is the first.
func isPriorityTagged(frame []byte) bool {
	for at := 12; at+4 <= len(frame); at += 4 {
		proto := binary.BigEndian.Uint16(frame[at:])
		if proto != packet.TypeVLAN && proto != packet.TypeQinQ {
			return false
		}
		if binary.BigEndian.Uint16(frame[at+2:])&0xfff == 0 {
			return true
		}
	}
	return false
}

// A packet like those before it is counted by the first slot that is looked at,
// and by no slot that was freed.
func TestHits(t *testing.T) {
	v4, v6 := packet.Eth().IPv4("10.0.0.1", "192.0.2.1"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	for name, tc := range map[string]struct {
		frame, other []byte // other: of the same flow, with something to note
	}{
		"IPv4/UDP": {v4.UDP(1, 53).Payload(10).Bytes(), v4.TTL(3).UDP(1, 53).Payload(10).Bytes()},
		"IPv4/TCP": {
			v4.TCP(1, 443).Flags(packet.ACK).Payload(10).Bytes(),
			v4.TCP(1, 443).Flags(packet.ACK | packet.FIN).Payload(10).Bytes(),
		},
		"IPv6/UDP":      {v6.UDP(1, 53).Payload(10).Bytes(), v6.TTL(3).UDP(1, 53).Payload(10).Bytes()},
		"IPv6/SCTP":     {v6.SCTP(1, 53, 7).Data(1, 10).Bytes(), v6.TTL(3).SCTP(1, 53, 7).Data(1, 10).Bytes()},
		"IP protocol 0": {v4.NextHeader(0).Payload(10).Bytes(), v4.TTL(3).NextHeader(0).Payload(10).Bytes()},
	} {
		t.Run(name, func(t *testing.T) {
			defer datapathtest.OnOneProcessor(t)()
			d := load(t, Config{MaxEntries: 4096}) // no other flow has the place
			coll, err := d.Alongside(parsetest.Load, nil)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			defer coll.Close()
			hits := func(frame []byte) bool {
				verdict, err := coll.Programs["test_hit"].Run(&ebpf.RunOptions{Data: frame})
				if err != nil {
					t.Fatal(err)
				}
				return verdict == 1
			}
			if hits(tc.frame) {
				t.Error("a hit before the first packet")
			}
			run(t, loaded(t, d, Ingress), packet.Frame{Data: tc.frame})
			fillBatches(t, d)
			if !hits(tc.frame) {
				t.Error("no hit")
			}
			if hits(tc.other) {
				t.Error("a hit of a packet that tells something new")
			}
			for range 2 {
				if err := d.Drain(func(*flow.Delta) {}); err != nil {
					t.Fatal(err)
				}
				if hits(tc.frame) {
					t.Error("a hit in a table that was drained")
				}
			}
		})
	}
}

// Packets wait until there are 16, and no longer than a drain.
func TestBatchesWait(t *testing.T) {
	d := load(t, Config{MaxEntries: 1024})
	size := len(packetBatch{}.Packet)
	f := packet.Frame{Data: packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1, 53).Payload(10).Bytes()}
	for n := range 3*size + 1 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			defer datapathtest.OnOneProcessor(t)()
			for range n {
				run(t, loaded(t, d, Ingress), f)
			}
			b := &d.table.batches[*d.table.epoch]
			if got, want := int(b.Waiting), n%size; got != want {
				t.Errorf("%d packets wait, want %d", got, want)
			}
			var got uint64
			if err := d.Drain(func(d *flow.Delta) { got += d.Packets }); err != nil {
				t.Fatal(err)
			}
			if got != uint64(n) || b.Waiting != 0 {
				t.Errorf("%d packets are reported, want %d; %d still wait", got, n, b.Waiting)
			}
		})
	}
}
