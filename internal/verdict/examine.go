package verdict

import (
	"context"
	"fmt"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// History is what flows are read from.
type History interface {
	Query(ctx context.Context, p query.Plan) (query.Answer, error)
}

// Deps are what verdicts are made of.
type Deps struct {
	Host       string
	Sampling   uint32
	History    History
	Ledger     *Ledger
	Thresholds func() Thresholds
	// Places are the hooks that count, and since when.
	Places func() []Place
	// Wiring is how interfaces hang together; nil: not known.
	Wiring func() *flow.Wiring
	// Speed is that of a link in bit/s; 0: not known.
	Speed func(netns, iface string) uint64
	// Connections are the open TCP connections of a network namespace.
	Connections func(netns string) ([]Connection, error)
	// Conditions are what is wrong with the agent at this moment.
	Conditions func() []Condition
}

// Place is one direction of an interface on which packets are counted.
type Place struct {
	Netns, Iface string
	IfIndex      uint32
	Direction    flow.Direction
	Since        time.Time
}

// Connection is a TCP connection as the kernel describes it.
type Connection struct {
	Flow
	Sent, Retransmitted uint64 // segments with data, since it was opened
	Timeouts            int    // after which something was sent again, since the last answer
	Open                int    // connections to the same destination, with this one
}

// Condition is a state of the agent: an interface that is not counted.
type Condition struct {
	Where    Where
	Text     string
	Coverage float64 // share of packets that is counted; 0: none
	Packets  uint64  // of the interface
}

// Request says what to examine.
type Request struct {
	Filter       string    // of package filter; empty: all flows
	Since, Until time.Time // zero: DefaultRange, and now

	past bool // until was given
}

// DefaultRange is what is examined where nothing is said.
const DefaultRange = 10 * time.Minute

// Examiner finds verdicts.
type Examiner struct {
	deps   Deps
	memory memory
}

// New makes an examiner; it asks for nothing yet.
func New(deps Deps) *Examiner { return &Examiner{deps: deps} }

// Examine finds what is wrong in a time range.
func (e *Examiner) Examine(ctx context.Context, r Request, now time.Time) (Answer, error) {
	if _, err := filter.Parse(r.Filter); err != nil {
		return Answer{}, err
	}
	if r.past = !r.Until.IsZero(); !r.past {
		r.Until = now
	}
	if r.Since.IsZero() {
		r.Since = r.Until.Add(-DefaultRange)
	}
	if !r.Since.Before(r.Until) {
		return Answer{}, fmt.Errorf("until %s is not after since %s: exchange them", r.Until.Format(time.DateTime), r.Since.Format(time.DateTime))
	}
	whole, err := e.window(ctx, r, r.Since, r.Until)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Host: e.deps.Host, From: whole.from, To: whole.to, Filter: r.Filter, Verdicts: []Verdict{}, Examined: []Matter{}}
	if whole.intervals == 0 {
		a.Summary = "No scan interval has ended in this time range: nothing was examined"
		return a, nil
	}
	windows := []*window{whole}
	newest, err := e.newest(ctx, r, whole)
	if err != nil {
		return Answer{}, err
	}
	if newest != nil {
		windows = append(windows, newest)
	}
	if err := a.judge(windows); err != nil {
		return Answer{}, err
	}
	for _, w := range windows {
		if !w.usualFrom.IsZero() && (a.Usual.IsZero() || w.usualFrom.Before(a.Usual)) {
			a.Usual = w.usualFrom
		}
	}
	a.summarize()
	return a, nil
}

// minNewest is the shortest time that is examined by itself.
const minNewest = 2 * time.Second

// newest is the window of the last two intervals, or of a longer time where these are short; nil: that is the whole.
// An interval counts whole where a part of it is asked for, so the last two are found from their ends.
func (e *Examiner) newest(ctx context.Context, r Request, whole *window) (w *window, err error) {
	if whole.intervals <= 2 {
		return nil, nil
	}
	since, until := whole.to, r.Until
	if until.Before(whole.to) { // an interval ended since it was asked for
		until = whole.to
	}
	for range 2 {
		if w, err = e.window(ctx, r, since.Add(-1), until); err != nil || w.intervals == 0 {
			return nil, err
		}
		since = w.from
	}
	if length := w.to.Sub(w.from); length < minNewest*9/10 {
		w, err = e.window(ctx, r, whole.to.Add(-minNewest), until)
	}
	if err != nil || w.intervals >= whole.intervals {
		return nil, err
	}
	return w, nil
}

// judge applies every rule to every window.
func (a *Answer) judge(windows []*window) error {
	var found []Verdict
	for i := range rules {
		r := &rules[i]
		for n, w := range windows {
			f := finding{}
			if w.request.Filter != "" && !r.flows {
				f.note("not examined, because it is not of flows and there is a filter")
			} else if err := r.judge(w, &f); err != nil {
				return fmt.Errorf("examine %s: %w", r.kind, err)
			}
			for _, v := range f.verdicts {
				v.Kind = r.kind
				v.finish(w, r)
				found = append(found, v)
			}
			if n == 0 {
				a.Examined = append(a.Examined, Matter{Kind: r.kind, Count: f.count, What: r.what, Note: f.text})
			}
		}
	}
	a.Verdicts, a.More = rank(found)
	return nil
}

// summarize says it in one sentence.
func (a *Answer) summarize() {
	span := fmt.Sprintf("from %s to %s", a.From.Local().Format(time.TimeOnly), a.To.Local().Format(time.TimeOnly))
	if n := len(a.Verdicts); n > 0 {
		a.Summary = fmt.Sprintf("%s %s", term.Number(uint64(n), "verdicts"), span)
		if a.More > 0 {
			a.Summary += fmt.Sprintf(", and %d more that are less severe", a.More)
		}
		return
	}
	a.Summary = "No server, path, link or rule stands out " + span
}

// finding is what a rule found in a window.
type finding struct {
	verdicts []Verdict
	count    uint64 // of what was examined
	text     string
}

func (f *finding) add(v Verdict) { f.verdicts = append(f.verdicts, v) }

// note says what was not examined.
func (f *finding) note(format string, args ...any) {
	if f.text == "" {
		f.text = fmt.Sprintf(format, args...)
	}
}
