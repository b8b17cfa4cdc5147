package top

import (
	"slices"

	"github.com/waymark-net/waymark/internal/api"
)

// scroll moves the selected row; what is shown follows.
func (m *model) scroll(key string) {
	page := max(m.bodyHeight()-1, 1)
	switch key {
	case "down", "j":
		m.cursor++
	case "up", "k":
		m.cursor--
	case "pgdown":
		m.cursor += page
	case "pgup":
		m.cursor -= page
	case "home", "g":
		m.cursor = 0
	case "end", "G":
		m.cursor = maxRows
	}
	m.showCursor()
}

// showCursor keeps the selected row among the rows, and on the screen.
func (m *model) showCursor() {
	rows := 0
	if m.answer != nil {
		rows = len(m.answer.Rows)
	}
	m.cursor = max(min(m.cursor, rows-1), 0)
	m.offset = max(min(m.offset, m.cursor, rows-m.bodyHeight()), m.cursor-m.bodyHeight()+1, 0)
}

// selected is the row of the cursor; nil: there are no rows.
func (m *model) selected() *api.Row {
	if m.answer == nil || m.cursor >= len(m.answer.Rows) {
		return nil
	}
	return &m.answer.Rows[m.cursor]
}

// follow keeps the row selected that was, wherever it is in a new answer. At the
// top the cursor stays there.
func (m *model) follow(selected rowKey) {
	if m.cursor > 0 {
		if i := slices.IndexFunc(m.answer.Rows, func(w api.Row) bool { return keyOf(&w) == selected }); i >= 0 {
			m.cursor = i
		}
	}
	m.showCursor()
	if m.detail != nil {
		m.detail.update(m.answer)
	}
}
