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
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
)

// streamed is what a TCP transfer of a turn did.
type streamed struct {
	bytes     int
	wall      time.Duration
	processor time.Duration // of sender, receiver and the kernel's thread for packets
}

// perProcessor is the rate in Gbit for a second of CPU time.
func (s streamed) perProcessor() float64 { return 8 * float64(s.bytes) / float64(s.processor) }

// stream sends TCP over a new connection from the first host to the last, and measures it after a time. The socket puts
// the Hop-by-Hop header into each packet.
// Both ends and all between them share one CPU, which is then the limit. Where other work leaves them none of it, the
// time is doubled.
func stream(ctx context.Context, l *lab.Lab, header string, warm, lasts time.Duration) (s streamed, err error) {
	for longest := lasts + time.Minute; err == nil && (s.bytes == 0 || s.processor == 0); lasts *= 2 {
		if lasts > longest {
			return s, errors.New("nothing was received")
		}
		s, err = streamOnce(ctx, l, header, warm, lasts)
	}
	return s, err
}

func streamOnce(ctx context.Context, l *lab.Lab, header string, warm, lasts time.Duration) (s streamed, err error) {
	hosts := l.Hosts()
	sender, receiver, err := connect(ctx, hosts[0], hosts[len(hosts)-1])
	if err != nil {
		return s, err
	}
	defer sender.Close()
	defer receiver.Close()
	if header != "" {
		if err := unix.SetsockoptString(int(sender.Fd()), unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, header); err != nil {
			return s, fmt.Errorf("setting the Hop-by-Hop header: %w", err)
		}
	}
	kernel := kernelThread(senderProcessor)
	begin := time.Now().Add(warm)
	end := begin.Add(lasts)
	sent, received := make(chan transferEnd, 1), make(chan transferEnd, 1)
	go func() {
		sent <- transferPart(sender, true, begin, end)
		_ = unix.Shutdown(int(sender.Fd()), unix.SHUT_WR) // ends the receiver, too
	}()
	go func() { received <- transferPart(receiver, false, begin, end) }()
	time.Sleep(time.Until(begin))
	before := kernel()
	time.Sleep(time.Until(end))
	used := kernel() - before
	out, in := <-sent, <-received
	s = streamed{bytes: in.bytes, wall: in.wall, processor: used + out.processor + in.processor}
	return s, errors.Join(out.err, in.err)
}

// transferEnd is one end of a connection, and what it did in the time that is measured.
type transferEnd struct {
	bytes           int
	wall, processor time.Duration
	err             error
}

// transferPart moves bytes on the CPU that both ends share.
func transferPart(f *os.File, sends bool, begin, end time.Time) (e transferEnd) {
	e.err = onProcessor(senderProcessor, func() error { return e.run(int(f.Fd()), sends, begin, end) })
	return e
}

func (e *transferEnd) run(fd int, sends bool, begin, end time.Time) error {
	move := unix.Read
	if sends {
		move = unix.Write
	}
	buf := make([]byte, 128<<10)
	var cpu time.Duration
	var start time.Time
	for {
		n, err := move(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("transfer: %w", err)
		}
		now := time.Now()
		switch {
		case e.wall > 0: // the receiver takes what is still under way: the sender may wait for it
			if n == 0 {
				return nil
			}
			continue
		case start.IsZero() && now.After(begin):
			start = now
			if cpu, err = threadTime(); err != nil {
				return err
			}
		case !start.IsZero():
			e.bytes += n
		}
		if n == 0 || now.After(end) {
			after, err := threadTime()
			e.wall, e.processor = now.Sub(start), after-cpu
			if err != nil || n == 0 || sends {
				return err
			}
		}
	}
}

// connect opens a TCP connection, in sockets that block.
func connect(ctx context.Context, from, to *lab.Host) (sender, receiver *os.File, err error) {
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp6", net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.Addr6(), 0)))
		return err
	}); err != nil {
		return nil, nil, fmt.Errorf("listening on %s: %w", to.Name, err)
	}
	defer listener.Close()
	var near net.Conn
	if err := from.Do(func() (err error) {
		d := net.Dialer{Timeout: patience}
		near, err = d.DialContext(ctx, "tcp6", listener.Addr().String())
		return err
	}); err != nil {
		return nil, nil, fmt.Errorf("connecting %s to %s: %w", from.Name, to.Name, err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		return nil, nil, fmt.Errorf("accepting a connection: %w", err)
	}
	defer far.Close()
	if sender, err = near.(*net.TCPConn).File(); err != nil {
		return nil, nil, err
	}
	if receiver, err = far.(*net.TCPConn).File(); err != nil {
		sender.Close()
		return nil, nil, err
	}
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	for _, f := range []*os.File{sender, receiver} {
		fd := int(f.Fd())
		if err := errors.Join(
			unix.SetNonblock(fd, false), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		); err != nil {
			return nil, nil, fmt.Errorf("making a socket block: %w", err)
		}
	}
	return sender, receiver, nil
}

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
