package verdict

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waymark-net/waymark/internal/query"
)

// thing is what something is usual of: a service, or a pair of hosts.
type thing struct{ id, filter string }

// usual is what was measured of things before a window, the same for the windows that follow soon: to read a day for each
// answer would take longer than all the rest. What is slow changes from answer to answer: only of new things it is read.
type usual struct {
	about    string // the question
	from, to time.Time
	rows     map[string][]query.Row // of each thing that was asked for; none: nothing was measured
	whole    bool                   // of all things that there were: nothing was measured of others
}

// serves reports whether it is what was usual before a time, too: at most a sixteenth is missing.
func (u *usual) serves(about string, before time.Time) bool {
	missing := before.Sub(u.to)
	return u.about == about && missing >= 0 && missing <= u.to.Sub(u.from)/16
}

// Bounds of what is kept: questions, and things of each.
const mostUsual, mostThings = 4, 500

// memory keeps what was usual, the newest last.
type memory struct {
	reading sync.Mutex // what one answer reads, another one waits for
	mu      sync.Mutex
	list    []usual // never changed
	reads   atomic.Uint64
}

func (m *memory) find(about string, before time.Time) (usual, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.list {
		if u.serves(about, before) {
			return u, true
		}
	}
	return usual{}, false
}

func (m *memory) keep(u usual) {
	m.mu.Lock()
	defer m.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(m.list), func(o usual) bool { return o.about == u.about })
	m.list = append(others[max(0, len(others)+1-mostUsual):], u)
}

// mostOf is how many things a question is narrowed down to; beyond, it is asked of all.
const mostOf = 16

// usual answers from the time before the window, of some things; idOf is that of a row. It reads much, and is asked only
// where something exceeds its threshold.
func (w *window) usual(q question, of []thing, idOf func(*query.Row) string) (rows []query.Row, err error) {
	w.memory.reading.Lock()
	defer w.memory.reading.Unlock()
	about := strings.Join([]string{w.request.Filter, q.filter, q.by, w.Compare.String()}, "\x00")
	u, ok := w.memory.find(about, w.from)
	if !ok {
		u = usual{about: about, from: w.from, to: w.from}
	}
	fresh := slices.DeleteFunc(slices.Clone(of), func(t thing) bool { _, known := u.rows[t.id]; return known || u.whole })
	if len(fresh) > 0 && len(u.rows)+len(fresh) > mostThings {
		u.rows, fresh = nil, of
	}
	if len(fresh) > 0 {
		if u, err = w.measured(u, q, fresh, idOf); err != nil {
			return nil, err
		}
		w.memory.keep(u)
	}
	if u.from.Before(u.to) {
		w.usualFrom = u.from
	}
	for _, t := range of {
		rows = append(rows, u.rows[t.id]...)
	}
	return rows, nil
}

// measured adds what was measured of more things.
func (w *window) measured(u usual, q question, of []thing, idOf func(*query.Row) string) (usual, error) {
	if len(of) <= mostOf {
		var filters []string
		for _, t := range of {
			filters = append(filters, t.filter)
		}
		q.filter = Both(q.filter, strings.Join(filters, " or "))
	}
	w.memory.reads.Add(1)
	a, err := w.query(u.to.Add(-w.Compare), u.to, q)
	if err != nil {
		return u, err
	}
	if a.Intervals > 0 && a.From.Before(u.from) {
		u.from = a.From
	}
	asked := map[string][]query.Row{}
	for _, t := range of {
		asked[t.id] = nil
	}
	u.whole = len(of) > mostOf && a.Partial == "" && a.Groups <= len(a.Rows)
	for i := range a.Rows {
		id := idOf(&a.Rows[i])
		if rows, ok := asked[id]; ok || u.whole {
			asked[id] = append(rows, a.Rows[i])
		}
	}
	if a.Partial != "" || len(of) > mostOf && !u.whole {
		// What is not in a part of an answer may have been there all the same.
		maps.DeleteFunc(asked, func(_ string, rows []query.Row) bool { return rows == nil })
	}
	maps.Copy(asked, u.rows)
	u.rows = asked
	return u, nil
}
