package query

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
)

// Executor answers plans from several sources.
type Executor struct {
	Host    string   // whose records the sources have
	Sources []Source // newest first: an interval that two have is asked of the first
}

// Answer answers a plan.
func (x *Executor) Answer(ctx context.Context, p Plan) (Answer, error) {
	if err := p.Check(); err != nil {
		return Answer{}, err
	}
	if err := p.wants(x.Host); err != nil {
		return Answer{}, err
	}
	return answerFrom(ctx, &p, x.open(&p))
}

func answerFrom(ctx context.Context, p *Plan, asked asked) (Answer, error) {
	defer asked.close()
	ctx, cancel := context.WithTimeout(ctx, p.Budget.Time)
	defer cancel()
	return asked.rows(ctx, p)
}

// rows answers with one row for each group, or for each step of one.
func (a asked) rows(ctx context.Context, p *Plan) (Answer, error) {
	if p.Step == 0 {
		return a.answer(ctx, p, &Scratch{})
	}
	return a.series(ctx, p)
}

// Explanation is what a plan will take.
type Explanation struct {
	Cost
	Engines []EngineCost `json:"engines"`
	Budget  string       `json:"over_budget,omitempty"` // why the answer will be partial; absent: it will not, as far as is known
}

// EngineCost is what a plan will take of one engine.
type EngineCost struct {
	Engine string `json:"engine"`
	Cost
	Host string `json:"host,omitempty"` // where there are several
}

// Explain says what a plan will take, without running it.
func (x *Executor) Explain(p Plan) (e Explanation, err error) {
	if err := p.Check(); err != nil {
		return e, err
	}
	if err := p.wants(x.Host); err != nil {
		return e, err
	}
	return x.open(&p).explain(&p), nil
}

func (a asked) explain(p *Plan) (e Explanation) {
	defer a.close()
	asked := a
	for _, pass := range []*Plan{p.counted(), p.ranked()} {
		if pass != nil && asked.counts(pass) {
			asked = asked.divided(pass)
			break
		}
	}
	for i := range asked {
		c := EngineCost{asked[i].engine.Name(), asked[i].engine.Explain(p.part(&asked[i]), asked[i].before), asked[i].host}
		e.Cost.add(c.Cost)
		e.Engines = append(e.Engines, c)
	}
	e.Budget = e.Cost.Over(p.Budget)
	return e
}

// asked are engines with their ranges, oldest first.
type asked []share

// share is the range of an engine: all intervals with numbers above after and below before.
type share struct {
	engine        Engine
	after, before uint64
	host          string // whose intervals they are; empty: those of the host that answers
}

// open divides the intervals between the sources. The newest is opened first: what moves from
// it to an older one meanwhile is asked of it alone. Where it has forgotten intervals, its first
// one is asked of the older one, which knows what was seen in the one before that.
func (x *Executor) open(p *Plan) asked {
	var list asked
	before, forgot, all := ^uint64(0), false, false
	for i, s := range x.Sources {
		if far, is := s.(Far); is && (all || !far.Far()) {
			continue
		}
		e := s.Open()
		span := e.Span()
		all = all || span.has(p)
		if forgot && span.Last >= before {
			list[i-1].after = before
			before++
		}
		list = append(list, share{engine: e, before: before})
		if span.First > 0 {
			before, forgot = min(before, span.First), !span.Dropped.IsZero()
		}
	}
	slices.Reverse(list)
	return list
}

func (a asked) close() {
	for i := range a {
		a[i].engine.Close()
	}
}

func (a asked) spans() (list []Span) {
	for i := range a {
		list = append(list, a[i].engine.Span())
	}
	return list
}

// counts reports whether some engine is faster in a pass over counters alone.
func (a asked) counts(pass *Plan) bool {
	return slices.ContainsFunc(a, func(s share) bool {
		c, ok := s.engine.(Counter)
		return ok && c.Counts(pass)
	})
}

// divided has an engine that is faster in such a pass be asked for intervals that a newer one has, too: unless the newer one
// has all that is asked for.
func (a asked) divided(pass *Plan) asked {
	list := slices.Clone(a)
	for i := range list[:max(0, len(list)-1)] {
		c, ok := list[i].engine.(Counter)
		newer := &list[i+1]
		span := newer.engine.Span()
		if list[i].host != newer.host || !ok || !c.Counts(pass) || span.First == 0 || !pass.Since.Before(span.Oldest) {
			continue
		}
		if first, last := c.Settled(); first <= span.First && last >= span.First {
			last = min(last, span.Last)
			list[i].before, newer.after = last+1, last
		}
	}
	return list
}

// answer runs a checked plan: over counters alone, or in two passes, where some engine is faster so.
func (a asked) answer(ctx context.Context, p *Plan, sc *Scratch) (Answer, error) {
	if pass := p.counted(); pass != nil && a.counts(pass) {
		return a.fast(ctx, pass, sc)
	}
	first := p.ranked()
	if first == nil || !a.counts(first) {
		return a.pass(ctx, p, sc)
	}
	answer, err := a.fast(ctx, first, sc)
	if err != nil || len(answer.Rows) == 0 {
		return answer, err
	}
	second := *p
	second.choose(answer.Rows)
	rows, err := a.pass(ctx, &second, &Scratch{})
	answer.Rows = rows.Rows
	if answer.Partial == "" {
		answer.Partial = rows.Partial
	}
	return answer, err
}

