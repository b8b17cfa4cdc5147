package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Deps are what a Watcher works with.
type Deps struct {
	Registry *Registry
	// Emit is called for every event, one after the other, from the goroutine of
	// Run. Events wait in the kernel while it works; when too many wait, links
	// are listed again and only the difference is reported.
	Emit func(Event)
	Log  *slog.Logger
}

// Watcher follows the links that match its Config.
type Watcher struct {
	cfg  Config
	deps Deps

	dir    string // NetnsDir
	rcvbuf int    // of each subscription, bytes

	updates chan update
	match   chan patterns
	stop    chan struct{} // closed when Run ends
	joined  map[string]*member

	mu      sync.Mutex         // guards what others read: cfg, too, which only Run changes
	present map[string]NetnsID // names of namespaces, at the last look
	refused map[subject]Event
}

// patterns are those of Config.
type patterns struct{ interfaces, exclude []string }

// member is a namespace that is being watched.
type member struct {
	*space
	sub   subscription
	other subscription // of what is no link
	links map[int]Link // all that exist, by ifindex
	stale bool         // changes were lost, and the links could not be listed again yet
}

// New makes a watcher that does nothing until Run.
func New(cfg Config, deps Deps) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Watcher{
		cfg: cfg, deps: deps, dir: NetnsDir, rcvbuf: 1 << 20,
		updates: make(chan update), match: make(chan patterns), stop: make(chan struct{}),
		joined: map[string]*member{}, refused: map[subject]Event{},
	}, nil
}

// Waiting are the interfaces and namespaces that the configuration names
// without a glob and that do not exist now. It is right once Synced came.
func (w *Watcher) Waiting() (ifaces, netns []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.cfg.Interfaces {
		if isLiteral(p) && !w.deps.Registry.any(func(name string) bool { return name == p }) {
			ifaces = append(ifaces, p)
		}
	}
	for _, p := range w.cfg.Netns {
		if _, ok := w.present[p]; !ok && isLiteral(p) && p != AllNetns {
			netns = append(netns, p)
		}
	}
	return ifaces, netns
}

// Run watches until ctx is done. It may be called once. It fails only when the
// own namespace cannot be watched.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.shutDown()
	own, err := OpenNetns("")
	if err != nil {
		return err
	}
	if err := w.join("", own); err != nil {
		return err
	}
	ownID := own.ID()

	changed := make(chan struct{}, 1)
	retry := newBackoff()
	if len(w.cfg.Netns) > 0 {
		d, err := openNetnsDirectory(w.dir)
		if err != nil {
			return err
		}
		defer d.close()
		go d.listen(changed)
		if w.scanNetns(ownID) {
			retry.again()
		}
	}
	w.deps.Emit(Event{Kind: Synced})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			retry.reset()
			if w.scanNetns(ownID) {
				retry.again()
			}
		case <-retry.timer.C:
			stale, pending := w.resyncStale(), w.scanNetns(ownID)
			if stale || pending {
				retry.again()
			} else {
				retry.reset()
			}
		case p := <-w.match:
			w.rematch(p)
		case u := <-w.updates:
			pending, err := w.apply(u)
			if err != nil {
				return err
			}
			if pending {
				retry.again()
			}
		}
	}
}

// Match watches other interfaces from now on: Emit is called for those that are
// added and removed thereby, and then with Matched. The patterns must be valid
// (Config.Validate). It returns at once; without Run it does nothing.
func (w *Watcher) Match(interfaces, exclude []string) {
	go func() {
		select {
		case w.match <- patterns{interfaces, exclude}:
		case <-w.stop:
		}
	}()
}

func (w *Watcher) rematch(p patterns) {
	old := w.cfg
	w.mu.Lock()
	w.cfg.Interfaces, w.cfg.Exclude = p.interfaces, p.exclude
	maps.DeleteFunc(w.refused, func(s subject, e Event) bool { return s.index != 0 && !w.cfg.matchesIface(e.Link.Name) })
	w.mu.Unlock()
	for _, m := range w.joined {
		for _, l := range m.links {
			switch was, is := old.matchesIface(l.Name), w.cfg.matchesIface(l.Name); {
			case was && !is:
				w.deps.Emit(Event{Kind: Removed, Link: l})
			case !was && is:
				w.deps.Emit(Event{Kind: Added, Link: l})
			}
		}
	}
	w.deps.Emit(Event{Kind: Matched})
}

func (w *Watcher) shutDown() {
	close(w.stop)
	for _, m := range w.joined {
		m.close()
		w.deps.Registry.leave(m.space)
	}
}

func (m *member) close() {
	m.sub.close()
	m.other.close()
}

