package analyze

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

// liveEvery is how often those who follow get what came meanwhile, and liveMost how many intervals that may be.
const (
	liveEvery = 5 * time.Second
	liveMost  = 4096
)

// recentPeriods is for how many periods it is remembered, at least, at which host flows count: intervals of hosts come one after
// the other.
const recentPeriods = 24

// recentFlows is how many flows are compared then, for each filter that somebody follows: they take up to 65 MB.
const recentFlows = 1 << 18

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
	number  uint64
	list    []came
	missed  uint64
	recent  map[string]*recent // by hosts and filter
	scratch query.Scratch
}

// recent are the flows of the last periods that match a filter, and those of fewer periods, which replace them.
type recent struct {
	flows, next *query.Nearest
	began, last uint64 // periods: of next, and the one added last
}

func newRecent() *query.Nearest { return query.NewNearest(query.Budget{Flows: recentFlows}) }

// Answer implements store.Period.
func (p *period) Answer(plan query.Plan) query.Answer {
	var n *query.Nearest
	if !plan.Everywhere {
		n = p.nearest(&plan)
		plan.CountNearest(n)
	}
	var groups []query.Groups
	for _, c := range p.of(&plan) {
		groups = append(groups, store.Group(plan.OfHost(c.host), nil, []store.Ended{c.ended}))
	}
	a := plan.Collect(groups, &p.scratch)
	a.Missed = p.missed
	if n != nil {
		a.Nearest(n)
	}
	return a
}

// of are the intervals of the hosts that a plan is about.
func (p *period) of(plan *query.Plan) (list []came) {
	for _, c := range p.list {
		if plan.Wants(c.host) {
			list = append(list, c)
		}
	}
	return list
}

// nearest says at which host flows count, as far as is known by now.
func (p *period) nearest(plan *query.Plan) *query.Nearest {
	key := strings.Join(plan.Hosts, ",") + " " + plan.Filter.String()
	r := p.recent[key]
	if r == nil {
		r = &recent{flows: newRecent(), next: newRecent(), began: p.number}
		p.recent[key] = r
	}
	if r.last == p.number {
		return r.flows
	}
	if r.last = p.number; p.number-r.began >= recentPeriods {
		r.flows, r.next, r.began = r.next, newRecent(), p.number
	}
	for _, c := range p.of(plan) {
		for _, n := range []*query.Nearest{r.flows, r.next} {
			c.ended.Sightings(plan.Records(), n.Of(c.host))
		}
	}
	return r.flows
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
	recents := map[string]*recent{}
	for number := uint64(1); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		l.mu.Lock()
		p := &period{number: number, list: f.came, missed: f.missed, recent: recents}
		f.came, f.missed = nil, 0
		l.mu.Unlock()
		if len(p.list) == 0 {
			continue
		}
		if err := emit(p); err != nil {
			return err
		}
		for key, r := range recents {
			if r.last < number { // nobody asks any more
				delete(recents, key)
			}
		}
		number++
	}
}