// fast asks the engines divided for a pass over counters; again, where one found meanwhile that it does not have what a
// newer one may have.
func (a asked) fast(ctx context.Context, pass *Plan, sc *Scratch) (Answer, error) {
	list := a.divided(pass)
	answer, err := list.pass(ctx, pass, sc)
	if err != nil || answer.Lost == 0 {
		return answer, err
	}
	if again := a.divided(pass); !slices.EqualFunc(list, again, func(x, y share) bool { return x.before == y.before && x.after == y.after }) {
		return again.pass(ctx, pass, sc)
	}
	return answer, nil
}

// choose has only the groups of rows be meant.
func (p *Plan) choose(rows []Row) *Grouping {
	g := NewGrouping(p)
	p.only = make(map[Digest]int, len(rows))
	for i := range rows {
		p.only[g.base(&rows[i])] = i
	}
	p.prefixes = nil
	if len(rows) <= mostPrefixes && p.By.Columnar() {
		p.prefixes = prefixesOf(p.By.Keys, rows)
	}
	return g
}

// mostPrefixes is for how many rows engines get their prefixes.
const mostPrefixes = 1 << 8

// prefixesOf are the prefixes of rows by key; keys of which some row has no address are left out.
func prefixesOf(keys []Key, rows []Row) map[string][]netip.Prefix {
	all := map[string][]netip.Prefix{}
	for _, k := range keys {
		if !k.address() {
			continue
		}
		var list []netip.Prefix
		for i := range rows {
			p := rows[i].DstPrefix
			if k.Name == "src" {
				p = rows[i].SrcPrefix
			}
			if p.IsValid() {
				list = append(list, p)
			}
		}
		if len(list) == len(rows) {
			all[k.Name] = list
		}
	}
	return all
}

// pass asks all engines once.
func (a asked) pass(ctx context.Context, p *Plan, sc *Scratch) (Answer, error) {
	var groups []Groups
	for i := range a {
		g, err := a[i].engine.Run(ctx, p.part(&a[i]), a[i].before)
		if err != nil {
			return Answer{}, err
		}
		if groups = append(groups, g); p.full != nil && (p.full.Load() || g.Count > mostAtOnce) {
			return Answer{}, errFull
		}
	}
	answer := p.Collect(groups, sc)
	answer.Short, answer.Oldest = a.short(p.Since), oldest(a.spans())
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return Answer{}, err
	}
	return answer, nil
}

// Collect merges groups of engines, oldest first, ranks and cuts.
func (p *Plan) Collect(groups []Groups, sc *Scratch) Answer {
	var all Sums
	a := Answer{By: p.By.Keys, Asked: p.Since, AskedUntil: p.Until}
	g := NewGrouping(p)
	most := 0
	if len(groups) == 1 {
		most = groups[0].Count
	}
	groups, a.Groups = alone(groups)
	sums := make([]Sums, len(groups))
	if p.counters != nil {
		for i := range groups {
			groups[i].Rows = counting(groups[i].Rows, &sums[i], g.once)
		}
	}
	top := newTop(p, most, sc)
	for row := range Merged(groups, g.whole) {
		row.Finish()
		if row.Records == 0 { // nothing but repeated packets
			if p.rows.Empty() && p.counters == nil {
				a.Repeated.Add(&row.repeated)
			}
			continue
		}
		if !p.rows.Empty() && !p.rows.Match(&row.Record) {
			continue
		}
		a.Groups++
		if p.counters == nil {
			all.Row(row, g.once)
		}
		top.offer(row)
	}
	if a.Rows = top.rows; !p.unsorted {
		a.Rows = top.sorted()
	}
	var r Report
	for i := range groups {
		r.add(&groups[i].Report)
		switch rest, counted := groups[i].Rest, groups[i].Sums; {
		case p.counters != nil && counted != nil:
			all.Add(counted)
		case p.counters != nil:
			all.Add(&sums[i])
		case rest != nil && p.rows.Empty():
			all.Row(rest, g.once)
		}
	}
	all.Repeated.Add(&a.Repeated)
	a.Records, a.Total, a.Repeated = all.Records, all.Total, all.Repeated
	a.From, a.To, a.Intervals, a.Summed, a.Lost, a.Partial = r.From, r.To, r.Intervals, r.Summed, r.Lost, r.Partial
	a.narrow(p, g)
	return a
}

// alone takes only the rows that may be the first ones where only one engine has any; left is how
// many others there are.
func alone(groups []Groups) (list []Groups, left int) {
	list = slices.Clone(groups)
	for i := range list {
		others := slices.ContainsFunc(list[:i], has) || slices.ContainsFunc(list[i+1:], has)
		if list[i].First != nil && !others {
			list[i].Rows, left = list[i].First, list[i].Left
		}
	}
	return list, left
}

func has(g Groups) bool { return g.Intervals > 0 }

// Merged merges groups that are sorted by digest; of equal ones, those of earlier engines
// come first.
func Merged(groups []Groups, whole bool) iter.Seq[*Row] {
	if len(groups) == 1 {
		return groups[0].Rows
	}
	return func(yield func(*Row) bool) {
		heads := make([]*Row, len(groups))
		nexts := make([]func() (*Row, bool), len(groups))
		for i := range groups {
			next, stop := iter.Pull(groups[i].Rows)
			defer stop()
			nexts[i] = next
			heads[i], _ = next()
		}
		for {
			first := -1
			for i, h := range heads {
				if h != nil && (first < 0 || h.Digest.Compare(heads[first].Digest) < 0) {
					first = i
				}
			}
			if first < 0 {
				return
			}
			row := *heads[first] // the engine uses its memory for the next
			heads[first], _ = nexts[first]()
			for i := range heads {
				if heads[i] != nil && heads[i].Digest == row.Digest {
					row.Merge(heads[i], whole)
					heads[i], _ = nexts[i]()
				}
			}
			if !yield(&row) {
				return
			}
		}
	}
}