// scanNetns joins the namespaces that appeared and leaves those that vanished. It
// is pending when there is reason to look again.
func (w *Watcher) scanNetns(own NetnsID) (pending bool) {
	found, pending, err := listNetns(w.dir)
	if err != nil {
		w.deps.Emit(Event{Kind: Refused, Err: err})
		return true
	}
	w.mu.Lock()
	w.present = found
	w.mu.Unlock()
	failed := map[NetnsID]bool{}
	for name, m := range w.joined {
		if name != "" && found[name] != m.ns.ID() {
			w.leave(m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		id := found[name]
		if w.joined[name] != nil || id == own || !w.cfg.matchesNetns(name) || w.watches(id) {
			continue
		}
		switch err := w.joinNamed(name, id); {
		case errors.Is(err, errNameMoved):
			pending = true
		case err != nil:
			w.refuse(subject{netns: id}, Event{Kind: Refused, Link: Link{Netns: name}, Err: err})
			failed[id] = true
			pending = true
		}
	}
	w.accept(func(s subject) bool { return s.index == 0 && !failed[s.netns] })
	return pending
}

// watches reports whether the namespace is watched under another of its names.
func (w *Watcher) watches(id NetnsID) bool {
	for _, m := range w.joined {
		if m.ns.ID() == id {
			return true
		}
	}
	return false
}

// errNameMoved: a name was deleted or given to another namespace since the
// directory was read, which is no news until it is read again.
var errNameMoved = errors.New("the name of the network namespace moved")

func (w *Watcher) joinNamed(name string, id NetnsID) error {
	ns, err := openNetnsFile(w.dir + "/" + name)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNotNetns) {
		return errNameMoved
	}
	if err != nil {
		return err
	}
	if ns.ID() != id {
		ns.Close()
		return errNameMoved
	}
	return w.join(name, ns)
}

// join watches a namespace; it takes ns over.
func (w *Watcher) join(name string, ns *Netns) error {
	s, err := w.deps.Registry.join(name, ns)
	if err != nil {
		ns.Close()
		return err
	}
	// The subscription comes before the list, so that nothing falls between.
	sub, err := subscribe(s, w.rcvbuf, unix.RTNLGRP_LINK)
	if err != nil {
		w.deps.Registry.leave(s)
		return err
	}
	other, err := subscribe(s, w.rcvbuf, notices...)
	if err != nil {
		sub.close()
		w.deps.Registry.leave(s)
		return err
	}
	m := &member{space: s, sub: sub, other: other, links: map[int]Link{}}
	if err := w.resync(m); err != nil {
		m.close()
		w.deps.Registry.leave(s)
		return err
	}
	w.joined[name] = m
	go sub.listen(m, w.updates, w.stop)
	go other.notice(w.deps.Registry)
	w.deps.Log.Debug("watching network namespace", "netns", name, "number", s.number)
	return nil
}

func (w *Watcher) leave(m *member) {
	m.close()
	delete(w.joined, m.name)
	w.accept(func(s subject) bool { return s.netns == m.ns.ID() })
	for _, l := range m.links {
		if w.cfg.matchesIface(l.Name) {
			w.deps.Emit(Event{Kind: Removed, Link: l})
		}
	}
	w.deps.Registry.leave(m.space)
	w.deps.Log.Debug("left network namespace", "netns", m.name, "number", m.number)
}

// resync lists the links and reports the difference from what was known.
func (w *Watcher) resync(m *member) error {
	links, err := whole(m.handle.LinkList)
	if err != nil {
		return fmt.Errorf("network namespace %q: %w", m.name, err)
	}
	listed := map[int]bool{}
	for _, l := range links {
		listed[l.Attrs().Index] = true
	}
	for index := range m.links {
		if !listed[index] {
			w.removeLink(m, index)
		}
	}
	for _, l := range links {
		index := l.Attrs().Index
		if old, ok := m.links[index]; ok {
			// It is unknown whether it was deleted and made again meanwhile.
			if n := newLink(m.space, l); n.Kind != old.Kind || n.MAC != old.MAC {
				w.removeLink(m, index)
			}
		}
		w.putLink(m, l)
	}
	return nil
}

// resyncStale tries again where the links could not be listed, and reports
// whether it still cannot.
func (w *Watcher) resyncStale() (stale bool) {
	for _, m := range w.joined {
		m.stale = m.stale && w.resync(m) != nil
		stale = stale || m.stale
	}
	return stale
}

// apply takes in what a subscription reported. It is pending when that has to be done
// again. Its error ends the watcher: the own namespace cannot be watched any more.
func (w *Watcher) apply(u update) (pending bool, err error) {
	m := u.from
	switch {
	case w.joined[m.name] != m: // left since
		return false, nil
	case u.err != nil && m.name == "":
		return false, u.err
	case u.err != nil:
		w.deps.Emit(Event{Kind: Refused, Link: Link{Netns: m.name}, Err: u.err})
		w.leave(m)
		return true, nil
	case u.lost:
		w.deps.Log.Debug("too many link events at once: listing all links again", "netns", m.name)
		if err := w.resync(m); err != nil {
			w.deps.Log.Warn("links could not be listed again; trying again", "error", err)
			m.stale = true
		}
		return m.stale, nil
	}
	for _, c := range u.changes {
		if c.gone {
			w.removeLink(m, c.link.Attrs().Index)
		} else {
			w.putLink(m, c.link)
		}
	}
	return false, nil
}
