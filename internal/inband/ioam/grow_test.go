package ioam

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/packet"
	wire "github.com/waymark-net/waymark/wire/ioam"
	"github.com/waymark-net/waymark/wire/ipv6"
)

// growing is the node of the tests, at which incremental traces grow.
func growing() Node {
	n := node()
	n.Namespaces[0].Incremental, n.Namespaces[1].Incremental = true, true
	return n
}

// mtu is that of the interfaces of the tests.
const mtu = 1500

// through is a packet behind the node, with the ids of both interfaces.
func (h *host) through(t testing.TB, frame []byte) (out []byte, verdict int32) {
	t.Helper()
	var ctx [48]uint32
	ctx[ctxIngress], ctx[ctxIfindex] = uint32(h.veth.From), uint32(h.veth.From)
	return h.run(t, h.program(t, "test_through"), ctx, frame)
}

// narrow sets the MTU of the interface where packets leave.
func (h *host) narrow(t testing.TB) {
	t.Helper()
	h.inside(t, func() {
		l, err := netlink.LinkByIndex(h.veth.From)
		if err == nil {
			err = netlink.LinkSetMTU(l, mtu)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// tracesOf are the options of IOAM in the Hop-by-Hop header of a packet.
func tracesOf(t testing.TB, pkt []byte) (list []wire.Option) {
	t.Helper()
	found, err := wire.Find(pkt)
	if err != nil {
		t.Fatalf("% x: %v", pkt, err)
	}
	for _, o := range found {
		if o.Header == ipv6.HopByHop {
			list = append(list, o)
		}
	}
	return list
}

// fixed reports whether headers behind the first keep a packet from growing.
func fixed(pkt []byte) bool {
	c, err := ipv6.Walk(pkt)
	if err != nil || c.Authenticated || c.Fragment {
		return true
	}
	for _, h := range c.Headers() {
		if h.Proto == ipv6.Fragment { // an atomic one, too
			return true
		}
	}
	return false
}

// grown is the packet as package wire/ioam passes it on. Times, which only the programs know, are those of out.
func (h *host) grown(t *testing.T, ref *wire.Node, pkt, out []byte) (want []byte, drops bool) {
	t.Helper()
	t.Helper()
	want = bytes.Clone(pkt)
	wrote := tracesOf(t, out)
	for i, o := range tracesOf(t, pkt) {
		if ns, has := o.Namespace(); has && ns != spaceA && ns != spaceB {
			continue // it does not grow here
		}
		at := o.At + len(want) - len(pkt)
		blank := wire.NewPassage(pkt[7])
		option, v := ref.Update(o.Raw, o.Offset, blank)
		if v.Drops() {
			return nil, true
		}
		if v == wire.Filled && i < len(wrote) {
			option, _ = ref.Update(o.Raw, o.Offset, passage(t, wrote[i].Raw, ref.Format, true, pkt[7]))
		}
		if len(option) == len(o.Raw) {
			copy(want[at:], option)
			continue
		}
		next, err := ipv6.Replace(want, at, option[2:])
		if err != nil || len(next) > len(want) && (len(next) > mtu || fixed(pkt)) {
			want[at+6] |= 4 // Overflow
			continue
		}
		want = next
	}
	return want, false
}

// Incremental traces grow as package wire/ioam has them grow, at three nodes one after the other, wherever they are among
// other headers and options; where they end, the packet is as it was.
func TestGrow(t *testing.T) {
	h, ref := newHost(t, Config{Time: wire.POSIX, Transit: TransitTC}, growing()), reference(wire.POSIX)
	last := removingAll()
	last.Namespaces[0].Incremental = true // at the end of the one, and not of the other
	end := newHost(t, Config{Time: wire.POSIX, Transit: TransitTC}, last)
	sizes := map[int]int{}
	h.narrow(t)
	t.Run("as wire/ioam", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 1000 {
			pkt := anyPacket().Example(i)
			if random.IntN(6) == 0 {
				pkt = append(pkt, make([]byte, max(0, mtu-len(pkt)-random.IntN(400)))...)
				binary.BigEndian.PutUint16(pkt[4:], uint16(len(pkt)-40))
			}
			with := withGrowing(t, random, pkt)
			for n := range 3 {
				frame := framedPacket(with)
				var out []byte
				verdict := int32(0)
				h.inside(t, func() { out, verdict = h.through(t, frame) })
				want, _ := h.grown(t, ref, with, out[prefix:])
				if verdict != verdictPass || !bytes.Equal(out[:prefix], frame[:prefix]) || !bytes.Equal(out[prefix:], want) {
					t.Fatalf("packet %d, node %d: verdict %d\n    in % x\nbecame % x\n  want % x", i, n, verdict, with, out[prefix:], want)
				}
				sizes[len(want)-len(with)]++
				with = want
			}
			checkEnd(t, end, pkt, with)
		}
	})
	if len(sizes) < 8 || sizes[0] == 0 {
		t.Errorf("packets by the bytes they grew: %v", sizes)
	}
	if why := h.reasons(t); why["grow_mtu"] == 0 || why["full"] == 0 || why["overflowed"] == 0 || why["namespace_unknown"] == 0 || why["grow_off"] == 0 || why["broken"] > 0 {
		t.Errorf("%v", why)
	}
	if s, err := h.node.Stats(); err != nil || s.Written == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := end.node.Stats(); err != nil || s.Removed == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	t.Run("fixed", func(t *testing.T) { h.inside(t, func() { h.growsNothingFixed(t) }) })
	t.Run("malformed", func(t *testing.T) { h.inside(t, func() { h.growsNothingMalformed(t, ref) }) })
	t.Run("tshark", func(t *testing.T) { h.inside(t, func() { h.growsForTshark(t) }) })
}

// withGrowing inserts up to three incremental traces.
func withGrowing(t *testing.T, random *rand.Rand, pkt []byte) []byte {
	t.Helper()
	for range 1 + random.IntN(3) {
		typ := wire.TraceType(random.Uint32N(1 << 24))
		if random.IntN(2) == 0 {
			typ &= 0xD40002
		}
		tr, err := wire.NewIncrementalTrace([]uint16{spaceA, spaceB, 0, unknown}[random.IntN(6)%4], typ, 4*random.IntN(62))
		if err != nil {
			t.Fatal(err)
		}
		if next, err := wire.Insert(pkt, tr); err == nil {
			pkt = next
		}
	}
	return pkt
}

// checkEnd removes traces: the packet is as it was before they were inserted.
func checkEnd(t *testing.T, end *host, pkt, with []byte) {
	t.Helper()
	for _, o := range tracesOf(t, with) {
		if ns, _ := o.Namespace(); ns == unknown || ns == 0 || fixed(pkt) {
			return
		}
	}
	var out []byte
	verdict := int32(0)
	end.inside(t, func() { out, verdict = end.tc(t, "test_in", framedPacket(with)) })
	if verdict != verdictPass || !bytes.Equal(out[prefix:], pkt) {
		t.Fatalf("removal: verdict %d\n    in % x\nbecame % x\n  want % x", verdict, with, out[prefix:], pkt)
	}
}

// growsNothingFixed sends packets that cannot grow: they get Overflow, and nothing else changes.
func (h *host) growsNothingFixed(t *testing.T) {
	tr, err := wire.NewIncrementalTrace(spaceA, 0xD40000, 60)
	if err != nil {
		t.Fatal(err)
	}
	option, err := wire.AppendOption(nil, tr)
	if err != nil {
		t.Fatal(err)
	}
	with := func(b packet.Builder) packet.Builder {
		return b.HopByHop(packet.Option{Type: 1}, packet.Option{Type: option[0], Data: option[2:]})
	}
	base := packet.Eth().IPv6(hostA, hostB)
	before := h.reasons(t)["not_grown"]
	frames := map[string][]byte{
		"fragment": with(base).Fragment(0, true, 1).UDP(1, 2).Payload(20).Bytes(),
		"AH":       with(base).AH(1, 1, 12).UDP(1, 2).Payload(20).Bytes(),
		"jumbo":    with(base.Set(4, 0, 0)).UDP(1, 2).Payload(20).Bytes(),
	}
	for name, frame := range frames {
		want := bytes.Clone(frame)
		want[bytes.Index(frame, option)+6] |= 4
		if out, verdict := h.through(t, frame); verdict != verdictPass || !bytes.Equal(out, want) {
			t.Errorf("%s: verdict %d\n    in %x\nbecame %x", name, verdict, frame, out)
		}
	}
	if got := h.reasons(t)["not_grown"] - before; got != uint64(len(frames)) {
		t.Errorf("not_grown: %d, want %d", got, len(frames))
	}
	h.growsNoBurst(t, with(base).TCP(1, 2).Payload(2000).Bytes(), option)
}

// growsNoBurst sends a burst that the kernel would not cut behind a longer header: it gets Overflow. That of a test run is of
// no type; TestGrowOnRoute has those whose segments grow.
func (h *host) growsNoBurst(t *testing.T, frame, option []byte) {
	t.Helper()
	before := h.reasons(t)["grow_burst"]
	want := bytes.Clone(frame)
	want[bytes.Index(frame, option)+6] |= 4
	var ctx [48]uint32
	ctx[ctxIngress], ctx[ctxIfindex], ctx[ctxSegments], ctx[ctxSegment] = uint32(h.veth.From), uint32(h.veth.From), 2, 1000
	if out, verdict := h.run(t, h.program(t, "test_through"), ctx, frame); verdict != verdictPass || !bytes.Equal(out, want) {
		t.Errorf("burst: verdict %d\n    in %x\nbecame %x", verdict, frame, out)
	}
	if got := h.reasons(t)["grow_burst"] - before; got != 2 {
		t.Errorf("grow_burst: %d, want both segments", got)
	}
}

// growsNothingMalformed runs options of any bytes: the verdict is that of package wire/ioam, and nothing else changes.
func (h *host) growsNothingMalformed(t *testing.T, ref *wire.Node) {
	random := rand.New(rand.NewPCG(3, 4))
	grew := 0
	for range 6000 {
		header := make([]byte, 96)
		header[0], header[1] = packet.ProtoUDP, 96/8-1
		at := 4 * (1 + random.IntN(4))
		if random.IntN(10) == 0 {
			at++
		}
		pad(header[2:at])
		option := header[at:]
		size := 6 + random.IntN(74)
		for i := range size {
			option[i] = byte(random.Uint32())
		}
		option[0], option[1], option[2], option[3] = 0x31, byte(size-2), 0, 1
		binary.BigEndian.PutUint16(option[4:], []uint16{spaceA, spaceB}[random.IntN(2)])
		if size >= 12 {
			typ := wire.TraceType(random.Uint32()) & (wire.TraceType(random.Uint32()) >> 8) & 0xFFFFFF
			if random.IntN(8) > 0 {
				option[6] = byte(typ.NodeLen())<<3 | option[6]&3
			}
			option[8], option[9], option[10] = byte(typ>>16), byte(typ>>8), byte(typ)
		}
		pad(option[size:])
		frame := framed(header)
		out, verdict := h.through(t, frame)
		want, drops := h.grown(t, ref, frame[prefix:], out[prefix:])
		if drops {
			if verdict != verdictDrop {
				t.Fatalf("verdict %d: % x", verdict, frame)
			}
			continue
		}
		if len(want) < len(frame)-prefix {
			continue // more padding than is needed, which stays
		}
		if verdict != verdictPass || !bytes.Equal(out[prefix:], want) {
			t.Fatalf("verdict %d\n    in % x\nbecame % x\n  want % x", verdict, frame[prefix:], out[prefix:], want)
		}
		if len(out) > len(frame) {
			grew++
		}
	}
	if grew < 100 {
		t.Errorf("%d packets grew", grew)
	}
}

// growsForTshark shows that tshark reads what two nodes have added as package wire/ioam does, and finds nothing wrong.
func (h *host) growsForTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skipf("needs tshark: %v", err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	// As in insertionsInTshark: a file with Ethernet frames, in big-endian order.
	file := append(binary.BigEndian.AppendUint32(nil, 0xa1b2c3d4), 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1)
	var want []string
	for range 200 {
		const all = wire.HopLimitNodeID | wire.InterfaceIDs | wire.TimestampSeconds | wire.TimestampFraction | wire.TransitDelay
		typ := all | wire.TraceType(random.Uint32())&(wire.NamespaceData|wire.QueueDepth|wire.ChecksumComplement|wire.NamespaceDataWide|wire.BufferOccupancy)
		tr, err := wire.NewIncrementalTrace(spaceA, typ, 2*typ.NodeSize(0)) // with free space, tshark takes data for it
		if err != nil {
			t.Fatal(err)
		}
		frame := carrying(t, tr)
		for range 2 {
			frame, _ = h.through(t, frame)
		}
		body, err := tracesOf(t, frame[prefix:])[0].Decode()
		if err != nil {
			t.Fatal(err)
		}
		hops, err := body.(*wire.Trace).Hops()
		if err != nil || len(hops) != 2 {
			t.Fatalf("%d hops, %v", len(hops), err)
		}
		file = binary.BigEndian.AppendUint32(append(file, make([]byte, 8)...), uint32(len(frame)))
		file = append(binary.BigEndian.AppendUint32(file, uint32(len(frame))), frame...)
		line := fmt.Sprintf("\t%d\t0x%06x\t0", tr.Namespace, uint32(typ))
		field := func(value func(h *wire.Hop) string) { line += "\t" + value(&hops[1]) + "," + value(&hops[0]) } // the newest first
		field(func(h *wire.Hop) string { return fmt.Sprintf("0x%06x", h.NodeID) })
		field(func(h *wire.Hop) string { return fmt.Sprint(h.HopLimit) })
		field(func(h *wire.Hop) string { return fmt.Sprintf("0x%04x", h.Ingress) })
		field(func(h *wire.Hop) string { return fmt.Sprintf("0x%04x", h.Egress) })
		field(func(h *wire.Hop) string { return fmt.Sprintf("0x%08x", h.Seconds) })
		field(func(h *wire.Hop) string { return fmt.Sprintf("0x%08x", h.Fraction) })
		field(func(h *wire.Hop) string { return fmt.Sprintf("0x%08x", h.TransitDelay) })
		if typ.Has(wire.QueueDepth) {
			field(func(h *wire.Hop) string { return fmt.Sprintf("0x%08x", h.QueueDepth) })
		} else {
			line += "\t"
		}
		want = append(want, line)
	}
	name := filepath.Join(t.TempDir(), "grown.pcap")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", name, "-T", "fields", "-e", "_ws.expert.message"}
	for _, field := range []string{"ns", "type", "remlen", "node.id", "node.hlim", "node.iif", "node.eif", "node.tss", "node.tsf", "node.trdelay", "node.qdepth"} {
		args = append(args, "-e", "ipv6.opt.ioam.trace."+field)
	}
	out, err := exec.Command(tshark, args...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	for i, got := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		if i >= len(want) || got != want[i] {
			t.Fatalf("packet %d\ntshark %q\n  want %q", i, got, want[min(i, len(want)-1)])
		}
	}
}

// Traces of namespaces that do not grow here pass as they are, whatever is in them.
func TestGrowOff(t *testing.T) {
	h := newHost(t, Config{Transit: TransitTC}, node())
	tr, err := wire.NewIncrementalTrace(spaceA, 0xD40000, 60)
	if err != nil {
		t.Fatal(err)
	}
	wrong := *tr
	wrong.NodeLen = 9
	h.inside(t, func() {
		for _, body := range []*wire.Trace{tr, &wrong} {
			frame := carrying(t, body)
			if out, verdict := h.through(t, frame); verdict != verdictPass || !bytes.Equal(out, frame) {
				t.Errorf("verdict %d\n    in % x\nbecame % x", verdict, frame, out)
			}
		}
	})
	if why := h.reasons(t); why["grow_off"] != 2 {
		t.Errorf("%v", why)
	}
}

// What a node takes for a packet whose trace grows, and for one whose trace has the space.
func BenchmarkGrow(b *testing.B) {
	h := newHost(b, Config{Time: wire.POSIX, Transit: TransitTC}, growing())
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	incremental, err := wire.NewIncrementalTrace(spaceA, 0xF80000, 60)
	if err != nil {
		b.Fatal(err)
	}
	for name, tr := range map[string]*wire.Trace{"incremental": incremental, "pre-allocated": space(b, spaceA, 0xF80000, 3)} {
		frame, p := carrying(b, tr), h.program(b, "test_through")
		b.Run(name, func(b *testing.B) {
			before, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			h.inside(b, func() {
				for b.Loop() {
					h.through(b, frame)
				}
			})
			after, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(after.RunCount-before.RunCount), "ns/packet")
		})
	}
}
