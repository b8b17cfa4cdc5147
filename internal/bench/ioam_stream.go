package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
)

// ioamStream is a connection from the first host of a chain to the last, both ends of which belong to one thread: no
// scheduler decides how much is on its way.
type ioamStream struct {
	sender, receiver int
	buf              []byte
}

// openStream connects to a port of the last host. The sender's socket puts the Hop-by-Hop header into each packet.
func openStream(ctx context.Context, l *lab.Lab, port int, header string) (s *ioamStream, err error) {
	hosts := l.Hosts()
	s = &ioamStream{sender: -1, receiver: -1, buf: make([]byte, 128<<10)}
	if err := s.connect(ctx, hosts[0], hosts[len(hosts)-1], port); err != nil {
		s.close()
		return nil, err
	}
	if header != "" {
		if err := unix.SetsockoptString(s.sender, unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, header); err != nil {
			s.close()
			return nil, fmt.Errorf("setting the Hop-by-Hop header: %w", err)
		}
	}
	return s, nil
}

// move takes so many bytes through the chain. Returned is the CPU time of the thread, in which Linux forwards packets, too,
// and of the kernel's thread that takes over where these are too many.
func (s *ioamStream) move(n int) (took time.Duration, err error) {
	err = onProcessor(senderProcessor, func() error {
		kernel := kernelOf()
		before, err := threadTime()
		if err != nil {
			return err
		}
		since := kernel()
		if err := s.transfer(n); err != nil {
			return err
		}
		after, err := threadTime()
		took = after - before + kernel() - since
		return err
	})
	return took, err
}

func (s *ioamStream) transfer(n int) error {
	for sent, got := 0, 0; got < n; {
		w, err := again(unix.Write(s.sender, s.buf[:min(n-sent, len(s.buf))]))
		if err != nil {
			return fmt.Errorf("sending: %w", err)
		}
		r, err := again(unix.Read(s.receiver, s.buf))
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		sent, got = sent+w, got+r
		if w+r > 0 {
			continue
		}
		wait := []unix.PollFd{{Fd: int32(s.receiver), Events: unix.POLLIN}}
		if sent < n {
			wait = append(wait, unix.PollFd{Fd: int32(s.sender), Events: unix.POLLOUT})
		}
		if ready, err := unix.Poll(wait, int(patience.Milliseconds())); err == nil && ready == 0 {
			return fmt.Errorf("%d of %d bytes arrived within %v", got, n, patience)
		}
	}
	return nil
}

// again is 0 bytes where a socket would have to wait.
func again(n int, err error) (int, error) {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return n, err
}

func (s *ioamStream) close() {
	for _, fd := range []int{s.sender, s.receiver} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// connect makes both sockets.
func (s *ioamStream) connect(ctx context.Context, from, to *lab.Host, port int) error {
	var listener net.Listener
	if err := to.Do(func() (err error) {
		l := net.ListenConfig{Control: steadySocket}
		listener, err = l.Listen(ctx, "tcp6", netip.AddrPortFrom(to.Addr6(), uint16(port)).String())
		return err
	}); err != nil {
		return fmt.Errorf("listening on %s: %w", to.Name, err)
	}
	defer listener.Close()
	var near net.Conn
	if err := from.Do(func() (err error) {
		d := net.Dialer{Timeout: patience, Control: steadySocket}
		near, err = d.DialContext(ctx, "tcp6", listener.Addr().String())
		return err
	}); err != nil {
		return fmt.Errorf("connecting %s to %s: %w", from.Name, to.Name, err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		return fmt.Errorf("accepting a connection: %w", err)
	}
	defer far.Close()
	if s.sender, err = copyOf(near); err != nil {
		return err
	}
	s.receiver, err = copyOf(far)
	return err
}

// steady has TCP behave alike in all modes: it sends what the window allows, at once, and its buffers do not grow. Others
// than Linux's default congestion control may pace, as BBR does, by timers that take more CPU time on virtual machines than
// the chain does; and how often a receiver acknowledges depends on how far its buffer has grown.
func steady(fd uintptr) error {
	if err := unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic"); err != nil {
		return fmt.Errorf("choosing cubic as congestion control: %w", err)
	}
	for _, buffer := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, buffer, socketBuffer); err != nil {
			return fmt.Errorf("setting the size of a socket's buffer: %w", err)
		}
	}
	return nil
}

// socketBuffer is more than is ever on its way.
const socketBuffer = 4 << 20

// steadySocket is for net.ListenConfig and net.Dialer: what is accepted inherits it.
func steadySocket(_, _ string, c syscall.RawConn) (err error) {
	return errors.Join(c.Control(func(fd uintptr) { err = steady(fd) }), err)
}

// copyOf is a connection's socket, which does not block.
func copyOf(c net.Conn) (fd int, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	dupErr := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(dupErr, err); err != nil {
		return -1, fmt.Errorf("copying a socket: %w", err)
	}
	return fd, nil
}

// kernelOf finds that thread once: to look through all processes takes longer than a turn, and the caches with it.
var kernelOf = sync.OnceValue(func() func() time.Duration { return kernelThread(senderProcessor) })

// kernelThread returns what reads the CPU time of the kernel's thread that takes over packets on a
// busy CPU; 0 where it cannot be seen.
func kernelThread(cpu int) func() time.Duration {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if text, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(text)) != fmt.Sprintf("ksoftirqd/%d", cpu) {
			continue
		}
		file := filepath.Join(filepath.Dir(name), "schedstat")
		return func() time.Duration {
			text, err := os.ReadFile(file)
			if err != nil {
				return 0
			}
			ns, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
			return time.Duration(ns)
		}
	}
	return func() time.Duration { return 0 }
}
