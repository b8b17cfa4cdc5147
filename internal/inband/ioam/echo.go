package ioam

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
)

// The end of each tunnel is asked every echoInterval; bpf/ioam/echo.h has the lifetime of an answer.
const (
	echoInterval = time.Second
	echoLifetime = 3 * time.Second
)

// Types of ICMPv6, and what programs set in the identifier of a request that went through a tunnel.
const (
	echoReply   = 129
	echoRequest = 128
	echoWrapped = 0x8000
)

// question is an echo request to the end of a tunnel.
type question struct {
	slot   uint32 // of the insertion
	sent   uint64 // monotonic
	length int    // of the packet behind the outer header; 0: a short one
}

// echoes ask the ends of tunnels, from the namespaces of interfaces.
type echoes struct {
	mu      sync.Mutex
	sockets sockets
	routes  sockets
	id      uint16
	asked   map[uint16]question // by sequence number
	next    uint16
	heard   map[uint32]uint64   // by slot: when the short request was sent that was answered last
	lengths map[uint32]*lengths // by slot
}

// join opens the socket of the namespace of an interface. Without it, tunnels are not known to have an end.
func (e *echoes) join(t *datapath.Target) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked, e.heard, e.lengths = map[uint16]question{}, map[uint32]uint64{}, map[uint32]*lengths{}
		e.id = uint16(rand.Uint32N(echoWrapped))
	}
	e.sockets.join(t, "ask the ends of tunnels", openEcho)
	e.routes.join(t, "ask for the MTU of tunnels", openRoute)
}

func openEcho() (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMPV6)
	if err != nil {
		return -1, err
	}
	filter := unix.ICMPv6Filter{}
	for i := range filter.Data {
		filter.Data[i] = ^uint32(0) // blocked
	}
	filter.Data[echoReply>>5] &^= 1 << (echoReply & 31)
	if err := unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &filter); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// leave closes the socket of a namespace that has no interface left.
func (e *echoes) leave(netns uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sockets.leave(netns)
	e.routes.leave(netns)
}

func (e *echoes) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sockets.close()
	e.routes.close()
}

// asks reports whether the insertion is a tunnel whose end is asked.
func (in *Insertion) asks() bool { return in.Tunnel != nil && in.Tunnel.Echo }

// followTunnels has the ends of tunnels asked while the node, which is new, has any: an agent without tunnels does not wake up.
func (r *Registrar) followTunnels(n *Node) {
	if r.endAsking != nil {
		close(r.endAsking)
		r.endAsking = nil
	}
	if slices.ContainsFunc(n.Insertions, func(in Insertion) bool { return in.asks() }) {
		r.endAsking = make(chan struct{})
		go r.askTunnels(r.endAsking)
	}
}

// askTunnels asks the ends of tunnels until end is closed, and passes answers on to the programs.
func (r *Registrar) askTunnels(end <-chan struct{}) {
	tick := time.NewTicker(echoInterval / 10) // answers are passed on soon after they came
	defer tick.Stop()
	var asked time.Time
	for {
		select {
		case <-r.stop:
			return
		case <-end:
			return
		case <-tick.C:
		}
		_ = r.do(func() error {
			if err := r.takeAnswers(); err != nil {
				return err
			}
			if time.Since(asked) < echoInterval {
				return nil
			}
			asked = time.Now()
			for i, in := range ordered(r.node.Insertions) {
				if in.asks() {
					r.echoes.ask(&in, r.kept[in.Identity()].slot, uint32(i))
				}
			}
			return nil
		})
	}
}

// takeAnswers lets the programs know which ends have answered, and how long requests.
func (r *Registrar) takeAnswers() error {
	control := r.control
	heard, longest := r.echoes.answers()
	for slot, sent := range heard {
		control.Answered[slot] = max(control.Answered[slot], sent)
	}
	for slot, length := range longest {
		control.Longest[slot] = length
	}
	if control.Answered == r.control.Answered && control.Longest == r.control.Longest {
		return nil
	}
	return r.publish(&control)
}

// forgetAnswers: what the end of another tunnel has answered is not known of a new one.
func (r *Registrar) forgetAnswers(c *abiIoamControl, n *Node, keep map[string]kept) {
	same := map[uint32]bool{}
	for i := range n.Insertions {
		in := &n.Insertions[i]
		was := slices.IndexFunc(r.node.Insertions, func(old Insertion) bool { return old.Identity() == in.Identity() })
		if was >= 0 && in.Tunnel != nil && r.node.Insertions[was].Tunnel != nil && *in.Tunnel == *r.node.Insertions[was].Tunnel {
			same[keep[in.Identity()].slot] = true
		}
	}
	for slot := range c.Answered {
		if !same[uint32(slot)] {
			c.Answered[slot], c.Longest[slot] = 0, 0
		}
	}
	r.echoes.forget(same)
}

