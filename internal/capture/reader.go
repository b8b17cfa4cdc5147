package capture

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// reader waits for the rings in one goroutine: counting a packet costs a small
// part of what receiving it has cost the kernel.
type reader struct {
	c     *Capture
	epoll int
	wake  int // eventfd: end
	done  chan struct{}
}

func startReader(c *Capture) (*reader, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making an epoll instance: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("making an eventfd: %w", err)
	}
	r := &reader{c: c, epoll: epoll, wake: wake, done: make(chan struct{})}
	if err := r.add(wake); err != nil {
		unix.Close(wake)
		unix.Close(epoll)
		return nil, err
	}
	go r.run()
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
	_, _ = unix.Write(r.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-r.done
	unix.Close(r.wake)
	unix.Close(r.epoll)
}

func (r *reader) run() {
	defer close(r.done)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(r.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			r.c.log.Error("no more packets are counted", "error", fmt.Errorf("waiting for packets: %w", err))
			return
		}
		for _, e := range events[:n] {
			if int(e.Fd) == r.wake {
				return
			}
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
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, max(0, int(timeout.Milliseconds())))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0 && fds[0].Revents&unix.POLLIN != 0
	}
}
