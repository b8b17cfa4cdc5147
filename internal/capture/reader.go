package capture

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reader waits for the rings in one goroutine: counting a packet costs a small
// part of what receiving it has cost the kernel.
type reader struct {
	c     *Capture
	epoll int
	file  *os.File // the epoll instance, for Go's poller to wait on
	done  chan struct{}
}

func startReader(c *Capture) (*reader, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making an epoll instance: %w", err)
	}
	if err := unix.SetNonblock(epoll, true); err != nil { // or Go would not poll it
		unix.Close(epoll)
		return nil, fmt.Errorf("making an epoll instance non-blocking: %w", err)
	}
	r := &reader{c: c, epoll: epoll, file: os.NewFile(uintptr(epoll), "epoll"), done: make(chan struct{})}
	conn, err := r.file.SyscallConn()
	if err != nil {
		r.file.Close()
		return nil, fmt.Errorf("waiting for packets: %w", err)
	}
	go r.run(conn)
	return r, nil
}

func (r *reader) watch(ring *ring) error { return r.add(ring.fd) }

func (r *reader) add(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("waiting for descriptor %d: %w", fd, err)
	}
	return nil
}

// stop ends the goroutine and waits for it.
func (r *reader) stop() {
	_ = r.file.SetReadDeadline(time.Unix(1, 0))
	<-r.done
	r.file.Close()
}

// run never blocks a thread in the kernel: a thread that enters a system call
// indefinitely may do so while Go stops the world, which then waits for it.
func (r *reader) run(conn syscall.RawConn) {
	defer close(r.done)
	events := make([]unix.EpollEvent, 64)
	for {
		var n int
		var failed error
		err := conn.Read(func(uintptr) bool {
			n, failed = unix.EpollWait(r.epoll, events, 0)
			return n != 0 || failed != nil
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if errors.Is(failed, unix.EINTR) {
			continue
		}
		if err = errors.Join(err, failed); err != nil {
			r.c.log.Error("no more packets are counted", "error", fmt.Errorf("waiting for packets: %w", err))
			return
		}
		for _, e := range events[:n] {
			r.c.ready(int(e.Fd), e.Events)
		}
	}
}

// ready counts what a ring has, block by block, so that others get their turn.
func (c *Capture) ready(fd int, events uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rings {
		if r.fd != fd { // the event may be older than a detach
			continue
		}
		r.read(c.meter)
		if events&unix.EPOLLERR == 0 {
			return
		}
		if err := r.socketError(); err != nil {
			c.log.Warn("packet socket", "iface", r.target.Name, "error", err)
		}
		return
	}
}

// wait is up to timeout for the next block; false when it did not come.
func (r *ring) wait(timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, max(0, int(time.Until(deadline).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case n > 0 && fds[0].Revents&unix.POLLIN == 0 && fds[0].Revents&unix.POLLERR != 0:
			// The interface went down. What came before is handed over all the
			// same, once the error is fetched.
			if r.socketError() == nil {
				continue
			}
		}
		return n > 0 && fds[0].Revents&unix.POLLIN != 0
	}
}
