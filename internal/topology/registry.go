package topology

import (
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
)

// Registry answers for interfaces and namespaces by number, also for those that
// are gone: records come later than their packets. The Watcher fills it; all
// methods may be called from anywhere.
type Registry struct {
	now    flow.Clock
	linger time.Duration

	mu      sync.RWMutex
	spaces  map[uint32]*space
	numbers numbers
	links   map[flow.Iface]known
	gone    []goneLink // in the order of going
	changes uint64     // of the wiring
	touched uint64     // of anything that a Graph shows
}

// space is an open namespace with its number and a netlink handle in it.
type space struct {
	number uint32
	blocks map[uint32]uint32 // further numbers, by the upper bits of large indices
	name   string
	ns     *Netns
	handle *netlink.Handle
}

type known struct {
	Link
	gone  time.Time // zero: exists
	wires wires
}

type goneLink struct {
	iface flow.Iface
	at    time.Time
}

// NewRegistry makes an empty registry that remembers what is gone for linger.
func NewRegistry(linger time.Duration, now flow.Clock) *Registry {
	return &Registry{
		now: now, linger: linger,
		spaces: map[uint32]*space{}, links: map[flow.Iface]known{},
	}
}

// Link is the interface as last seen; it may be gone. ok is false for one that
// was never seen, or is gone for longer than the registry remembers.
func (r *Registry) Link(i flow.Iface) (l Link, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.links[i]
	return k.Link, ok
}

// Links are all interfaces that exist, by namespace number and ifindex.
func (r *Registry) Links() []Link {
	r.mu.RLock()
	defer r.mu.RUnlock()
	links := make([]Link, 0, len(r.links))
	for _, k := range r.links {
		if k.gone.IsZero() {
			links = append(links, k.Link)
		}
	}
	order.By(links, func(a, b Link) int { return int(a.Iface) - int(b.Iface) })
	return links
}

// any reports whether an interface exists whose name is wanted.
func (r *Registry) any(wanted func(name string) bool) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, k := range r.links {
		if k.gone.IsZero() && wanted(k.Name) {
			return true
		}
	}
	return false
}

// InNetns runs fn in the namespace of that number, as Netns.Do does.
func (r *Registry) InNetns(number uint32, fn func() error) error {
	r.mu.RLock()
	s, ok := r.spaces[number]
	if !ok {
		r.mu.RUnlock()
		return fmt.Errorf("network namespace number %d is gone", number)
	}
	// Through /proc, so that fn runs without the lock.
	ns, err := openNetnsFile(fmt.Sprintf("/proc/self/fd/%d", s.ns.Fd()))
	r.mu.RUnlock()
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(fn)
}

// join takes a namespace in and gives it a number; the registry closes ns when
// the namespace leaves.
func (r *Registry) join(name string, ns *Netns) (*space, error) {
	s := &space{name: name, ns: ns, blocks: map[uint32]uint32{}}
	if err := ns.Do(func() (err error) {
		s.handle, err = netlink.NewHandle(netlinkRoute)
		return err
	}); err != nil {
		return nil, fmt.Errorf("open netlink in network namespace %q: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if s.number, err = r.numbers.take(r.now(), r.linger); err != nil {
		s.handle.Close()
		return nil, fmt.Errorf("network namespace %q: %w", name, err)
	}
	r.spaces[s.number] = s
	r.touched++
	return s, nil
}

// SetLinger changes how long what is gone is remembered.
func (r *Registry) SetLinger(linger time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.linger = linger
}

// leave forgets a namespace; its interfaces stay known until they lingered out.
func (r *Registry) leave(s *space) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, k := range r.links {
		if r.spaces[i.Netns()] == s && k.gone.IsZero() {
			r.markGone(i)
		}
	}
	r.touched++
	for number, of := range r.spaces {
		if of == s {
			delete(r.spaces, number)
			r.numbers.release(number, r.now())
		}
	}
	s.handle.Close()
	s.ns.Close()
}

// admit gives a large index the number that it is known by.
func (r *Registry) admit(s *space, index int) error {
	block := uint32(index) >> ifIndexBits
	if _, known := s.blocks[block]; known || block == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	number, err := r.numbers.take(r.now(), r.linger)
	if err != nil {
		return fmt.Errorf("interface index %d: %w", index, err)
	}
	s.blocks[block] = number
	r.spaces[number] = s
	return nil
}

// IfIndex is the index of an interface, which may be gone.
func (r *Registry) IfIndex(i flow.Iface) uint32 {
	if l, ok := r.Link(i); ok {
		return l.IfIndex
	}
	return i.IfIndex()
}

func (r *Registry) put(l Link, w wires) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.links[l.Iface]
	if !ok || !k.gone.IsZero() || k.wires != w {
		r.changes++
	}
	if k.Link != l || k.wires != w {
		r.touched++
	}
	r.links[l.Iface] = known{Link: l, wires: w}
}

func (r *Registry) remove(i flow.Iface) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.markGone(i)
}

// markGone keeps the link for late records and drops those that lingered out.
func (r *Registry) markGone(i flow.Iface) {
	now := r.now()
	k, ok := r.links[i]
	if !ok {
		return
	}
	r.changes++
	r.touched++
	k.gone = now
	r.links[i] = k
	r.gone = append(r.gone, goneLink{i, now})
	for len(r.gone) > 0 && now.Sub(r.gone[0].at) > r.linger {
		// The index may have been given to a new interface since.
		if g := r.gone[0]; r.links[g.iface].gone.Equal(g.at) {
			delete(r.links, g.iface)
		}
		r.gone = r.gone[1:]
	}
}

// numbers hands out namespace numbers. One that was released is used again only
// when no fresh one is left, and not before it lingered out.
type numbers struct {
	next     uint32
	released []releasedNumber // in the order of release
}

type releasedNumber struct {
	number uint32
	at     time.Time
}

func (n *numbers) take(now time.Time, linger time.Duration) (uint32, error) {
	if n.next < MaxNetns {
		n.next++
		return n.next - 1, nil
	}
	if len(n.released) == 0 {
		return 0, ErrTooManyNetns
	}
	if free := n.released[0].at.Add(linger); now.Before(free) {
		return 0, fmt.Errorf("%w within %v: the next number is free in %v", ErrTooManyNetns, linger, free.Sub(now))
	}
	number := n.released[0].number
	n.released = n.released[1:]
	return number, nil
}

func (n *numbers) release(number uint32, at time.Time) {
	n.released = append(n.released, releasedNumber{number, at})
}
