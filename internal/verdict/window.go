package verdict

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
)

// window is a part of the range, with answers about its flows.
type window struct {
	*Examiner
	Thresholds
	ctx       context.Context
	request   Request
	from, to  time.Time // of the intervals in it
	intervals int
	usualFrom time.Time // of the history before it; zero: there is none, or nothing was compared
	traffic   []query.Row
	services  []service // by address and port, once asked for
	asked     bool
	between   []*segment // once compared
	unequal   string     // why flows are not compared
	compared  bool
}

// window asks which interfaces carried what, and so learns which intervals there are.
func (e *Examiner) window(ctx context.Context, r Request, since, until time.Time) (*window, error) {
	w := &window{Examiner: e, Thresholds: e.deps.Thresholds(), ctx: ctx, request: r, from: since, to: until}
	a, err := w.query(since, until, question{by: "netns,iface,direction", sort: "wire_bytes", sums: []string{"wire_bytes", "packets"}})
	if err != nil {
		return nil, err
	}
	w.from, w.to, w.intervals, w.traffic = a.From, a.To, a.Intervals, a.Rows
	return w, nil
}

// question is a query about flows.
type question struct {
	filter, by, sort string
	limit            int
	everywhere       bool
	reads            []string // fields of the rows, besides keys and counters; nil: all
	sums             []string // the only counters that are read, and of other fields round trips alone; nil: as reads says
}

// rows answers from the window.
func (w *window) rows(q question) ([]query.Row, error) {
	a, err := w.query(w.from, w.to, q)
	return a.Rows, err
}

func (w *window) query(from, to time.Time, q question) (query.Answer, error) {
	if err := w.ctx.Err(); err != nil {
		return query.Answer{}, err
	}
	f, err := filter.Parse(Both(w.request.Filter, q.filter))
	if err != nil {
		return query.Answer{}, err
	}
	by, err := query.ParseBy(q.by)
	if err != nil {
		return query.Answer{}, err
	}
	a, err := w.deps.History.Query(w.ctx, query.Plan{
		Filter: f, Since: from, Until: to, By: by, Sort: q.sort, Limit: q.limit, Everywhere: q.everywhere, Reads: q.reads, Sums: q.sums,
	})
	if err != nil {
		return a, fmt.Errorf("flows by %s: %w", q.by, err)
	}
	return a, nil
}

// Both joins two filters, of which either may be empty.
func Both(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return "(" + a + ") and (" + b + ")"
}

// counters are those of a rule in the window, and the time that they cover.
func (w *window) counters(kind Kind) (own []Counter, over time.Duration) {
	grown, first, last := w.deps.Ledger.Between(w.from, w.to)
	for _, c := range grown {
		if c.Kind == kind {
			own = append(own, c)
		}
	}
	return own, last.Sub(first)
}

// command is what a user types to see rows of the window.
func (w *window) command(q question) string {
	words := []string{"waymark flows"}
	if f := Both(w.request.Filter, q.filter); f != "" {
		words = append(words, "'"+f+"'")
	}
	if q.by != "" {
		words = append(words, "--by "+q.by)
	}
	if q.sort != "" {
		words = append(words, "--sort "+q.sort)
	}
	if q.everywhere {
		words = append(words, "--everywhere")
	}
	words = append(words, "--since "+w.from.UTC().Format(time.RFC3339))
	if w.request.past {
		words = append(words, "--until "+w.to.UTC().Format(time.RFC3339))
	}
	return strings.Join(words, " ")
}

// finish fills in what all verdicts have.
func (v *Verdict) finish(w *window, r *rule) {
	v.From, v.To = w.from, w.to
	v.Score = r.score(v)
	v.Severity = severityOf(v.Score)
	v.Text += fmt.Sprintf(", from %s to %s", w.from.Local().Format(time.TimeOnly), w.to.Local().Format(time.TimeOnly))
}

// flowOf names the flow of a row.
func flowOf(w *query.Row) Flow {
	return Flow{flow.ProtoName(w.Proto), w.Src, w.SrcPort, w.Dst, w.DstPort}
}

// endpoint is an address, with a port where there is one.
func endpoint(a netip.Addr, port uint16) string {
	if port == 0 {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

func (f *Flow) String() string {
	to := f.Proto + " " + endpoint(f.Dst, f.DstPort)
	if !f.Src.IsValid() {
		return to
	}
	return f.Proto + " from " + endpoint(f.Src, f.SrcPort) + " to " + endpoint(f.Dst, f.DstPort)
}
