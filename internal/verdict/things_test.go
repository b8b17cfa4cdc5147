package verdict

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// asked notes the filters of queries.
type asked struct {
	History
	filters []string
}

func (a *asked) Query(ctx context.Context, p query.Plan) (query.Answer, error) {
	a.filters = append(a.filters, p.Filter.String())
	return a.History.Query(ctx, p)
}

// TestUsualOfNewThings: of things that were asked for before, the history is not read again, whether it has any record of
// them or not.
func TestUsualOfNewThings(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	own, a, b, none := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("10.0.1.3")
	history := store.New(store.Default())
	for range 60 {
		iv := history.Begin(at)
		for i, peer := range []netip.Addr{a, b} {
			iv.Add(&flow.Record{
				Iface: "eth0", IfIndex: 2, Family: 4, Proto: 6, Src: own, Dst: peer, SrcPort: 40000, DstPort: 443, Direction: flow.Egress,
				First: at, Last: at, Counters: flow.Counters{Packets: 1}, RTT: flow.RTT{Responder: time.Duration(i+1) * time.Millisecond},
			})
		}
		at = at.Add(time.Minute)
		iv.End(at)
	}
	seen := &asked{History: history}
	cfg := config.Default().Why
	w, err := New(Deps{History: seen, Thresholds: func() Thresholds { return ThresholdsOf(&cfg) }}).window(t.Context(), Request{}, at.Add(-2*time.Minute), at)
	if err != nil {
		t.Fatal(err)
	}
	pair := func(peer netip.Addr) thing {
		return thing{own.String() + " " + peer.String(), "(host " + own.String() + " and host " + peer.String() + ")"}
	}
	for _, step := range []struct {
		of    []netip.Addr
		rtt   []time.Duration
		reads string // the host that the history is read for; empty: it is not read
	}{
		{[]netip.Addr{a}, []time.Duration{time.Millisecond}, a.String()},
		{[]netip.Addr{b, a}, []time.Duration{2 * time.Millisecond, time.Millisecond}, b.String()},
		{[]netip.Addr{a, b}, []time.Duration{time.Millisecond, 2 * time.Millisecond}, ""},
		{[]netip.Addr{none, b}, []time.Duration{2 * time.Millisecond}, none.String()},
		{[]netip.Addr{none}, nil, ""},
	} {
		seen.filters = nil
		var of []thing
		for _, peer := range step.of {
			of = append(of, pair(peer))
		}
		rows, err := w.usual(byPair, of, pairOf)
		if err != nil || len(rows) != len(step.rtt) {
			t.Fatalf("%v: %d rows, %v", step.of, len(rows), err)
		}
		for i := range rows {
			if rows[i].RTT.Responder != step.rtt[i] || rows[i].RTTSeen != 58 {
				t.Errorf("%v: row %d: %v of %d handshakes", step.of, i, rows[i].RTT.Responder, rows[i].RTTSeen)
			}
		}
		for _, f := range seen.filters {
			for _, peer := range []netip.Addr{a, b, none} {
				if strings.Contains(f, peer.String()) != (peer.String() == step.reads) {
					t.Errorf("%v: read for %s", step.of, f)
				}
			}
		}
		if (len(seen.filters) == 0) != (step.reads == "") {
			t.Errorf("%v: the history was read %d times", step.of, len(seen.filters))
		}
	}
}