// forget drops questions to the ends of other tunnels.
func (e *echoes) forget(same map[uint32]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.asked, func(_ uint16, q question) bool { return !same[q.slot] })
	maps.DeleteFunc(e.heard, func(slot uint32, _ uint64) bool { return !same[slot] })
	maps.DeleteFunc(e.lengths, func(slot uint32, _ *lengths) bool { return !same[slot] })
}

// ask sends a short request to the end of a tunnel, and a long one. That one cannot be sent shows in that there is no answer.
func (e *echoes) ask(in *Insertion, slot, index uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := uint64(clock(unix.CLOCK_MONOTONIC))
	for netns, fd := range e.sockets.fds {
		if fd < 0 || unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(uint32(abiMarkOwnMARK_ECHO_PRIORITY)|index)) != nil {
			continue
		}
		if !e.send(fd, in, question{slot: slot, sent: now}) {
			continue // the address of the tunnel is of another namespace, or there is no route
		}
		if length := e.nextLength(netns, in, slot, now); length > 0 {
			e.send(fd, in, question{slot: slot, sent: now, length: length})
		}
	}
	maps.DeleteFunc(e.asked, func(_ uint16, q question) bool { return now-q.sent > uint64(echoLifetime) })
}

// nextLength is how long a request is to be; 0: another one is on its way.
func (e *echoes) nextLength(netns uint32, in *Insertion, slot uint32, now uint64) int {
	l := e.lengths[slot]
	if l == nil {
		l = &lengths{}
		e.lengths[slot] = l
	}
	if l.asked > 0 && e.heard[slot] >= l.askedAt {
		l.missed(now)
	}
	if l.asked > 0 && now-l.askedAt < uint64(echoLifetime) {
		return 0
	}
	return l.next(routeMTU(e.routes.fds[netns], in.Tunnel.Destination.As16()), now)
}

// send sends a request; false: it cannot be sent.
func (e *echoes) send(fd int, in *Insertion, q question) bool {
	e.next++
	request := binary.BigEndian.AppendUint16([]byte{echoRequest, 0, 0, 0}, e.id)
	request = binary.BigEndian.AppendUint16(request, e.next)
	request = append(request, make([]byte, max(q.length-ipv6Header-in.Size()-len(request), 0))...)
	info := unix.PktInfo6(&unix.Inet6Pktinfo{Addr: in.Tunnel.Source.As16()})
	if _, err := unix.SendmsgN(fd, request, info, &unix.SockaddrInet6{Addr: in.Tunnel.Destination.As16()}, 0); err != nil {
		return false
	}
	e.asked[e.next] = q
	return true
}

// answers are what the ends of tunnels have answered since the last call, and how long packets to them may be, by slot.
func (e *echoes) answers() (heard map[uint32]uint64, longest map[uint32]uint16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := make([]byte, 64)
	for _, fd := range e.sockets.fds {
		for fd >= 0 {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				break
			}
			q, ok := e.answer(b[:n])
			if ok && q.length == 0 {
				e.heard[q.slot] = max(e.heard[q.slot], q.sent)
			} else if l := e.lengths[q.slot]; ok && l != nil {
				l.answered(q.length, q.sent)
			}
		}
	}
	now := uint64(clock(unix.CLOCK_MONOTONIC))
	longest = map[uint32]uint16{}
	for slot, l := range e.lengths {
		longest[slot] = l.longest(now)
	}
	return maps.Clone(e.heard), longest
}

// answer is the question to a reply; only what went through the tunnel counts.
func (e *echoes) answer(b []byte) (q question, ok bool) {
	if len(b) < 8 || b[0] != echoReply || binary.BigEndian.Uint16(b[4:]) != e.id|echoWrapped {
		return q, false
	}
	seq := binary.BigEndian.Uint16(b[6:])
	q, ok = e.asked[seq]
	delete(e.asked, seq)
	return q, ok
}

// TunnelAnswers reports whether the end of the tunnel of an insertion has answered lately, and why it cannot be asked.
func (r *Registrar) TunnelAnswers(in *Insertion) (answers bool, err error) {
	err = r.do(func() error {
		at := r.control.Answered[r.kept[in.Identity()].slot]
		answers = at > 0 && uint64(clock(unix.CLOCK_MONOTONIC))-at < uint64(echoLifetime)
		return nil
	})
	r.echoes.mu.Lock()
	defer r.echoes.mu.Unlock()
	return answers, errors.Join(err, r.echoes.sockets.err)
}
