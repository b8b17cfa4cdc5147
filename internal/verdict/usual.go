package verdict

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/query"
)

// usual is what was measured before a window, the same for the windows that follow soon: to read a day for each answer
// would take longer than all the rest.
type usual struct {
	about    string // the question
	from, to time.Time
	rows     []query.Row
}

// serves reports whether it is what was usual before a time, too: at most a sixteenth is missing.
func (u *usual) serves(about string, before time.Time) bool {
	missing := before.Sub(u.to)
	return u.about == about && missing >= 0 && missing <= u.to.Sub(u.from)/16
}

// Bounds of what is kept: answers, those that the windows of one examination ask for, and rows of each.
const mostUsual, mostKept = 4, 500

// memory keeps what was usual, the newest last.
type memory struct {
	mu   sync.Mutex
	list []usual
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
	if len(u.rows) > mostKept {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(slices.Clone(m.list[max(0, len(m.list)+1-mostUsual):]), u) // the others are let go
}

// mostOf is how many things a question is narrowed down to; beyond, it is asked of all.
const mostOf = 16

// usual answers from the time before the window, of things that filters name. It reads much, and is asked only where
// something exceeds its threshold.
func (w *window) usual(q question, of []string) ([]query.Row, error) {
	if len(of) <= mostOf {
		q.filter = both(q.filter, strings.Join(of, " or "))
	}
	about := strings.Join([]string{w.request.Filter, q.filter, q.by, w.Compare.String()}, "\x00")
	u, ok := w.memory.find(about, w.from)
	if !ok {
		a, err := w.query(w.from.Add(-w.Compare), w.from, q)
		if err != nil {
			return nil, err
		}
		u = usual{about: about, to: w.from, from: w.from, rows: a.Rows}
		if a.Intervals > 0 && a.From.Before(w.from) {
			u.from = a.From
		}
		w.memory.keep(u)
	}
	if u.from.Before(u.to) {
		w.usualFrom = u.from
	}
	return u.rows, nil
}
