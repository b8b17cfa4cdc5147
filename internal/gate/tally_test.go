package gate

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// tallied are rules that drop a port each. Sets have some of them; with the first two, they ask for more than ports.
var tallied = []string{"drop udp dst port 53 len 20-1500", "drop udp dst port 54 len 20-1500", "drop tcp dst port 53", "drop ip6 udp dst port 55"}

func talliedFrames(sport uint16) [][]byte {
	v4, v6 := packet.Eth().IPv4("192.0.2.1", "198.51.100.2"), packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	return [][]byte{
		v4.UDP(sport, 53).Payload(32).Bytes(), v4.UDP(sport, 54).Payload(32).Bytes(), v4.TCP(sport, 53).Flags(packet.SYN).Payload(20).Bytes(), v6.UDP(sport, 55).Payload(50).Bytes(),
	}
}

func talliedSet(t require, which []int) *rules.Ruleset {
	var text []string
	for _, i := range which {
		text = append(text, tallied[i])
	}
	rs, _, err := rules.Parse("f", strings.Join(text, "\n"), rules.Options{Now: time.Now()})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return rs
}

// countOf is what packets of a frame are counted as.
func countOf(frame []byte, n uint64) Counts {
	bytes := n * uint64(len(frame)-14)
	return Counts{n, bytes, n, bytes}
}

// TestCountersHavePacketsAlike: whenever counters are read, they have every packet that was dropped, those that were like the one
// before included: between any drains, and while rules go and come back, whose slots others get.
func TestCountersHavePacketsAlike(t *testing.T) {
	b := open(t, small())
	defer datapathtest.OnOneProcessor(t)() // that remembers
	pending, left, unasked := uint64(0), 0, false
	rapid.Check(t, func(r *rapid.T) {
		before, err := b.Counters()
		if err != nil {
			r.Fatal(err)
		}
		var gone Counts // since: rules of the case before went, too
		for _, c := range before.Rules {
			gone = gone.plus(c.Counts)
		}
		counts := map[string]Counts{}
		apply := func(which []int) {
			if err := b.Apply(talliedSet(r, which)); err != nil {
				r.Fatal(err)
			}
			next := map[string]Counts{}
			for _, i := range which {
				next[tallied[i]] = counts[tallied[i]]
				delete(counts, tallied[i])
			}
			for _, c := range counts {
				gone = gone.plus(c)
			}
			counts = next
		}
		if err := b.Apply(&rules.Ruleset{}); err != nil {
			r.Fatal(err)
		}
		apply([]int{0, 1, 2, 3})
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			switch rapid.IntRange(0, 6).Draw(r, "step") {
			case 0:
				b.drain(r)
			case 1:
				all := rapid.Permutation([]int{0, 1, 2, 3}).Draw(r, "rules")
				apply(all[:rapid.IntRange(0, 4).Draw(r, "rules")])
			default:
				i := rapid.IntRange(0, 3).Draw(r, "frame")
				// As many flows as all sets have space for, or fewer.
				frames := talliedFrames(rapid.Uint16Range(1, 100).Draw(r, "source port"))
				for range rapid.IntRange(1, 5).Draw(r, "packets") {
					dropped, _ := b.run(r, hooks[0], frames[i])
					c, has := counts[tallied[i]]
					if dropped != has {
						r.Fatalf("%s: dropped %t", tallied[i], dropped)
					}
					if has {
						counts[tallied[i]] = c.plus(countOf(frames[i], 1))
					}
				}
			}
			pending, unasked = max(pending, b.remembered(r)), unasked || b.unasked()
			left = max(left, len(b.leaving))
			got, err := b.Counters()
			if err != nil {
				r.Fatal(err)
			}
			is := map[string]Counts{}
			for _, c := range got.Rules {
				is[c.Rule.Text] = c.Counts
			}
			if diff := gocmp.Diff(counts, is); diff != "" {
				r.Fatalf("rules (-want +got):\n%s", diff)
			}
			if want := before.Removed.plus(gone); got.Removed != want {
				r.Fatalf("rules that are gone dropped %+v, want %+v", got.Removed, want)
			}
		}
	})
	if pending == 0 || left == 0 || !unasked {
		t.Errorf("%d packets were like others, %d rules went with some, flows say what becomes of others: %t; the test shows nothing", pending, left, unasked)
	}
	b.drain(t)
	b.drain(t)
	if len(b.leaving) > 0 {
		t.Errorf("slots %v of rules that are gone are not free after drains of both epochs", b.leaving)
	}
}

