package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Fleet answers plans about the records of several hosts. Intervals of different hosts have nothing in common: each
// host has numbers of its own.
type Fleet []Executor

// Answer answers a plan.
func (f Fleet) Answer(ctx context.Context, p Plan) (Answer, error) {
	asked, err := f.open(&p)
	if err != nil {
		return Answer{}, err
	}
	if p.Everywhere || !asked.severalHosts() {
		return answerFrom(ctx, &p, asked)
	}
	defer asked.close()
	ctx, cancel := context.WithTimeout(ctx, p.Budget.Time)
	defer cancel()
	n := asked.nearest(ctx, &p)
	p.CountNearest(n)
	answer, err := asked.rows(ctx, &p)
	answer.Nearest(n)
	return answer, err
}

// severalHosts reports whether more than one host has records.
func (a asked) severalHosts() bool {
	first := ""
	for i := range a {
		switch span := a[i].engine.Span(); {
		case span.First == 0:
		case first == "":
			first = a[i].host
		case a[i].host != first:
			return true
		}
	}
	return false
}

// nearest finds the host that each flow counts at, in half of the time: the answer needs the other half.
func (a asked) nearest(ctx context.Context, p *Plan) *Nearest {
	ctx, cancel := context.WithTimeout(ctx, p.Budget.Time/2)
	defer cancel()
	n := NewNearest(p.Budget)
	for i := range a {
		s := &a[i]
		e, ok := s.engine.(Sighter)
		if !ok {
			n.Fail("records of " + s.host + " are in a store that does not compare hosts (" + s.engine.Name() + ")")
			break
		}
		err := e.Sightings(ctx, p.part(s), s.before, n.Of(s.host))
		switch {
		case ctx.Err() != nil:
			n.Fail(fmt.Sprintf("half of the time of the query (%v) was too short to compare hosts: ask for less time, filter by address, or allow more with timeout", p.Budget.Time))
		case err != nil:
			n.Fail(err.Error())
		}
		if n.why != "" {
			break
		}
	}
	n.forget()
	return n
}

// Explain says what a plan will take, without running it.
func (f Fleet) Explain(p Plan) (Explanation, error) {
	asked, err := f.open(&p)
	if err != nil {
		return Explanation{}, err
	}
	twice := !p.Everywhere && asked.severalHosts()
	e := asked.explain(&p)
	if twice { // a first pass compares the hosts
		e.twice()
		for i := range e.Engines {
			e.Engines[i].twice()
		}
	}
	return e, nil
}

// open are the engines of the hosts that a plan is about, after it was checked.
func (f Fleet) open(p *Plan) (all asked, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	for _, name := range p.Hosts {
		if !slices.ContainsFunc(f, func(x Executor) bool { return x.Host == name }) {
			return nil, fmt.Errorf("no records of host %s: there are those of %s", name, strings.Join(f.names(), ", "))
		}
	}
	for i := range f {
		if !p.Wants(f[i].Host) {
			continue
		}
		list := f[i].open(p)
		for k := range list {
			list[k].host = f[i].Host
		}
		all = append(all, list...)
	}
	return all, nil
}

func (f Fleet) names() []string {
	names := make([]string, len(f))
	for i := range f {
		names[i] = f[i].Host
	}
	return names
}

// OfHost is the plan for an engine that has records of one of several hosts.
func (p *Plan) OfHost(name string) *Plan { return p.part(&share{after: p.after, host: name}) }

// short says why the engines of some host do not reach back to a time; a host that joined later is no reason where
// others reach back.
func (a asked) short(since time.Time) (why Short) {
	for from := 0; from < len(a); {
		to := from + 1
		for to < len(a) && a[to].host == a[from].host {
			to++
		}
		switch one := short(a[from:to].spans(), since); {
		case one == ShortHistory:
			return one
		case from == 0:
			why = one
		case one == "":
			why = ""
		}
		from = to
	}
	return why
}
