package timeline

import (
	"context"
	"encoding/json"
	"reflect"
	"time"
)

// Change is what a version has that the one before it has not.
type Change struct {
	Time    time.Time `json:"time"`
	Added   []string  `json:"added"` // nodes
	Removed []string  `json:"removed"`
	Changed []string  `json:"changed"`
	Missed  uint64    `json:"missed,omitempty"` // changes that the reader was too slow for
}

// Line is the change as JSON, for a stream of the API.
func (c Change) Line(missed uint64) ([]byte, error) {
	c.Missed = missed
	return json.Marshal(c)
}

// difference is the change from the newest version to another. A node whose connections differ has changed, too.
func (t *Timeline) difference(g *Graph) Change {
	c := Change{Time: g.Since, Added: []string{}, Removed: []string{}, Changed: []string{}}
	var before Graph
	if n := len(t.versions); n > 0 {
		before, _ = unpack(t.versions[n-1].data) // what cannot be read is no reason to stop
	}
	old, next := before.parts(), g.parts()
	for i := range g.Nodes {
		id := g.Nodes[i].ID
		switch was, ok := old[id]; {
		case !ok:
			c.Added = append(c.Added, id)
		case !reflect.DeepEqual(was, next[id]):
			c.Changed = append(c.Changed, id)
		}
	}
	for i := range before.Nodes {
		if id := before.Nodes[i].ID; next[id] == nil {
			c.Removed = append(c.Removed, id)
		}
	}
	return c
}

// part is a node with its edges, without its place.
type part struct {
	node  Node
	edges []Edge
}

func (g *Graph) parts() map[string]*part {
	all := map[string]*part{}
	for _, n := range g.Nodes {
		n.Tier, n.Order = 0, 0
		all[n.ID] = &part{node: n}
	}
	for _, e := range g.Edges {
		if p := all[e.From]; p != nil {
			p.edges = append(p.edges, e)
		}
	}
	return all
}

// tell passes a change on to those who follow; who is slow misses it.
func (t *Timeline) tell(c Change) {
	for w := range t.watchers {
		select {
		case w <- c:
		default:
		}
	}
}

// changesWaiting is how many changes wait for a follower.
const changesWaiting = 256

// Follow calls emit with each change from now on, until ctx ends.
func (t *Timeline) Follow(ctx context.Context, emit func(Change)) error {
	w := make(chan Change, changesWaiting)
	t.mu.Lock()
	t.watchers[w] = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-w:
			emit(c)
		}
	}
}
