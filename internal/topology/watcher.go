package topology

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// Deps are what a Watcher works with.
type Deps struct {
	Registry *Registry
	// Emit is called for every event, one after the other, from the goroutine of
	// Run. Events wait in the kernel while it works; when too many wait, links
	// are listed anew and only the difference is told.
	Emit func(Event)
	Log  *slog.Logger
}

// Watcher follows the links that match its Config.
type Watcher struct {
	cfg  Config
	deps Deps

	dir    string // NetnsDir
	rcvbuf int    // of each subscription, octets

	updates chan update
	stop    chan struct{} // closed when Run ends
	joined  map[string]*member
	refused map[NetnsID]bool // told of already

	mu      sync.Mutex         // guards what Waiting reads
	present map[string]NetnsID // names of namespaces, at the last look
}

// member is a namespace that is being watched.
type member struct {
	*space
	sub     *subscription
	links   map[int]Link // all that exist, by ifindex
	refused map[int]bool // told of already
}

// New makes a watcher that does nothing until Run.
func New(cfg Config, deps Deps) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Watcher{
		cfg: cfg, deps: deps, dir: NetnsDir, rcvbuf: 1 << 20,
		updates: make(chan update), stop: make(chan struct{}),
		joined: map[string]*member{}, refused: map[NetnsID]bool{},
	}, nil
}

// Waiting are the interfaces and namespaces that the configuration names
// without a glob and that do not exist now. It is right once Synced came.
func (w *Watcher) Waiting() (ifaces, netns []string) {
	for _, p := range w.cfg.Interfaces {
		if isLiteral(p) && !w.deps.Registry.exists(p) {
			ifaces = append(ifaces, p)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
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
		w.scanNetns(ownID, retry)
	}
	w.deps.Emit(Event{Kind: Synced})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			retry.reset()
			w.scanNetns(ownID, retry)
		case <-retry.timer.C:
			w.scanNetns(ownID, retry)
		case u := <-w.updates:
			w.apply(u, retry)
		}
	}
}

func (w *Watcher) shutDown() {
	close(w.stop)
	for _, m := range w.joined {
		m.sub.socket.Close()
		w.deps.Registry.leave(m.space)
	}
}

// scanNetns joins the namespaces that appeared and leaves those that vanished.
func (w *Watcher) scanNetns(own NetnsID, retry *backoff) {
	found, pending, err := listNetns(w.dir)
	if err != nil {
		w.deps.Emit(Event{Kind: Refused, Err: err})
		retry.again()
		return
	}
	w.mu.Lock()
	w.present = found
	w.mu.Unlock()
	maps.DeleteFunc(w.refused, func(id NetnsID, _ bool) bool { return !slices.Contains(slices.Collect(maps.Values(found)), id) })
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
		if err := w.joinNamed(name, id); err != nil {
			if !w.refused[id] {
				w.deps.Emit(Event{Kind: Refused, Link: Link{Netns: name}, Err: err})
			}
			w.refused[id] = true
			pending = true
			continue
		}
		delete(w.refused, id)
	}
	if pending {
		retry.again()
	}
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

func (w *Watcher) joinNamed(name string, id NetnsID) error {
	ns, err := openNetnsFile(w.dir + "/" + name)
	if err != nil {
		return err
	}
	if ns.ID() != id { // made anew since the directory was read
		ns.Close()
		return fmt.Errorf("network namespace %q was made anew under way", name)
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
	m := &member{space: s, links: map[int]Link{}, refused: map[int]bool{}}
	if err := w.resync(m); err != nil {
		w.deps.Registry.leave(s)
		return err
	}
	w.joined[name] = m
	w.deps.Log.Debug("watching network namespace", "netns", name, "number", s.number)
	return nil
}

func (w *Watcher) leave(m *member) {
	m.sub.socket.Close()
	delete(w.joined, m.name)
	for _, l := range m.links {
		if w.cfg.matchesIface(l.Name) {
			w.deps.Emit(Event{Kind: Removed, Link: l})
		}
	}
	w.deps.Registry.leave(m.space)
	w.deps.Log.Debug("left network namespace", "netns", m.name, "number", m.number)
}

// resync subscribes anew and tells the difference between what was known and
// what is. The subscription comes before the list, so that nothing falls
// between; a fresh one, so that nothing older than the list follows it.
func (w *Watcher) resync(m *member) error {
	sub, err := subscribe(m.space, w.rcvbuf)
	if err != nil {
		return err
	}
	links, err := dumpLinks(m.handle)
	if err != nil {
		sub.socket.Close()
		return err
	}
	if m.sub != nil {
		m.sub.socket.Close()
	}
	m.sub = sub
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
			// Nobody told whether it was deleted and made again meanwhile.
			if n := newLink(m.space, l); n.Kind != old.Kind || n.MAC != old.MAC {
				w.removeLink(m, index)
			}
		}
		w.putLink(m, l)
	}
	go sub.listen(w.updates, w.stop)
	return nil
}

// apply takes in what a subscription told.
func (w *Watcher) apply(u update, retry *backoff) {
	m := w.joined[u.from.space.name]
	if m == nil || m.sub != u.from {
		return // of a subscription that was given up
	}
	if u.err != nil {
		w.deps.Log.Debug("listing links anew", "netns", m.name, "cause", u.err)
		if err := w.resync(m); err != nil {
			w.deps.Emit(Event{Kind: Refused, Link: Link{Netns: m.name}, Err: err})
			w.leave(m)
			retry.again()
		}
		return
	}
	for _, c := range u.changes {
		if c.gone {
			w.removeLink(m, c.link.Attrs().Index)
		} else {
			w.putLink(m, c.link)
		}
	}
}
