package top

import (
	"slices"
	"strconv"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// detail shows all that is known of one row.
type detail struct {
	key    rowKey
	row    api.Row // as last seen
	silent bool    // the last interval had none of it
	fields []api.RowField
	first  int // of the lines that are shown
}

// openDetail opens the selected row.
func (m *model) openDetail() {
	row := m.selected()
	if row == nil {
		return
	}
	by, err := query.ParseBy(views[m.view].by)
	if err != nil {
		return // a test parses those of all views
	}
	m.detail = &detail{key: keyOf(row), row: *row, fields: api.RowFields(by.Keys, 0)}
}

// detailKey reports whether the open row took a key.
func (m *model) detailKey(key string) bool {
	d := m.detail
	switch key {
	case "enter", "esc", "backspace", "left":
		m.detail = nil
	case "down", "j":
		d.first++
	case "up", "k":
		d.first--
	case "home", "g":
		d.first = 0
	default:
		return false
	}
	return true
}

// update takes the row from a new answer.
func (d *detail) update(a *api.Answer) {
	i := slices.IndexFunc(a.Rows, func(w api.Row) bool { return keyOf(&w) == d.key })
	if d.silent = i < 0; !d.silent {
		d.row = a.Rows[i]
	}
}

// detailBody is drawn in place of the rows: fields in as many columns as it takes.
func (m *model) detailBody() []string {
	d := m.detail
	past := m.past[d.key]
	title := "ROW"
	if views[m.view].by == "transit" {
		title = "FLOW"
	}
	if d.silent {
		title += "  no packets in the last interval"
	}
	lines := []string{m.styles.title.Render(m.pad(title))}
	height := m.bodyHeight()
	if past != nil && height > 2 {
		lines = append(lines, m.fit("history  "+past.spark(min(len(past.rates), max(m.width-9, 0)), m.cfg.ASCII)), "")
		height -= 2
	}
	items := inColumns(d.items(), height, m.width)
	d.first = max(min(d.first, len(items)-height), 0)
	for _, item := range items[d.first:min(len(items), d.first+height)] {
		lines = append(lines, m.fit(item))
	}
	return lines
}

// inColumns puts items side by side where one column is too high and two are
// not too wide.
func inColumns(items []string, height, width int) []string {
	half := (len(items) + 1) / 2
	left, right := 0, 0
	for i, item := range items {
		if w := runewidth.StringWidth(item); i < half {
			left = max(left, w)
		} else {
			right = max(right, w)
		}
	}
	if len(items) <= height || left+2+right > width {
		return items
	}
	var lines []string
	for i := range half {
		line := items[i]
		if half+i < len(items) {
			line = runewidth.FillRight(line, left+2) + items[half+i]
		}
		lines = append(lines, line)
	}
	return lines
}

// items are the fields that the row has, with their values.
func (d *detail) items() []string {
	var names, values []string
	widest := 0
	for i := range d.fields {
		f := &d.fields[i]
		v := f.Text(&flow.Origin{}, &d.row.Row)
		if v == "" || v == "0" || v == flow.EndReasonNone.String() {
			continue
		}
		names, values = append(names, f.Name), append(values, term.Printable(d.text(f, v)))
		widest = max(widest, len(f.Name))
	}
	items := make([]string, len(names))
	for i := range items {
		items[i] = runewidth.FillRight(names[i], widest+2) + values[i]
	}
	return items
}

// text is a value for people.
func (d *detail) text(f *api.RowField, v string) string {
	switch {
	case f.Kind == flow.Bits:
		return flow.TCPFlagNames(d.row.TCPFlags)
	case f.Kind == flow.Time:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at.Local().Format("15:04:05.000000")
		}
	case f.Unit == "ns":
		if ns, err := strconv.ParseInt(v, 10, 64); err == nil {
			return term.Duration(time.Duration(ns))
		}
	}
	return v
}
