package view

import (
	"math"

	"github.com/mattn/go-runewidth"

	"github.com/waymark-net/waymark/internal/api"
)

// Fit leaves out columns, the least important first, until the rest can be read
// in a width. Columns that tell rows apart stay; they are shortened where nothing
// else is left to go. What one answer left out stays out for the next, so that the columns
// of a table that is followed stay the same. The zero Fit leaves out nothing.
type Fit struct {
	Width int // 0: there is no limit

	brief bool // cells have their short form
	least int  // columns that are as dispensable as this are left out; 0: none
}

// Columns are those that are shown.
func (f *Fit) Columns(m Merging, columns []Column, rows []api.Row) []Column {
	if f.Width <= 0 {
		return columns
	}
	f.brief = f.brief || needed(m, columns, rows, true) > f.Width
	if !f.brief {
		return columns
	}
	columns = f.reduced(columns)
	for needed(m, columns, rows, false) > f.Width {
		most := 0
		for _, c := range columns {
			most = max(most, c.dispensable)
		}
		if most == 0 {
			break
		}
		f.least = most
		columns = f.reduced(columns)
	}
	return columns
}

func (f *Fit) reduced(columns []Column) []Column {
	least := f.least
	if least == 0 {
		least = math.MaxInt
	}
	var kept []Column
	for _, c := range columns {
		if c.dispensable >= least {
			continue
		}
		if c.brief != nil {
			c.cell = c.brief
		}
		kept = append(kept, c)
	}
	return kept
}

// needed is the width in which columns can be read; whole: in which nothing is
// shortened.
func needed(m Merging, columns []Column, rows []api.Row, whole bool) int {
	const gap = 2
	sum := -gap
	for _, c := range columns {
		n := runewidth.StringWidth(c.Title)
		for i := range rows {
			n = max(n, runewidth.StringWidth(c.cell(m, &rows[i])))
		}
		if !whole && c.enough > 0 {
			n = min(n, max(c.enough, runewidth.StringWidth(c.Title)))
		}
		sum += n + gap
	}
	return sum
}
