package ioam

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// fromPort sets the source port, which makes another flow.
func fromPort(t testing.TB, port uint16, trace *wire.Trace) []byte {
	t.Helper()
	frame := carrying(t, trace)
	binary.BigEndian.PutUint16(frame[prefix+40+int(frame[prefix+40+1]+1)*8:], port)
	return frame
}

// New paths are reported at once and only once, raw traces on request and no more than
// asked for; flows are on the path of their packets, and a flow that moves is reported.
func TestPathsFollow(t *testing.T) {
	h := newHost(t, Config{Time: wire.POSIX, Transit: TransitTC}, decapsulating())
	h.inside(t, func() { h.followsPaths(t) })
	h.inside(t, func() { h.reportsFlows(t) })
}

// reports drains, and returns what options reported of flows, by their source port.
func (h *host) reports(t *testing.T) map[uint16]*flow.Delta {
	t.Helper()
	out := map[uint16]*flow.Delta{}
	if err := h.Drain(func(d *flow.Delta) {
		if d.IOAM == nil {
			return
		}
		if d.IOAM.Delay.Count > 0 && d.IOAM.Delay.Sum/d.IOAM.Delay.Count > d.IOAM.Delay.Max || d.Packets != 0 || out[d.SrcPort] != nil {
			t.Errorf("%+v: %+v", d, d.IOAM)
		}
		own := *d
		own.IOAM = d.IOAM.Clone()
		out[d.SrcPort] = &own
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// reportsFlows checks the object of flow records: the path, its changes and delays from traces,
// loss from edge-to-edge numbers. Its key is that of the flow's counts.
func (h *host) reportsFlows(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond)
	via := func(node uint32, took time.Duration) *wire.Trace {
		return traced(pathFields, false, 0, at(wire.POSIX, 1, 65535, 12, now, 0), at(wire.POSIX, node, 21, 22, now.Add(took), 10_000))
	}
	send := func(frame []byte) {
		t.Helper()
		if _, v := h.tc(t, "test_in", frame); v != verdictPass {
			t.Fatalf("verdict %d", v)
		}
	}
	h.reports(t)
	for i := range 5 {
		send(fromPort(t, 4000, via(20, time.Duration(i+1)*time.Millisecond)))
	}
	counted := map[flow.Key]uint64{}
	var d *flow.Delta
	if err := h.Drain(func(one *flow.Delta) {
		if one.IOAM != nil && one.SrcPort == 4000 {
			own := *one
			own.IOAM = one.IOAM.Clone()
			d = &own
		} else {
			counted[one.Key] += one.Packets
		}
	}); err != nil {
		t.Fatal(err)
	}
	if d == nil {
		t.Fatal("nothing was reported of the flow")
	}
	want := flow.IOAM{
		IOAMPath: flow.IOAMPath{ID: d.IOAM.ID, Namespace: spaceA, Hops: 2, Nodes: "1-20"}, Packets: 5,
		Delay: flow.Delays{Count: 5, Sum: 15e6, Min: 1e6, Max: 5e6},
	}
	if diff := cmp.Diff(want, *d.IOAM); diff != "" || d.IOAM.ID == 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if counted[d.Key] != 5 {
		t.Errorf("%+v has %d packets in the flow cache", d.Key, counted[d.Key])
	}
	send(fromPort(t, 4000, via(21, time.Millisecond)))
	if i := h.reports(t)[4000].IOAM; i.Changes != 1 || i.Nodes != "1-21" || i.ID == d.IOAM.ID || i.Packets != 1 {
		t.Errorf("after a change of path: %+v", i)
	}
	send(fromPort(t, 5000, via(22, -5*time.Second)))
	if i := h.reports(t)[5000].IOAM; !i.Relative || i.Delay.Count != 0 || i.Nodes != "1-22" {
		t.Errorf("clocks that do not agree: %+v", i)
	}
	// 10 does not come, 5 comes late, 7 twice; the second flow shows the loss of 21 and 22.
	number := func(port uint16, n uint64) []byte {
		frame := ending(t, nil, uint16(n), &wire.E2E{Namespace: spaceA, Type: wire.E2ESequence64, Sequence64: n + 1<<40})
		headers := int(frame[prefix+40+1]+1) * 8
		binary.BigEndian.PutUint16(frame[prefix+40+headers:], port)
		return frame
	}
	for _, n := range []uint64{1, 2, 3, 4, 6, 5, 7, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20} {
		send(number(6000, n))
	}
	send(number(7000, 23))
	got := h.reports(t)
	want = flow.IOAM{Received: 20, Lost: 1, Reordered: 1, Duplicates: 1}
	if diff := cmp.Diff(want, *got[6000].IOAM); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	want = flow.IOAM{Received: 1, Lost: 2}
	if diff := cmp.Diff(want, *got[7000].IOAM); diff != "" {
		t.Errorf("numbers of a second flow (-want +got):\n%s", diff)
	}
}

func (h *host) followsPaths(t *testing.T) {
	now := time.Now()
	via := func(node uint32) *wire.Trace {
		return traced(pathFields, false, 0, at(wire.POSIX, 1, 65535, 12, now, 0), at(wire.POSIX, node, 21, 22, now.Add(time.Millisecond), 10_000))
	}
	send := func(port uint16, node uint32, packets int) {
		t.Helper()
		for range packets {
			if _, v := h.tc(t, "test_in", fromPort(t, port, via(node))); v != verdictPass {
				t.Fatalf("verdict %d", v)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports, traces, changes := make(chan *Report, 64), make(chan *Report, 64), make(chan *Change, 64)
	ended := make(chan error, 2)
	go func() {
		ended <- h.node.StreamPaths(ctx, func(r *Report) { reports <- r }, func(c *Change) { changes <- c })
	}()
	const perSecond = 3
	go func() { ended <- h.node.StreamTraces(ctx, perSecond, func(r *Report) { traces <- r }) }()
	await.True(t, "both streams", func() bool {
		h.node.paths.mu.Lock()
		defer h.node.paths.mu.Unlock()
		raw := uint32(0)
		_ = h.node.do(func() error { raw = h.node.control.Raw; return nil })
		return h.node.paths.onPath != nil && raw == perSecond
	})
	send(1000, 2, 20)
	r := await.Signal(t, "report of a new path", reports)
	if !r.New || len(r.Hops) != 2 || r.Hops[1].NodeID != 2 || r.Source.String() != hostA || time.Since(r.Time).Abs() > time.Minute {
		t.Errorf("report %+v", r)
	}
	trace := await.Signal(t, "raw trace", traces)
	if trace.New || trace.Path != r.Path || len(trace.Hops) != 2 {
		t.Errorf("trace %+v", trace)
	}
	h.drain(t)
	send(1000, 2, 1)
	send(2000, 9, 5)
	await.Signal(t, "report of a second path", reports)
	h.drain(t)
	if len(changes) != 0 {
		t.Errorf("change %+v", <-changes)
	}
	on := func() (text []string) {
		ids := map[PathID]uint32{}
		for _, p := range h.node.Paths() {
			ids[p.ID] = p.Hops[1].NodeID
		}
		for _, f := range h.node.Flows() {
			text = append(text, fmt.Sprintf("%d:%d via %d after %v", f.Src.Port(), f.Packets, ids[f.Path], f.Mean().Round(time.Millisecond)))
		}
		slices.Sort(text)
		return text
	}
	if got := fmt.Sprint(on()); got != "[1000:21 via 2 after 1ms 2000:5 via 9 after 1ms]" {
		t.Error(got)
	}
	send(1000, 9, 3)
	h.drain(t)
	c := await.Signal(t, "change", changes)
	if c.From != r.Path || c.To == r.Path || c.Flows != 1 || c.Source.String() != hostA || c.Namespace != spaceA {
		t.Errorf("change %+v", c)
	}
	if got := fmt.Sprint(on()); got != "[1000:3 via 9 after 1ms 2000:5 via 9 after 1ms]" {
		t.Error(got)
	}
	// Other flows than before, of the same hosts.
	send(3000, 4, 3)
	h.drain(t)
	if c := await.Signal(t, "change of other flows", changes); c.Flows != 0 {
		t.Errorf("change %+v", c)
	}
	s, err := h.node.PathStats()
	if err != nil || s.Paths != 3 || s.Traces != 32 || s.Changes != 2 || s.ReportsLost != 0 || s.RawLost == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if n := len(reports); n != 1 { // of the third path
		t.Errorf("%d more reports", n)
	}
	cancel()
	for range 2 {
		if err := await.Signal(t, "end of a stream", ended); err != nil {
			t.Error(err)
		}
	}
}

// Reports that do not fit the ring are counted, and come when there is space; more paths
// than are kept are counted by reason, and none is mixed up with another.
func TestPathsFull(t *testing.T) {
	const most = 32
	h := newHost(t, Config{Time: wire.POSIX, Transit: TransitTC, Paths: most}, decapsulating())
	h.inside(t, func() {
		now := time.Now()
		for id := range uint32(2 * most) {
			h.tc(t, "test_in", carrying(t, traced(pathFields, false, 0, at(wire.POSIX, id, 1, 2, now, 0))))
		}
		h.drain(t)
		list := h.node.Paths()
		if len(list) == 0 || len(list) > most {
			t.Errorf("%d paths", len(list))
		}
		for _, p := range list {
			if p.Packets != 1 || p.Hops[0].NodeID >= most {
				t.Errorf("path of node %d: %d packets", p.Hops[0].NodeID, p.Packets)
			}
		}
		h.counted(t, "paths_full", most)
		// The oldest ones have left when others come.
		for round := range 3 {
			for _, path := range h.node.paths.known {
				path.Last = path.Last.Add(-2 * time.Hour)
			}
			h.drain(t)
			h.tc(t, "test_in", carrying(t, traced(pathFields, false, 0, at(wire.POSIX, 100+uint32(round), 1, 2, now, 0))))
			h.drain(t)
		}
		if list := h.node.Paths(); len(list) != 1 || list[0].Hops[0].NodeID != 102 || list[0].Packets != 1 {
			t.Errorf("paths %+v", list)
		}
	})
}

// counted checks how many packets were counted with a reason.
func (h *host) counted(t *testing.T, reason string, want uint64) {
	t.Helper()
	counts, err := h.node.Counts()
	if err != nil {
		t.Fatal(err)
	}
	got := uint64(0)
	for _, c := range counts {
		if c.Reason == reason {
			got += c.Packets
		}
	}
	if got != want {
		t.Errorf("%d packets %s, want %d", got, reason, want)
	}
}

// Traces of other forms: incremental, with snapshots of several lengths, with as many hops
// as there may be and more, and such as end within a node's data.
func TestPathsForms(t *testing.T) {
	h := newHost(t, Config{Time: wire.POSIX, Transit: TransitTC}, decapsulating())
	h.inside(t, func() {
		now := time.Now()
		short := wire.HopLimitNodeID
		hops := func(n int) (list []wire.Hop) {
			for i := range n {
				list = append(list, at(wire.POSIX, uint32(i+1), 1, 2, now, 0))
			}
			return list
		}
		send := func(trace *wire.Trace) { h.tc(t, "test_in", carrying(t, trace)) }
		send(traced(pathFields, true, 0, hops(4)...))
		snapshots := hops(3)
		for i := range snapshots {
			snapshots[i].Snapshot = wire.Snapshot{Schema: 5, Data: make([]byte, 8*i)}
		}
		send(traced(pathFields|wire.OpaqueStateSnapshot, false, 0, snapshots...))
		send(traced(short, false, 0, hops(maxHops)...))
		h.drain(t)
		nodes := func(p Path) (text string) {
			for _, hop := range p.Hops {
				text += fmt.Sprint(hop.NodeID, " ")
			}
			return text
		}
		var got []string
		for _, p := range h.node.Paths() {
			got = append(got, nodes(p))
		}
		slices.Sort(got)
		if want := []string{"1 2 3 ", "1 2 3 4 ", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 "}; !slices.Equal(got, want) {
			t.Errorf("paths %q, want %q", got, want)
		}
		send(traced(short, false, 0, hops(maxHops+1)...))
		h.counted(t, "path_long", 1)
		cut := traced(pathFields, false, 0, hops(2)...)
		cut.Data = cut.Data[:len(cut.Data)-8]
		send(cut)
		h.counted(t, "path_malformed", 1)
		h.drain(t)
		if n := len(h.node.Paths()); n != 3 {
			t.Errorf("%d paths", n)
		}
	})
}

// Clocks that do not agree are noticed. Times between them are relative, and their changes
// as exact as others.
func TestPathsClocks(t *testing.T) {
	h := newHost(t, Config{Time: wire.PTP, Transit: TransitTC}, decapsulating())
	h.inside(t, func() {
		for _, skew := range []time.Duration{-5 * time.Second, 800 * time.Millisecond, 40 * time.Minute} {
			id := uint32(skew / (100 * time.Millisecond) & 0xffff)
			for round := range 4 {
				for i := range 100 {
					now := time.Now().Truncate(time.Microsecond)
					link := 300 * time.Microsecond
					if i%5 == 0 {
						link = 500 * time.Microsecond
					}
					h.tc(t, "test_in", carrying(t, traced(pathFields, false, 0, at(wire.PTP, id, 1, 2, now, 7000),
						at(wire.PTP, id+1, 1, 2, now.Add(7*time.Microsecond+link+skew), 9000), at(wire.PTP, id+2, 1, 2, now.Add(time.Millisecond+skew), 9000))))
				}
				if round < 2 { // the base is chosen after the first
					h.node.paths.turned = time.Time{}
				}
				h.drain(t)
			}
			list := h.node.Paths()
			p := list[slices.IndexFunc(list, func(p Path) bool { return p.Hops[0].NodeID == id })]
			link := &p.Hops[0].Link
			if !p.Hops[0].Relative || p.Hops[1].Relative || !p.Relative() {
				t.Errorf("skew %v: relative %t %t %t", skew, p.Hops[0].Relative, p.Hops[1].Relative, p.Relative())
			}
			if p50, p90 := link.Recent.Quantile(0.5)-skew, link.Recent.Quantile(0.9)-skew; (p50-300*time.Microsecond).Abs() > 30*time.Microsecond || (p90-500*time.Microsecond).Abs() > 50*time.Microsecond {
				t.Errorf("skew %v: median %v, 90 of 100 %v; base %v", skew, p50, p90, time.Duration(link.Recent.Base)-skew)
			}
			if mean := link.All.Mean() - skew; mean != 340*time.Microsecond || link.All.Min != int64(skew+300*time.Microsecond) {
				t.Errorf("skew %v: mean %v", skew, mean)
			}
		}
	})
}

// A reader that is too slow: what does not fit the ring is counted, and a path whose report was lost
// is reported in the next interval.
func TestReportsLost(t *testing.T) {
	h := newHost(t, Config{Time: wire.POSIX, Transit: TransitTC}, decapsulating())
	h.inside(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended, paths := make(chan error, 1), make(chan *Report, 8)
		go func() { ended <- h.node.StreamTraces(ctx, 1<<20, func(*Report) {}) }()
		p := h.node.paths
		await.True(t, "raw traces", func() bool {
			raw := uint32(0)
			_ = h.node.do(func() error { raw = h.node.control.Raw; return nil })
			return raw > 0
		})
		send := func(id uint32) {
			h.tc(t, "test_in", carrying(t, traced(pathFields, false, 0, at(wire.POSIX, id, 1, 2, time.Now(), 0))))
		}
		p.mu.Lock() // the reader waits for it
		const fit = reportRing / int(unsafe.Sizeof(abiIoamReport{}))
		for range fit + 100 {
			send(1)
		}
		send(2)
		p.onPath = func(r *Report) { paths <- r }
		p.mu.Unlock()
		s, err := h.node.PathStats()
		if err != nil || s.RawLost < 100 || s.ReportsLost != 1 || s.Traces != uint64(fit)+101 {
			t.Errorf("%+v, %v", s, err)
		}
		await.Signal(t, "report of the first path", paths)
		h.drain(t)
		if list := h.node.Paths(); len(list) != 1 || list[0].Packets != uint64(fit)+100 {
			t.Errorf("before the second path is reported: %+v", list)
		}
		send(2)
		if r := await.Signal(t, "report that was lost", paths); r.Hops[0].NodeID != 2 {
			t.Errorf("%+v", r)
		}
		h.drain(t)
		if list := h.node.Paths(); len(list) != 2 || list[1].Packets != 2 {
			t.Errorf("paths %+v", list)
		}
		cancel()
		if err := await.Signal(t, "end of the stream", ended); err != nil {
			t.Error(err)
		}
	})
}
