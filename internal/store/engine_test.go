package store

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
	"github.com/waymark-net/waymark/internal/query"
)

// part is a source with some of the intervals of a store.
type part struct {
	*Store
	first, last int
}

func (p part) Open() query.Engine {
	v := p.view()
	v.intervals = v.intervals[p.first:p.last]
	return &partEngine{v, p.Store.view().intervals}
}

// partEngine knows the interval before its first one, as an engine does that has dropped it.
type partEngine struct {
	view
	all []*interval
}

func (e *partEngine) Run(ctx context.Context, p *query.Plan, before uint64) (query.Groups, error) {
	var kept []*interval
	var last *interval
	for _, iv := range e.all {
		switch {
		case !p.Within(iv.from, iv.to) && len(kept) == 0:
			last = iv
		case p.Within(iv.from, iv.to) && iv.sequence < before && slices.Contains(e.intervals, iv):
			kept = append(kept, iv)
		case len(kept) == 0:
			last = iv
		}
	}
	return run(p, last, kept, &scratch{}), nil
}

// TestEnginesMerge: however intervals are divided between engines, and even where these overlap,
// the answer is that of one engine with all of them.
func TestEnginesMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(Default())
		n := rapid.IntRange(1, 6).Draw(t, "intervals")
		for i := range n {
			fill(s, i, i+1, drawSightings(t)...)
		}
		split := rapid.IntRange(0, n).Draw(t, "split")
		overlap := rapid.IntRange(0, n-split).Draw(t, "overlap")
		x := query.Executor{Sources: []query.Source{part{s, split, n}, part{s, 0, split + overlap}}}
		p := drawPlan(t, n)
		got, err := x.Answer(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(ask(t, s, p), got, sameAnswer); diff != "" {
			t.Fatalf("by %v, sort %s (-one +two):\n%s", p.By.Keys, p.Sort, diff)
		}
	})
}

// sameAnswer compares what a user sees.
var sameAnswer = gocmp.Options{
	cmpopts.IgnoreUnexported(query.Row{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmpopts.IgnoreFields(query.Answer{}, "Short"), gocmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
}

// drawSightings are records of few flows at few places.
func drawSightings(t *rapid.T) []flow.Record {
	records := make([]flow.Record, rapid.IntRange(0, 12).Draw(t, "records"))
	for i := range records {
		where := rapid.SampledFrom([]string{"eth0 in", "eth1 out", "eth1 in", "blue/eth2 out", "lo in"}).Draw(t, "where")
		r := seen(where, rapid.Uint8Range(62, 64).Draw(t, "ttl"), rapid.Uint64Range(1, 999).Draw(t, "bytes"))
		r.Src, r.Dst = record(rapid.ByteRange(0, 2).Draw(t, "src"), rapid.ByteRange(0, 1).Draw(t, "dst"), 0).Src, record(0, rapid.ByteRange(0, 1).Draw(t, "dst"), 0).Dst
		r.Packets = rapid.Uint64Range(1, 9).Draw(t, "packets")
		r.Proto, r.DstPort = rapid.SampledFrom([]uint8{6, 17}).Draw(t, "proto"), rapid.Uint16Range(79, 81).Draw(t, "dport")
		r.RTT.Responder = time.Duration(rapid.IntRange(0, 9).Draw(t, "rtt"))
		r.Initiator = flow.Initiator(rapid.IntRange(0, 2).Draw(t, "initiator"))
		r.Unattributed = rapid.IntRange(0, 9).Draw(t, "unattributed") == 0
		if rapid.IntRange(0, 3).Draw(t, "marked") == 0 {
			r.PDM, r.IOAM = flowtest.PDM(t), flowtest.IOAM(t)
		}
		records[i] = r
	}
	return records
}

// drawPlan is a plan over so many seconds.
func drawPlan(t *rapid.T, seconds int) query.Plan {
	p := query.Plan{
		By:      parseBy(t, rapid.SampledFrom([]string{"flow", "src/24", "dport", "conversation", "peer", "in,out", "transit", "netns,pair", "proto,iface", "ioam.path", "service"}).Draw(t, "by")),
		Filter:  parseFilter(t, rapid.SampledFrom([]string{"", "tcp", "iface eth1", "dport 80", "src 10.0.0.1 or udp", "packets > 5 and not tcp"}).Draw(t, "filter")),
		Sort:    rapid.SampledFrom([]string{"bytes", "packets", "rate", "records", "rtt_responder"}).Draw(t, "sort"),
		Reverse: rapid.Bool().Draw(t, "reverse"), Everywhere: rapid.Bool().Draw(t, "everywhere"),
		Limit: rapid.IntRange(0, 3).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "since") {
		p.Since = at(rapid.IntRange(0, seconds).Draw(t, "since"))
	}
	if rapid.IntRange(0, 2).Draw(t, "step") == 0 {
		p.Step = time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second
	}
	return p
}

// TestSeries: a group's steps add up to the row without steps; groups are chosen by all their
// time; until ends the window.
func TestSeries(t *testing.T) {
	s := New(Default())
	for n := range 6 {
		fill(s, n, n+1, record(1, 1, uint64(n)), record(2, 1, 100), record(byte(10+n), 1, 1000-uint64(n)))
	}
	p := query.Plan{By: parseBy(t, "src"), Step: 2 * time.Second, Limit: 3, Until: at(5), Since: at(0)}
	a := ask(t, s, p)
	var got []string
	for _, w := range a.Rows {
		got = append(got, fmt.Sprintf("%s +%v %d", w.Src, w.Time.Sub(epoch.Truncate(2*time.Second)), w.Bytes))
	}
	want := "10.0.0.10 +0s 1000, 10.0.0.11 +2s 999, 10.0.0.12 +2s 998"
	if strings.Join(got, ", ") != want || a.Groups != 7 || a.Intervals != 5 || a.Total.Bytes != 0+1+2+3+4+500+5000-10 {
		t.Errorf("%s: %+v", strings.Join(got, ", "), a)
	}
	p.Filter, p.Limit = parseFilter(t, "bytes > 300 and src 10.0.0.2"), 0
	a = ask(t, s, p)
	var bytes []uint64
	for _, w := range a.Rows {
		bytes = append(bytes, w.Bytes)
	}
	if !reflect.DeepEqual(bytes, []uint64{100, 200, 200}) { // the filter is of the sum
		t.Errorf("%v", bytes)
	}
}

// TestRefusedPlans: what cannot be answered is refused, with the reason.
func TestRefusedPlans(t *testing.T) {
	s := New(Default())
	s.Behind("alpha")
	for want, p := range map[string]query.Plan{
		"not after since":               {Since: at(2), Until: at(1)},
		"the shortest is":               {Step: time.Millisecond},
		"this agent has those of alpha": {Hosts: []string{"beta"}},
	} {
		if _, err := s.Query(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
		if _, err := s.Explain(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("explain %q: %v", want, err)
		}
	}
	fill(s, 0, 1, record(1, 1, 1), record(2, 1, 1))
	fill(s, 1, 2, record(1, 1, 1))
	e, err := s.Explain(query.Plan{Since: at(1), Hosts: []string{"alpha"}})
	if err != nil || e.Intervals != 1 || e.Records != 1 || e.Skipped != 2 || len(e.Engines) != 1 {
		t.Errorf("%+v %v", e, err)
	}
}
