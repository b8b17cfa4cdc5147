package datapath

import (
	"fmt"
	"math"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// drained is what one drain of d tells.
func drained(t *testing.T, d *Datapath, flows uint64) *collector {
	t.Helper()
	got := &collector{flows: newAmounts(flows)}
	if err := d.Drain(got.add); err != nil {
		t.Fatal(err)
	}
	if got.wrong != nil {
		t.Error(got.wrong)
	}
	return got
}

// runOn sends n packets of s on one processor, from a goroutine whose thread
// ends with it.
func runOn(t *testing.T, s *sending, cpu int, n uint64) {
	t.Helper()
	done := make(chan error)
	go func() { done <- s.run(cpu, n) }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// What a drain read is free for the next epoch, in both halves.
func TestDrainLeavesAnEmptyHalf(t *testing.T) {
	flows := scaled(20_000)
	d := load(t, Config{MaxEntries: uint32(8 * flows), WholeTable: true})
	s := sendOver(t, d, "bench_ingress", flows, nil)
	for epoch := range uint32(2) {
		runOn(t, s, 0, flows)
		if *d.table.epoch != epoch {
			t.Fatalf("epoch %d, want %d", *d.table.epoch, epoch)
		}
		if got := drained(t, d, flows); got.deltas != flows {
			t.Errorf("epoch %d: %d deltas, want %d", epoch, got.deltas, flows)
		}
		eachSlot(d, func(s *slot) {
			if s.Packets != 0 {
				t.Fatalf("after the drain of epoch %d, a slot has %d packets: %+v", epoch, s.Packets, s)
			}
		})
	}
	if got := drained(t, d, flows); got.deltas != 0 {
		t.Errorf("%d deltas without a packet", got.deltas)
	}
}

// A slot's 32-bit counters never overflow: it is handed over before.
func TestCountersDoNotOverflow(t *testing.T) {
	const segments, size, frames = 65535, 1000, 200_000
	d := load(t, Config{MaxEntries: 1024})
	s := sendOver(t, d, "bench_ingress", 1, nil)
	frame := packet.Eth().IPv4("10.0.0.0", "192.0.2.1").UDP(0, 53).Payload(500).Bytes()
	opts := &ebpf.RunOptions{
		Data: frame, Repeat: frames,
		Context: &skb{GSOSegs: segments, GSOSize: size},
	}
	if _, err := s.program.Run(opts); err != nil {
		t.Fatal(err)
	}
	var senders program.Senders
	if err := s.senders.Get(&senders); err != nil {
		t.Fatal(err)
	}
	var sent uint64
	for _, one := range senders.Cpu {
		sent += one.Packets
	}
	got := drained(t, d, 1)
	if want := sent * segments; got.flows.totalPackets != want || want>>32 == 0 {
		t.Errorf("%d packets in deltas, want %d, more than 32 bits hold", got.flows.totalPackets, want)
	}
	// Each segment repeats the headers; the payload is there once.
	if want := sent * (segments*ipHeaders + 500); got.flows.totalBytes != want {
		t.Errorf("%d bytes in deltas, want %d", got.flows.totalBytes, want)
	}
	if got.evicted == 0 {
		t.Error("no slot was handed over")
	}
}

// Nor do the headers that segments of an inner flow repeat, which are more than
// its own: those of the tunnel are among them.
func TestHeadersOfTunnelsDoNotOverflow(t *testing.T) {
	const segments, size, frames = 65535, 1, 2000
	d := load(t, Config{MaxEntries: 1024, Tunnels: []flow.Tunnel{flow.TunnelVXLAN}})
	s := sendOver(t, d, "bench_ingress", 1, nil)
	frame := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1, 4789).VXLAN(7).
		Eth().VLAN(5).IPv4("10.0.0.1", "192.0.2.1").UDP(1, 53).Payload(20).Bytes()
	opts := &ebpf.RunOptions{Data: frame, Repeat: frames, Context: &skb{GSOSegs: segments, GSOSize: size}}
	if _, err := s.program.Run(opts); err != nil {
		t.Fatal(err)
	}
	var packets, inFrames uint64
	if err := d.Drain(func(d *flow.Delta) {
		if d.Tunnel != flow.TunnelVXLAN {
			t.Errorf("not the inner flow: %+v", d.Key)
		}
		packets += d.Packets
		inFrames += d.FrameBytes
	}); err != nil {
		t.Fatal(err)
	}
	const header = 14 + 40 + 8 + 8 + 14 + 4 + 20 + 8
	if packets != frames*segments || packets*header>>32 == 0 {
		t.Errorf("%d packets, want %d, whose headers are more than 32 bits hold", packets, frames*segments)
	}
	if want := uint64(frames * len(frame)); inFrames != want {
		t.Errorf("%d bytes in frames, want %d", inFrames, want)
	}
}

// Nor does what a frame carries behind its IP packet, which may be far more.
func TestOverheadDoesNotOverflow(t *testing.T) {
	const frames, trailer = 1_600_000, 3000
	d := load(t, Config{MaxEntries: 1024})
	s := sendOver(t, d, "bench_ingress", 1, nil)
	s.frames[0] = append(packet.Eth().IPv4("10.0.0.0", "192.0.2.1").UDP(0, 53).Payload(0).Bytes(), make([]byte, trailer)...)
	runOn(t, s, 0, frames)
	var senders program.Senders
	if err := s.senders.Get(&senders); err != nil {
		t.Fatal(err)
	}
	var wire uint64
	if err := d.Drain(func(d *flow.Delta) { wire += d.WireBytes }); err != nil {
		t.Fatal(err)
	}
	if want := senders.Cpu[0].Packets * (14 + ipHeaders + trailer); wire != want || want>>32 == 0 {
		t.Errorf("%d bytes on the wire, want %d, more than 32 bits hold", wire, want)
	}
}

// A processor that came after the start has no part of the table: its packets
// are counted by reason.
func TestUnknownProcessor(t *testing.T) {
	d := load(t, Config{MaxEntries: 1024})
	if d.cpus < 2 {
		t.Skip("one processor is online: there is none beyond the first")
	}
	const packets, flows = 5000, 16
	all := d.maps["batches"]
	s := sendOver(t, d, "bench_ingress", flows, func(spec *ebpf.CollectionSpec) (err error) {
		spec.Maps["batches"].MaxEntries = 2 // of processor 0
		d.maps["batches"], err = ebpf.NewMap(spec.Maps["batches"])
		return err
	})
	d.maps["batches"].Close()
	d.maps["batches"] = all
	runOn(t, s, 1, packets)
	sent := s.truth()
	if got := drained(t, d, flows); got.deltas != 0 {
		t.Errorf("%d deltas from a processor without a part of the table", got.deltas)
	}
	uncounted, err := d.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	want := flow.Uncounted{
		Iface: 1, Direction: flow.Ingress, Reason: "cpu_unknown",
		Packets: sent.totalPackets, Frames: sent.totalPackets,
		Bytes: sent.totalBytes + 14*sent.totalPackets,
	}
	if len(uncounted) != 1 || uncounted[0] != want {
		t.Errorf("got %+v, want %+v", uncounted, want)
	}
}

// One packet in n is counted, within five standard deviations, and the others
// are reported.
func TestSampling(t *testing.T) {
	for _, n := range []uint32{2, 10, 1000} {
		t.Run(fmt.Sprintf("1 in %d", n), func(t *testing.T) {
			flows := scaled(1000)
			d := load(t, Config{MaxEntries: 65536, Sampling: n, WholeTable: true})
			s := sendOver(t, d, "bench_ingress", flows, nil)
			runOn(t, s, 0, scaled(1_000_000))
			sent := float64(s.truth().totalPackets)
			got := drained(t, d, flows)
			uncounted, err := d.Uncounted()
			if err != nil {
				t.Fatal(err)
			}
			if len(uncounted) != 1 || uncounted[0].Reason != "sampled_out" {
				t.Fatalf("uncounted: %+v, want packets sampled out only", uncounted)
			}
			counted := float64(got.flows.totalPackets)
			if all := counted + float64(uncounted[0].Packets); all != sent {
				t.Errorf("%.0f packets are counted or sampled out, %.0f were sent", all, sent)
			}
			p := 1 / float64(n)
			if sigma := math.Sqrt(sent * p * (1 - p)); math.Abs(counted-sent*p) > 5*sigma {
				t.Errorf("%.0f of %.0f packets counted, want %.0f ± %.0f", counted, sent, sent*p, 5*sigma)
			}
		})
	}
}

// More interfaces than `counts` has capacity for: the rest is reported in all.
func TestCountsFull(t *testing.T) {
	const ifaces, packets = 10_000, 30_000
	d := load(t, Config{MaxEntries: 1024})
	s := sendOver(t, d, "fill_counts", ifaces, nil)
	runOn(t, s, 0, packets)
	sent := s.truth().totalPackets

	uncounted, err := d.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	stats, err := d.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if capacity := int(d.maps["counts"].MaxEntries()); len(uncounted) != capacity {
		t.Errorf("%d reasons are distinguished, want %d", len(uncounted), capacity)
	}
	reported := stats.CountsFull
	for _, u := range uncounted {
		reported += u.Packets
	}
	if stats.CountsFull == 0 || reported != sent {
		t.Errorf("%d packets reported, %d of them without reason; %d sent", reported, stats.CountsFull, sent)
	}
}

// More interfaces than the sums of unattributed packets have capacity for: the rest
// is counted by reason.
func TestUnattributedFull(t *testing.T) {
	const ifaces, packets = 6000, 30_000
	d := load(t, Config{MaxEntries: 1024})
	s := sendOver(t, d, "fill_unattributed", ifaces, nil)
	var sum amounts
	drain := func() {
		t.Helper()
		err := d.Drain(func(d *flow.Delta) {
			if !d.Unattributed || d.Proto != 17 || d.WireBytes != d.Bytes {
				t.Errorf("unexpected delta %+v", *d)
			}
			sum.totalPackets += d.Packets
			sum.totalBytes += d.Bytes
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	runOn(t, s, 0, packets)
	drain()
	runOn(t, s, int(d.cpus-1), packets)
	drain() // tells only what is new

	sent := s.truth().totalPackets
	uncounted, err := d.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	var lost uint64
	for _, u := range uncounted {
		if u.Reason != "unattributed_full" {
			t.Fatalf("unexpected reason in %+v", u)
		}
		lost += u.Packets
		sum.totalBytes += u.Bytes
	}
	if lost == 0 || sum.totalPackets+lost != sent || sum.totalBytes != 100*sent {
		t.Errorf("%d packets in deltas, %d by reason, %d bytes; %d packets sent", sum.totalPackets, lost, sum.totalBytes, sent)
	}
	stats, err := d.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if stats.Unattributed != sent {
		t.Errorf("the probe tells of %d unattributed packets, want %d", stats.Unattributed, sent)
	}
}
