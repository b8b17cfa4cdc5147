package api

import (
	"net"
	"sync"
)

// limitListener accepts no more than so many connections at a time; further ones
// wait in the kernel's queue.
type limitListener struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, n int) net.Listener {
	return &limitListener{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitConn{Conn: conn, free: l.free}, nil
}

// Close implements net.Listener.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitConn struct {
	net.Conn
	free chan struct{}
	once sync.Once
}

// NetConn is the connection itself.
func (c *limitConn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.free })
	return err
}
