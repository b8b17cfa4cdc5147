package query

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
)

// A plan with steps chooses its groups by all their time; then each step of them is a row. Where there are few groups, one
// pass over all of them says both; else a first pass chooses, and a second one has the steps of what was chosen.

// mostAtOnce is how many rows, groups times steps, one pass may have.
const mostAtOnce = 1 << 14

// errFull ends a pass that has more.
var errFull = errors.New("more rows than one pass may have")

// Full has a plan report that an engine has more rows than the plan allows; it reports whether the engine may stop then,
// because nobody reads what it has.
func (p *Plan) Full() bool {
	if p.full == nil {
		return false
	}
	p.full.Store(true)
	return true
}

// series answers a plan with steps.
func (a asked) series(ctx context.Context, p *Plan) (Answer, error) {
	answer, err := a.atOnce(ctx, p)
	if !errors.Is(err, errFull) {
		return answer, err
	}
	whole := *p
	whole.Step = 0
	if answer, err = a.answer(ctx, &whole, &Scratch{}); err != nil {
		return answer, err
	}
	part := *p
	g := part.choose(answer.Rows)
	part.Limit, part.rows, part.unsorted = 0, filter.Filter{}, true // these are of the whole time
	steps, err := a.answer(ctx, &part, &Scratch{})
	if err != nil {
		return steps, err
	}
	if answer.Partial == "" {
		answer.Partial = steps.Partial
	}
	answer.steps(&part, g, steps.Rows)
	return answer, nil
}

// steps has the rows of an answer be those of steps, in the order of their groups.
func (a *Answer) steps(p *Plan, g *Grouping, rows []Row) {
	a.Whole, a.Step, a.Rows = a.Rows, p.Step, p.inOrder(rows, g)
}

// atOnce answers in one pass; errFull: there are too many rows for that. What is measured of repeated packets belongs to no
// row of a step, so that only sums may be added up.
func (a asked) atOnce(ctx context.Context, p *Plan) (Answer, error) {
	all := *p
	all.Limit, all.unsorted, all.full, all.Budget.Rows = 0, true, &atomic.Bool{}, min(p.Budget.Rows, mostAtOnce)
	if !p.summed() || p.RoundTrips() || p.By.Whole() { // rows of flows have more than sums
		return Answer{}, errFull
	}
	answer, err := a.answer(ctx, &all, &Scratch{})
	if err != nil {
		return answer, err
	}
	if len(answer.Rows) > mostAtOnce {
		return answer, errFull
	}
	rows := answer.Rows
	answer.Rows, answer.Groups = p.added(rows)
	part := *p
	g := part.choose(answer.Rows)
	answer.steps(&part, g, slices.DeleteFunc(rows, func(w Row) bool { _, is := part.only[g.base(&w)]; return !is }))
	return answer, nil
}

// added are the first of the groups that rows of steps add up to, and how many groups there are.
func (p *Plan) added(rows []Row) (first []Row, groups int) {
	g := NewGrouping(p)
	whole := make(map[Digest]*Row)
	for i := range rows {
		d := g.base(&rows[i])
		w, ok := whole[d]
		if ok {
			w.Merge(&rows[i], false)
			continue
		}
		row := rows[i]
		row.Digest, row.Time = d, time.Time{}
		whole[d] = &row
	}
	t := newTop(p, len(whole), &Scratch{})
	for _, w := range whole {
		t.offer(w)
	}
	return t.sorted(), len(whole)
}

// inOrder are rows of steps in the order of their groups and times. Rows are large: each is moved once.
func (p *Plan) inOrder(rows []Row, g *Grouping) []Row {
	type place struct{ group, row int }
	places := make([]place, len(rows))
	for i := range rows {
		places[i] = place{p.only[g.base(&rows[i])], i}
	}
	slices.SortFunc(places, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.group, y.group), rows[x.row].Time.Compare(rows[y.row].Time))
	})
	list := make([]Row, len(rows))
	for i, at := range places {
		list[i] = rows[at.row]
	}
	return list
}
