package topology

import "github.com/vishvananda/netlink"

func (w *Watcher) removeLink(m *member, index int) {
	w.accept(func(s subject) bool { return s == subject{m.ns.ID(), index} })
	l, ok := m.links[index]
	if !ok {
		return
	}
	delete(m.links, index)
	w.deps.Registry.remove(l.Iface)
	if w.cfg.matchesIface(l.Name) {
		w.deps.Emit(Event{Kind: Removed, Link: l, Gone: true})
	}
}

// putLink takes in the present state of a link.
func (w *Watcher) putLink(m *member, nl netlink.Link) {
	index := nl.Attrs().Index
	err := w.deps.Registry.admit(m.space, index)
	l := newLink(m.space, nl)
	if err != nil {
		if w.cfg.matchesIface(l.Name) {
			w.refuse(subject{m.ns.ID(), index}, Event{Kind: Refused, Link: l, Err: err})
		}
		return
	}
	old, known := m.links[index]
	m.links[index] = l
	w.deps.Registry.put(l, wiresOf(nl))
	for _, e := range w.changes(old, known, l) {
		w.deps.Emit(e)
	}
}

// changes are the events that lead from the old state of a link to the new one.
func (w *Watcher) changes(old Link, known bool, l Link) []Event {
	was, is := known && w.cfg.matchesIface(old.Name), w.cfg.matchesIface(l.Name)
	switch {
	case !was && !is:
		return nil
	case !was:
		return []Event{{Kind: Added, Link: l}}
	case !is:
		return []Event{{Kind: Removed, Link: old}}
	}
	var events []Event
	if old.Name != l.Name {
		events = append(events, Event{Kind: Renamed, Link: l, Old: old.Name})
	}
	switch {
	case l.Up && !old.Up:
		events = append(events, Event{Kind: Up, Link: l})
	case !l.Up && old.Up:
		events = append(events, Event{Kind: Down, Link: l})
	}
	return events
}