// TestFlowsTakePlacesOfOthers: a flow is dropped by its own rule where the flow that had its place before had another.
func TestFlowsTakePlacesOfOthers(t *testing.T) {
	b := open(t, small())
	defer datapathtest.OnOneProcessor(t)()
	if err := b.Apply(talliedSet(t, []int{0, 1})); err != nil {
		t.Fatal(err)
	}
	const flows, rounds = 64, 3 // as many as there is space for
	unasked := false
	for i := range 2 {
		b.drain(t)
		b.drain(t) // the places are those of before
		for range rounds {
			for sport := range uint16(flows) {
				b.run(t, hooks[0], talliedFrames(sport + 1)[i])
				unasked = unasked || b.unasked()
			}
		}
		c, err := b.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if want := countOf(talliedFrames(1)[i], flows*rounds); c.Rules[i].Counts != want || !unasked {
			t.Errorf("rule %d: %+v, want %+v; flows said what becomes of others: %t", i, c.Rules[i].Counts, want, unasked)
		}
	}
}

// TestCountersNeverGoBack: while both processors drop packets in short runs, so that counters are added to all the time, each reading
// has at least what was dropped before it began, and at most what was sent when it ends.
func TestCountersNeverGoBack(t *testing.T) {
	b := open(t, small())
	all := []int{0, 1, 2, 3}
	if err := b.Apply(talliedSet(t, all)); err != nil {
		t.Fatal(err)
	}
	frames := talliedFrames(7)
	var sent, dropped [4]atomic.Uint64
	var over atomic.Bool
	var senders sync.WaitGroup
	defer func() { over.Store(true); senders.Wait() }()
	p := b.program(t, hooks[0].code)
	for s := range 2 {
		senders.Go(func() {
			for n := s; !over.Load(); n++ {
				i := n % 4
				for range 1 + n%5 { // one by one: a run that a signal interrupts begins again
					sent[i].Add(1)
					verdict, err := p.Run(&ebpf.RunOptions{Data: frames[i]})
					if err != nil || verdict != xdpDrop {
						t.Errorf("verdict %d, %v", verdict, err)
						return
					}
					dropped[i].Add(1)
				}
			}
		})
	}
	var last [4]Counts
	readings := 0
	for begin := time.Now(); time.Since(begin) < 2*time.Second && !t.Failed(); readings++ {
		var least, most [4]uint64
		for i := range least {
			least[i] = dropped[i].Load()
		}
		c, err := b.Counters()
		if err != nil {
			t.Fatal(err)
		}
		for i := range most {
			most[i] = sent[i].Load()
		}
		for i, r := range c.Rules {
			each := uint64(len(frames[i]) - 14)
			if r.Dropped < least[i] || r.Dropped > most[i] || r.Dropped < last[i].Dropped || r.DroppedBytes < last[i].DroppedBytes {
				t.Errorf("reading %d, rule %d: %+v, want %d to %d, and before it was %+v", readings, i, r.Counts, least[i], most[i], last[i])
			}
			if r.DroppedBytes < each*least[i] || r.DroppedBytes > each*most[i] {
				t.Errorf("reading %d, rule %d: %d bytes, want %d to %d", readings, i, r.DroppedBytes, each*least[i], each*most[i])
			}
			last[i] = r.Counts
		}
		if readings%64 == 0 {
			if err := b.dp.Drain(func(*flow.Delta) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	closer := b.readClosely(t)
	over.Store(true)
	senders.Wait()
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range c.Rules {
		if want := countOf(frames[i], sent[i].Load()); r.Counts != want {
			t.Errorf("rule %d: %+v, want %+v", i, r.Counts, want)
		}
	}
	t.Logf("%d readings of all rules and %d of two on a processor, of %d packets", readings, closer, sent[0].Load()+sent[1].Load()+sent[2].Load()+sent[3].Load())
}

// readClosely reads what the rules have that the parts of a processor are about, as often as it can: some of the readings
// are while a program moves packets from there to the counters of a rule.
func (b *bench) readClosely(t *testing.T) (readings int) {
	t.Helper()
	var counts datapath.Mapped[engine.Count]
	if err := counts.OpenToRead(b.maps["gate_counts"]); err != nil {
		t.Fatal(err)
	}
	defer counts.Close()
	each := b.slotCount()
	all := tally{counts.Values, b.dropped.parts.Values, each}
	last := map[[2]uint32]likeOthers{}
	for begin := time.Now(); time.Since(begin) < time.Second && !t.Failed(); {
		for range 1000 {
			for cpu := range b.cpus {
				for _, m := range all.withAlike(int(cpu), counts.Values[cpu*each:][:each]) {
					at := [2]uint32{cpu, m.slot}
					if was := last[at]; m.packets < was.packets || m.bytes < was.bytes {
						t.Fatalf("processor %d: %+v after %+v", cpu, m, was)
					}
					last[at] = m
				}
				readings++
			}
		}
	}
	return readings
}

// TestNextAgentHasPacketsAlike: an agent that ends leaves programs that remember packets; the next one has these in its counters, while
// the programs of the former go on, and when its own are in their place.
func TestNextAgentHasPacketsAlike(t *testing.T) {
	v := datapathtest.NewVeth(t)
	pins := pinFolder(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	frames := talliedFrames(7)
	sent := uint64(0)
	send := func(n int) {
		for range n {
			v.Send(t, frames[0])
		}
		sent += uint64(n)
	}
	has := func(g *guard) func() bool {
		return func() bool {
			c, err := g.Counters()
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(c.Rules, func(r RuleCounts) bool { return r.Rule.Text == tallied[0] })
			return i >= 0 && c.Rules[i].Counts == countOf(frames[0], sent) && c.Removed == (Counts{})
		}
	}
	first := newKeeper(t, v, pins, log)
	first.Inherit(&Amounts{}, nil)
	first.apply(t, tallied[0])
	first.attach(t, v)
	send(10)
	await.True(t, "the first agent's count", has(first))
	pending := uint64(0)
	for i := range first.Gate.dropped.parts.Values {
		pending += first.Gate.dropped.parts.Values[i].Again.Packets
	}
	if pending == 0 {
		t.Fatal("no packet was like another")
	}
	first.dp.Synced()
	if err := first.dp.Drain(func(*flow.Delta) {}); err != nil {
		t.Fatal(err)
	}
	send(10)
	await.True(t, "the first agent's count", has(first))
	first.dp.Leave()
	first.dp.Close()
	send(10)

	second := newKeeper(t, v, pins, log)
	second.Inherit(&Amounts{}, nil)
	second.apply(t, tallied[0])
	await.True(t, "what the first agent's programs dropped", has(second))
	send(10)
	await.True(t, "what they drop", has(second))
	second.attach(t, v)
	send(10)
	await.True(t, "what both have dropped", has(second))
	second.dp.Synced()
	if err := second.dp.Drain(func(*flow.Delta) {}); err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
	send(10)
	await.True(t, "what both have dropped, without what the first one left", has(second))
	second.dp.Leave()
	second.dp.Close()
	(&older{pins: pins}).ends(t, v)
}
