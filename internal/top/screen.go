package top

import (
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/mattn/go-runewidth"

	"github.com/waymark-net/waymark/internal/term"
)

// styles are the only attributes used; a terminal without them shows plain text.
type styles struct{ title, bold, selected lipgloss.Style }

func newStyles(r *lipgloss.Renderer) styles {
	return styles{title: r.NewStyle().Reverse(true), bold: r.NewStyle().Bold(true), selected: r.NewStyle().Reverse(true)}
}

// Lines around the rows: two above with what is seen, the titles, one of keys.
const frameHeight = 4

func (m *model) bodyHeight() int { return max(m.height-frameHeight, 1) }

// View implements tea.Model.
func (m *model) View() string {
	lines := []string{
		m.styles.bold.Render(m.fit(m.headline())),
		m.fit(m.subline()),
	}
	if m.help {
		lines = append(lines, m.styles.title.Render(m.pad("KEYS")))
		lines = append(lines, helpLines(m.bodyHeight())...)
	} else if m.detail != nil {
		lines = append(lines, m.detailBody()...)
	} else {
		lines = append(lines, m.body()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(m.height-1, 1)], m.fit(m.footer()))
	return m.plain(strings.Join(lines, "\n"))
}

// headline says where, what and when.
func (m *model) headline() string {
	parts := []string{"waymark top"}
	if m.status != nil {
		parts = append(parts, m.status.Host)
	}
	parts = append(parts, views[m.view].name)
	if m.answer != nil && !m.answer.To.IsZero() {
		parts = append(parts, m.answer.To.Local().Format(time.TimeOnly), "every "+term.Duration(taken(m.answer).Round(100*time.Millisecond)))
	}
	if m.paused {
		parts = append(parts, "PAUSED")
	}
	return term.Printable(strings.Join(parts, "  "))
}

// subline has the totals, or what is wrong.
func (m *model) subline() string {
	switch {
	case m.err != nil:
		return "! " + term.Printable(m.err.Error())
	case m.answer == nil || m.answer.To.IsZero():
		return "waiting for the next interval"
	}
	if v := &views[m.view]; len(m.answer.Rows) == 0 && v.empty != nil && m.status != nil && m.filter == "" {
		return v.empty(m.status)
	}
	d := taken(m.answer)
	parts := []string{
		term.Rate(float64(m.answer.Total.Bytes)*8, d) + " bit/s",
		term.Rate(float64(m.answer.Total.Packets), d) + " packets/s",
		term.Number(uint64(m.answer.Groups), views[m.view].rows),
	}
	if m.answer.EachHost != "" {
		parts = append(parts, "counted at each host")
	}
	if c, ok := m.coverage(); ok {
		parts = append(parts, "coverage "+term.Percent(c))
	}
	if m.filter != "" {
		parts = append(parts, "filter: "+m.filter)
	}
	return term.Printable(strings.Join(parts, "  "))
}

// coverage is that of the worst interface.
func (m *model) coverage() (float64, bool) {
	if m.status == nil || len(m.status.Interfaces) == 0 {
		return 0, false
	}
	worst := m.status.Interfaces[0].Coverage
	for _, i := range m.status.Interfaces {
		worst = min(worst, i.Coverage)
	}
	return worst, true
}

// body is the titles and the rows that fit.
func (m *model) body() []string {
	columns := m.columns()
	widths, spark := m.layout(columns)
	var b strings.Builder
	for i, c := range columns {
		b.WriteString(align(c.title, widths[i], c.right) + " ")
	}
	if spark > 0 {
		b.WriteString(align("HISTORY", spark, true))
	}
	lines := []string{m.styles.title.Render(m.pad(b.String()))}
	if m.answer == nil {
		return lines
	}
	rows := m.answer.Rows
	first := min(m.offset, len(rows))
	for i := first; i < len(rows) && i < first+m.bodyHeight(); i++ {
		l := m.lineOf(i)
		b.Reset()
		for n, c := range columns {
			b.WriteString(align(term.Printable(c.cell(l)), widths[n], c.right) + " ")
		}
		if spark > 0 {
			b.WriteString(l.past.spark(spark, m.cfg.ASCII))
		}
		text := m.fit(strings.TrimRight(b.String(), " "))
		if i == m.cursor {
			text = m.styles.selected.Render(m.pad(text))
		}
		lines = append(lines, text)
	}
	return lines
}

