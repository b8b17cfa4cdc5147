// Package ownsocket makes the sockets known by which the agent sends what it exports: programs at egress insert
// nothing into their packets (RFC 9326 section 3.1). Input: a socket. Output: a priority of it
// that nothing else has, and which the kernel copies into each packet. Called by the exporters.
package ownsocket

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Priority is that of the sockets, as MARK_OWN_PRIORITY in bpf/mark/abi.h. Its low bits are those of best effort,
// so queueing disciplines do with the packets what they do with others.
const Priority = 0x574d0000

// Set sets the priority. It needs CAP_NET_ADMIN, without which no program inserts anything, either.
func Set(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, Priority)
}

// Control is Set for net.Dialer and net.ListenConfig.
func Control(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { Set(int(fd)) })
}

// Listener is l with Set for each connection: these do not inherit the priority.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = Control("", "", raw)
		}
	}
	return c, err
}
