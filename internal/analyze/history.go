package analyze

import (
	"context"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// history answers for all hosts.
type history struct{ a *Analyzer }

func (h history) fleet() (f query.Fleet) {
	for _, one := range h.a.all() {
		f = append(f, query.Executor{Host: one.name, Sources: []query.Source{one.disk}})
	}
	return f
}

// Query implements api.History.
func (h history) Query(ctx context.Context, p query.Plan) (query.Answer, error) {
	return h.fleet().Answer(ctx, p)
}

// Explain implements api.History.
func (h history) Explain(p query.Plan) (query.Explanation, error) { return h.fleet().Explain(p) }

// liveEvery is how often those who follow get what came meanwhile, and liveMost how many intervals that may be.
const (
	liveEvery = 5 * time.Second
	liveMost  = 4096
)

// live are the intervals that came since somebody who follows got some.
type live struct {
	every     time.Duration
	mu        sync.Mutex
	followers map[*follower]bool
}

type follower struct {
	came   []came
	missed uint64
}

// came is an interval of a host.
type came struct {
	host  string
	ended store.Ended
}

func (l *live) add(host string, e store.Ended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.followers {
		if len(f.came) >= liveMost {
			f.missed++
			continue
		}
		f.came = append(f.came, came{host, e})
	}
}

// period are intervals of all hosts, which are answered for like one interval of an agent.
type period struct {
	list    []came
	missed  uint64
	scratch query.Scratch
}

// Answer implements store.Period.
func (p *period) Answer(plan query.Plan) query.Answer {
	var groups []query.Groups
	for _, c := range p.list {
		groups = append(groups, store.Group(plan.OfHost(c.host), nil, []store.Ended{c.ended}))
	}
	a := plan.Collect(groups, &p.scratch)
	a.Missed = p.missed
	return a
}

// Follow implements api.History.
func (h history) Follow(ctx context.Context, began func(), emit func(store.Period) error) error {
	f := &follower{}
	l := &h.a.live
	l.mu.Lock()
	l.followers[f] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.followers, f)
		l.mu.Unlock()
	}()
	if began != nil {
		began()
	}
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		l.mu.Lock()
		p := &period{list: f.came, missed: f.missed}
		f.came, f.missed = nil, 0
		l.mu.Unlock()
		if len(p.list) == 0 {
			continue
		}
		if err := emit(p); err != nil {
			return err
		}
	}
}
