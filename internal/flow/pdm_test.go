package flow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband"
)

// Delays hold what a histogram holds, whatever is merged in whatever order.
func TestDelaysAreHistograms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole inband.Histogram
		var sum Delays
		for range rapid.IntRange(0, 5).Draw(t, "intervals") {
			var h inband.Histogram
			for _, ns := range rapid.SliceOf(rapid.Uint64Range(0, 1<<40)).Draw(t, "delays") {
				h.Add(ns)
				whole.Add(ns)
			}
			d := DelaysOf(&h)
			sum.Merge(&d)
		}
		if diff := cmp.Diff(whole, sum.Histogram()); diff != "" {
			t.Fatal(diff)
		}
		if got, want := sum.Quantile(0.9), whole.Quantile(0.9); got != want {
			t.Fatalf("quantile %v, want %v", got, want)
		}
		if got, want := sum.Mean(), whole.Mean(); got != want {
			t.Fatalf("mean %v, want %v", got, want)
		}
	})
}

// What marked packets reported is in the interval's record and in the one that is
// exported, and in neither twice; a record that was handed out never changes.
func TestTableReportsPDM(t *testing.T) {
	var intervals, expired []Record
	table := NewTable(TableConfig{MaxFlows: 10, ActiveTimeout: time.Hour, IdleTimeout: time.Second},
		func(Iface) (string, string) { return "eth0", "" }, TableOutput{
			Interval: func(r *Record) { intervals = append(intervals, *r) },
			Expired:  func(r *Record) { expired = append(expired, *r) },
		})
	key := Key{SrcPort: 1, DstPort: 2, Proto: 17, IPv6: true, Direction: Ingress}
	at := time.Unix(1000, 0)
	merge := func(packets uint64, p *PDM) {
		d := Delta{Key: key, Counts: Counts{Counters: Counters{Packets: packets}, PDM: p, First: at.UnixNano(), Last: at.UnixNano()}}
		table.Merge(&d)
	}
	end := func() {
		table.EndInterval(at)
		at = at.Add(600 * time.Millisecond)
	}
	delays := func(ns uint64) Delays {
		var h inband.Histogram
		h.Add(ns)
		return DelaysOf(&h)
	}
	reported := PDM{Received: 1, Server: delays(5e6)}
	merge(3, nil)
	merge(0, &reported)
	end()
	reported = PDM{Received: 2, Lost: 1, Server: delays(7e6)} // the probe uses its memory again
	merge(1, nil)
	merge(0, &reported)
	end()
	end()
	end()

	if len(intervals) != 2 || len(expired) != 1 {
		t.Fatalf("%d records of intervals, %d expired", len(intervals), len(expired))
	}
	first, second, whole := intervals[0].PDM, intervals[1].PDM, expired[0].PDM
	if first.Received != 1 || first.Server.Sum != 5e6 || second.Received != 2 || second.Server.Sum != 7e6 {
		t.Errorf("intervals reported %+v and %+v", first, second)
	}
	if whole.Received != 3 || whole.Lost != 1 || whole.Server.Count != 2 || whole.Server.Sum != 12e6 || len(whole.Server.Buckets) != 2 {
		t.Errorf("the flow reported %+v", whole)
	}
	if r := expired[0]; r.Packets != 4 || !r.First.Equal(time.Unix(1000, 0)) {
		t.Errorf("%d packets since %v", r.Packets, r.First)
	}
}

// What was reported before the packets were counted waits for them, and says when.
func TestTableReportsPDMWithoutPackets(t *testing.T) {
	var expired []Record
	table := NewTable(TableConfig{MaxFlows: 10, ActiveTimeout: time.Hour, IdleTimeout: time.Second},
		func(Iface) (string, string) { return "eth0", "" },
		TableOutput{Expired: func(r *Record) { expired = append(expired, *r) }})
	at := time.Unix(1000, 0)
	table.Merge(&Delta{Key: Key{Proto: 17, IPv6: true}, Counts: Counts{
		PDM: &PDM{Received: 1}, First: at.UnixNano(), Last: at.UnixNano(),
	}})
	for range 4 {
		table.EndInterval(at)
		at = at.Add(600 * time.Millisecond)
	}
	if len(expired) != 1 || expired[0].PDM == nil || expired[0].First.Unix() != 1000 || expired[0].EndReason != EndReasonIdleTimeout {
		t.Errorf("exported %+v", expired)
	}
}