func (m *model) lineOf(i int) line {
	row := &m.answer.Rows[i]
	return line{row, m.past[keyOf(row)], taken(m.answer)}
}

// columns leaves out those that tell nothing.
func (m *model) columns() []column {
	var columns []column
	for _, c := range views[m.view].columns {
		if !c.onlyMany || m.differs(c) {
			columns = append(columns, c)
		}
	}
	return columns
}

func (m *model) differs(c column) bool {
	if m.answer == nil {
		return false
	}
	for i := range m.answer.Rows {
		if c.cell(m.lineOf(i)) != c.cell(m.lineOf(0)) {
			return true
		}
	}
	return false
}

// What the history takes: the least it is worth, and the most there is.
const (
	leastSpark  = 8
	leastColumn = 8 // of a column that is shortened
)

// layout shares the width: columns of numbers get theirs, names what they need,
// or as much as is left, and the history the rest.
func (m *model) layout(columns []column) (widths []int, spark int) {
	widths = make([]int, len(columns))
	left := m.width - leastSpark
	wanted := 0
	for i, c := range columns {
		left-- // the blank behind it
		if c.width > 0 {
			widths[i] = c.width
			left -= c.width
			continue
		}
		widths[i] = m.widest(c)
		wanted += widths[i]
	}
	for wanted > left {
		n := m.widestNamed(columns, widths)
		if n < 0 {
			break
		}
		widths[n]--
		wanted--
	}
	if wanted > left {
		return widths, 0 // too narrow for a history
	}
	return widths, min(leastSpark+left-wanted, maxTrend)
}

// widest is what the cells of a column would take.
func (m *model) widest(c column) int {
	w := runewidth.StringWidth(c.title)
	if m.answer == nil {
		return max(w, leastColumn)
	}
	for i := range m.answer.Rows {
		w = max(w, runewidth.StringWidth(c.cell(m.lineOf(i))))
	}
	return w
}

// widestNamed is the column that gives way next; −1: none can.
func (m *model) widestNamed(columns []column, widths []int) int {
	n := -1
	for i, c := range columns {
		if c.width == 0 && widths[i] > leastColumn && (n < 0 || widths[i] > widths[n]) {
			n = i
		}
	}
	return n
}

// footer has the keys, or the filter that is being written.
func (m *model) footer() string {
	if m.editing {
		s := "filter: " + m.draft + "_"
		if m.draftErr != "" {
			s += "   ! " + m.draftErr
		}
		return term.Printable(s)
	}
	if m.detail != nil {
		return "enter close  arrows scroll  p pause  ? help  q quit"
	}
	order := m.sortOrder().title
	if m.reverse {
		order += " reversed"
	}
	return "1-6 view  enter open  s sort: " + order + "  r reverse  / filter  ? help  q quit"
}

// helpLines explains the keys.
func helpLines(height int) []string {
	lines := []string{
		"",
		"  1 … 6, tab     " + strings.Join(ViewNames(), ", "),
		"  s              sort by rate, packets, round trip, or another column",
		"  r              the smallest first",
		"  /              filter, such as: proto tcp and dport 443",
		"  p, space       pause, and continue",
		"  arrows, pages  select a row; also j, k, g, G",
		"  enter          all that is known of the selected row; again: close",
		"  q              quit",
		"",
		"  Rates are those of the last interval. RTT is the round-trip time of the",
		"  TCP handshake that ended last in the history. A packet that is seen on",
		"  several interfaces counts once in totals; at an analyzer, also one that",
		"  several hosts saw, unless the second line says so.",
	}
	return lines[:min(len(lines), height)]
}

func align(s string, width int, right bool) string {
	s = term.Elide(s, width)
	if right {
		return runewidth.FillLeft(s, width)
	}
	return runewidth.FillRight(s, width)
}

func (m *model) fit(s string) string { return runewidth.Truncate(s, m.width, "") }

func (m *model) pad(s string) string { return runewidth.FillRight(m.fit(s), m.width) }

// plain replaces what a terminal without Unicode cannot show.
func (m *model) plain(s string) string {
	if !m.cfg.ASCII {
		return s
	}
	return asciiOnly.Replace(s)
}

var asciiOnly = strings.NewReplacer("→", ">", "←", "<", "…", "~", "µ", "u", "·", "?", "×", "x")
