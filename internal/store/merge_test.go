package store

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/flow/flowtest"
	"github.com/waymark-net/waymark/internal/query"
)

// TestMergedAsDeclared groups two records, and finds in the row of each field what
// its Merge says.
func TestMergedAsDeclared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := flowtest.Record(t), flowtest.Record(t)
		for i, r := range []*flow.Record{&a, &b} { // two flows, neither of them a part of the other
			r.Unattributed, r.Family, r.SrcPort = false, 4, uint16(i)
			r.Src, r.Dst = netip.AddrFrom4([4]byte{10}), netip.AddrFrom4([4]byte{11})
		}
		a.Initiator, b.Initiator = flow.Initiator(rapid.IntRange(0, 2).Draw(t, "initiator")), flow.InitiatorSrc
		a.InitiatorBy, b.InitiatorBy = flow.EvidenceFirst, flow.EvidencePorts
		s := New(Default())
		a.VLAN = b.VLAN
		fill(s, 0, 1, a, b)
		w := &ask(t, s, query.Plan{By: parseBy(t, "vlan")}).Rows[0]
		if a.Initiator == flow.InitiatorUnknown {
			a.InitiatorBy = b.InitiatorBy
		}
		for i := range flow.Fields {
			f := &flow.Fields[i]
			if f.Uint == nil {
				continue
			}
			x, y, got := f.Uint(&a), f.Uint(&b), f.Uint(&w.Record)
			var want uint64
			switch f.Merge {
			case flow.MergeKey:
				if f.Name == "vlan" {
					want = x
				}
			case flow.MergeSum:
				want = x + y
			case flow.MergeOr:
				want = x | y
			case flow.MergeMin:
				want = min(x, y)
			case flow.MergeMax:
				want = max(x, y)
			case flow.MergeMean:
				switch {
				case f.Derived:
					continue
				case x == 0 || y == 0:
					want = max(x, y)
				default:
					want = (x + y) / 2
				}
			case flow.MergeAgree:
				switch {
				case strings.HasPrefix(f.Name, "ioam."):
					continue // TestRowsOfPaths
				case f.Name == "unattributed": // no key is an end
				case strings.HasPrefix(f.Name, "drops."): // TestRowsOfDrops
					continue
				case a.Initiator == flow.InitiatorUnknown:
					want = y
				case a.Initiator == b.Initiator:
					want = min(x, y)
				}
			case flow.MergeFirst:
			case flow.MergeDelays:
				continue // TestMergedDelaysAreTheSameInAnySteps
			}
			if got != want {
				t.Fatalf("%s of %d and %d is %d, want %d", f.Name, x, y, got, want)
			}
		}
		if !w.First.Equal(earlier(&a, &b)) {
			t.Fatalf("first %v of %v and %v", w.First, a.First, b.First)
		}
	})
}

func earlier(a, b *flow.Record) time.Time {
	if b.First.Before(a.First) {
		return b.First
	}
	return a.First
}
