package datapath

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// load returns a probe that is closed with the test.
func load(t testing.TB, cfg Config) *Datapath {
	t.Helper()
	d := New(cfg, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(d.Close)
	return d
}

// loaded is the copy of a program that serves the agent's own namespace.
func loaded(t testing.TB, d *Datapath, p *Program, noLink ...bool) *ebpf.Program {
	t.Helper()
	out, err := d.load(p, d.allFeatures(p, variant{noLink: len(noLink) > 0 && noLink[0]}))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return out
}

// skb is the part of struct __sk_buff that a test run takes.
type skb struct {
	_        [7]uint32
	_        uint32 // priority
	_, _     uint32 // ingress_ifindex, ifindex
	_        [28]uint32
	_        [2]uint32 // tstamp
	WireLen  uint32
	GSOSegs  uint32
	_        [2]uint32 // sk
	GSOSize  uint32
	TSType   uint8
	_        [3]byte
	HWTstamp uint64
}

// run sends a frame through a program and checks that it comes out as it went in.
func run(t testing.TB, p *ebpf.Program, f packet.Frame) {
	t.Helper()
	out := make([]byte, len(f.Data)+256)
	ctx := skb{GSOSegs: uint32(f.GSO.Segments), GSOSize: uint32(f.GSO.Size)}
	opts := ebpf.RunOptions{Data: f.Data, DataOut: out, Context: &ctx}
	verdict, err := p.Run(&opts)
	if err != nil {
		t.Fatalf("running %d bytes: %v", len(f.Data), err)
	}
	if int32(verdict) != -1 {
		t.Errorf("verdict %d, want TC_ACT_UNSPEC: the probe must never decide on a packet", int32(verdict))
	}
	if !bytes.Equal(opts.DataOut, f.Data) {
		t.Errorf("the frame changed:\n%s", cmp.Diff(f.Data, opts.DataOut))
	}
}

// counted drains everything the probe has, merged by key, without what a
// packet.Case doesn't tell: times, round trips and the interface.
func counted(t testing.TB, d *Datapath) []flow.Delta {
	t.Helper()
	var all []flow.Delta
	c, err := d.ticks.read()
	if err != nil {
		t.Fatal(err)
	}
	// No program runs any more: the epoch need not be turned.
	defer func() {
		for i := range d.table.parts {
			d.table.parts[i].sets = d.table.batches[i].Sets
		}
	}()
	d.table.drain(*d.table.epoch, &c, func(delta *flow.Delta) {
		x := *delta
		if isFiller(delta) {
			return
		}
		if x.First == 0 || x.First > x.Last {
			t.Errorf("times of %+v: first %d, last %d", x.Key, x.First, x.Last)
		}
		x.First, x.FirstSpread, x.Last, x.RTT, x.Iface = 0, 0, 0, flow.RTT{}, 0
		all = append(all, x)
	})
	return merged(all)
}

// merged are deltas, one for each key: packets may have waited, or been counted
// on more than one processor.
func merged(in []flow.Delta) (out []flow.Delta) {
	at := map[flow.Key]int{}
	for _, x := range in {
		if i, ok := at[x.Key]; ok {
			out[i].Add(&x.Counts)
			continue
		}
		at[x.Key] = len(out)
		out = append(out, x)
	}
	return out
}

// reasonsOf are packets that are in no flow, and those that could not be parsed to the end.
func reasonsOf(t testing.TB, d *Datapath) []flow.Uncounted {
	t.Helper()
	uncounted, err := d.Uncounted()
	if err != nil {
		t.Fatal(err)
	}
	incomplete, err := d.Incomplete()
	if err != nil {
		t.Fatal(err)
	}
	return append(uncounted, incomplete...)
}

// since are the counts by reason since the last call.
func (c *reasonCounter) since(t testing.TB, d *Datapath) map[string]packet.Amount {
	t.Helper()
	now := map[string]packet.Amount{}
	for _, u := range reasonsOf(t, d) {
		a := now[u.Reason]
		now[u.Reason] = packet.Amount{Packets: a.Packets + u.Packets, Bytes: a.Bytes + u.Bytes}
	}
	diff := map[string]packet.Amount{}
	for reason, a := range now {
		if before := c.last[reason]; a != before {
			diff[reason] = packet.Amount{Packets: a.Packets - before.Packets, Bytes: a.Bytes - before.Bytes}
		}
	}
	c.last = now
	return diff
}

// anyOrder compares lists of flows as sets.
var anyOrder = cmpopts.SortSlices(func(a, b flow.Delta) bool {
	return fmt.Sprint(a.Key) < fmt.Sprint(b.Key)
})

// diffFlows compares lists of flows as sets. Package cmp, which says what differs, takes far longer.
func diffFlows(want, got []flow.Delta) (diff string) {
	left := map[flow.Delta]int{}
	for _, x := range want {
		left[x]++
	}
	for _, x := range got {
		left[x]--
	}
	for _, n := range left {
		if n != 0 { // or behind other pointers is the same
			return cmp.Diff(want, got, anyOrder, cmpopts.EquateEmpty())
		}
	}
	return ""
}

type reasonCounter struct{ last map[string]packet.Amount }

// forget deletes every element of a map.
func forget(t testing.TB, m *ebpf.Map) {
	t.Helper()
	for {
		key, err := m.NextKeyBytes(nil)
		if err != nil {
			t.Fatal(err)
		}
		if key == nil {
			return
		}
		if err := m.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCases: every packet of the table, whole and cut at every length, gives
// the flow or the reason that the table tells, and comes out unchanged; whether
// the kernel counts it, or a drain finds it waiting.
func TestCases(t *testing.T) {
	for name, then := range map[string]func(testing.TB, *Datapath){
		"counted": fillBatches, "waiting": func(testing.TB, *Datapath) {},
	} {
		t.Run(name, func(t *testing.T) { testCases(t, then) })
	}
}

func testCases(t *testing.T, then func(testing.TB, *Datapath)) {
	not := notRun{}
	for tunnels, cases := range casesByTunnels() {
		t.Run(fmt.Sprintf("tunnels %x", tunnels), func(t *testing.T) { not.run(t, tunnels, cases, then) })
	}
	not.report(t)
}

func (n notRun) run(t *testing.T, tunnels packet.Tunnels, cases []packet.Case, then func(testing.TB, *Datapath)) {
	d := load(t, Config{MaxEntries: 1024, Tunnels: tunnelsOf(tunnels)})
	var reasons reasonCounter
	try := func(t *testing.T, c packet.Case) (why string) {
		for _, f := range c.Frames {
			why = max(why, datapathtest.Runnable(f))
		}
		if why != "" {
			return why
		}
		forget(t, d.maps["fragments"])
		for _, f := range c.Frames {
			run(t, loaded(t, d, Ingress, f.L3), f)
		}
		then(t, d)
		if diff := diffCase(t, d, c, &reasons); diff != "" {
			t.Error(diff)
		}
		return ""
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			defer datapathtest.OnOneProcessor(t)()
			n.add(try(t, c), c.Name)
			if *scale < 1 { // an emulated machine takes minutes for them
				return
			}
			for _, cut := range packet.Truncations(c) {
				n.add(try(t, cut), "cuts of "+c.Name)
			}
		})
	}
}

// notRun are cases that a hook has no such frames of, by the reason.
type notRun map[string][]string

// add notes a case; no reason: it ran.
func (n notRun) add(why, name string) {
	if why != "" && !slices.Contains(n[why], name) {
		n[why] = append(n[why], name)
	}
}

// report hands the list to the runner of all tests (test/runner), which prints it.
func (n notRun) report(t testing.TB) {
	t.Helper()
	for _, why := range slices.Sorted(maps.Keys(n)) {
		t.Attr("not-run", fmt.Sprintf("%s: %d cases: %s", why, len(n[why]), strings.Join(n[why], ", ")))
	}
}

// casesByTunnels are the packets of the table, by what a probe has to ask for.
func casesByTunnels() map[packet.Tunnels][]packet.Case {
	by := map[packet.Tunnels][]packet.Case{}
	for _, c := range packet.Cases() {
		by[c.Tunnels] = append(by[c.Tunnels], c)
	}
	return by
}

func tunnelsOf(set packet.Tunnels) (out []flow.Tunnel) {
	for tunnel := range flow.Tunnel(8) {
		if set.Has(tunnel) {
			out = append(out, tunnel)
		}
	}
	return out
}

// diffCase compares what a probe has now with what the table tells.
func diffCase(t testing.TB, d *Datapath, c packet.Case, reasons *reasonCounter) (diff string) {
	t.Helper()
	if flows := diffFlows(c.Flows, counted(t, d)); flows != "" {
		diff = fmt.Sprintf("%s: flows (-want +got):\n%s", c.Name, flows)
	}
	// Both may be nil or empty.
	if got := reasons.since(t, d); !maps.Equal(c.Uncounted, got) {
		diff += fmt.Sprintf("%s: reasons: want %v, got %v", c.Name, c.Uncounted, got)
	}
	return diff
}
