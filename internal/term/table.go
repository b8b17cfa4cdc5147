// Package term makes text for people at terminals: numbers with units and tables
// that fit. Input: values and cells. Output: lines. Caller: the command line.
package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"
)

// Column is one column of a table.
type Column struct {
	Title string
	Right bool // numbers stand at the right
	Least int  // what it may shrink to where the terminal is narrow; 0: not at all
}

// Table is text in columns, aligned by what a terminal shows.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// gap stands between columns.
const gap = "  "

// Add appends a row. Names come from outside, so nothing that a terminal would
// act upon gets through.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Printable(cell)
	}
	t.Rows = append(t.Rows, row)
}

// Widths measures the columns, and shrinks those that may until all fit into
// width; 0: there is no limit. least are widths from before that columns keep.
func (t *Table) Widths(width int, least []int) []int {
	w := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		w[i] = runewidth.StringWidth(c.Title)
		if i < len(least) {
			w[i] = max(w[i], least[i])
		}
		for _, row := range t.Rows {
			w[i] = max(w[i], runewidth.StringWidth(row[i]))
		}
	}
	if width <= 0 {
		return w
	}
	total := len(gap) * (len(w) - 1)
	for _, n := range w {
		total += n
	}
	for total > width {
		// The widest goes first, so that those of the same kind end up alike.
		widest := -1
		for i, c := range t.Columns {
			if c.Least > 0 && w[i] > c.Least && (widest < 0 || w[i] > w[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		w[widest]--
		total--
	}
	return w
}

// Write prints title and rows.
func (t *Table) Write(out io.Writer, width int) error {
	w := t.Widths(width, nil)
	if err := t.WriteTitle(out, w); err != nil {
		return err
	}
	return t.WriteRows(out, w)
}

func (t *Table) WriteTitle(out io.Writer, w []int) error {
	cells := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		cells[i] = c.Title
	}
	_, err := io.WriteString(out, t.line(cells, w)+"\n")
	return err
}

func (t *Table) WriteRows(out io.Writer, w []int) error {
	var b strings.Builder
	for _, row := range t.Rows {
		b.WriteString(t.line(row, w))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// line aligns cells; there are no blanks at its end.
func (t *Table) line(cells []string, w []int) string {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString(gap)
		}
		cell = Elide(cell, w[i])
		pad := strings.Repeat(" ", max(w[i]-runewidth.StringWidth(cell), 0))
		if t.Columns[i].Right {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Elide shortens a text to a width by leaving out its middle: both ends of an
// address tell more than its beginning alone.
func Elide(s string, width int) string {
	if runewidth.StringWidth(s) <= width {
		return s
	}
	if width <= 1 {
		return runewidth.Truncate(s, width, "")
	}
	tail := (width - 1) / 2
	head := width - 1 - tail
	runes := []rune(s)
	end := len(runes)
	for n := 0; end > 0 && n+runewidth.RuneWidth(runes[end-1]) <= tail; end-- {
		n += runewidth.RuneWidth(runes[end-1])
	}
	return runewidth.Truncate(s, head, "") + "…" + string(runes[end:])
}

// Printable replaces what a terminal would act upon.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// Width is the width of the terminal that out is; 0: it is none, or does not say.
func Width(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// IsTerminal reports whether out is a terminal, of whatever width.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Heading writes the title of a part of a page.
func Heading(out io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(out, "\n"+format+"\n", args...)
	return err
}
