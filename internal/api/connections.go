package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections bounds the connections of each listener. Whoever comes is accepted;
// when there are too many, the one leaves that has been without a request for the
// longest time. So connections that say nothing keep nobody out.
type connections struct {
	most int // of each class

	mu      sync.Mutex
	open    map[net.Conn]*connection
	evicted uint64
}

// connection is one of them.
type connection struct {
	class string    // of listeners that share a bound
	busy  bool      // a request is being answered
	kept  bool      // as one of a class with a bound of its own: it does not leave
	since time.Time // of busy
}

func newConnections(most int) *connections {
	return &connections{most: most, open: map[net.Conn]*connection{}}
}

// follow is the ConnState of an http.Server that keeps account.
func (c *connections) follow(class string) func(net.Conn, http.ConnState) {
	return func(conn net.Conn, state http.ConnState) { c.note(class, conn, state) }
}

func (c *connections) note(class string, conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = &connection{class: class, since: time.Now()}
		c.evict(conn)
	case http.StateActive, http.StateIdle:
		if n := c.open[conn]; n != nil {
			n.busy, n.since = state == http.StateActive, time.Now()
		}
	case http.StateHijacked, http.StateClosed:
		delete(c.open, conn)
	}
}

// evict closes the connection that can be spared best, if there are too many.
func (c *connections) evict(newest net.Conn) {
	class := c.open[newest].class
	var spare net.Conn
	count := 0
	for conn, n := range c.open {
		if n.class != class {
			continue
		}
		count++
		if conn == newest || n.kept {
			continue
		}
		if s := c.open[spare]; s == nil || s.busy && !n.busy || s.busy == n.busy && n.since.Before(s.since) {
			spare = conn
		}
	}
	if count <= c.most {
		return
	}
	if spare == nil { // all are of bounded classes, which leave room for others
		spare = newest
	}
	c.evicted++
	delete(c.open, spare)
	spare.Close()
}

// connKey finds the connection of a request in its context.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// keep exempts the connection of a request from leaving until release.
func (c *connections) keep(ctx context.Context) (release func()) {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	set := func(kept bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := c.open[conn]; n != nil {
			n.kept = kept
		}
	}
	set(true)
	return func() { set(false) }
}

// count is how many there are, and how many had to leave.
func (c *connections) count() (open int, evicted uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.evicted
}
