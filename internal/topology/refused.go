package topology

import (
	"cmp"
	"maps"
	"slices"

	"github.com/waymark-net/waymark/internal/order"
)

// subject is what may be refused: an interface, or with index 0 a namespace.
type subject struct {
	netns NetnsID
	index int
}

// refuse reports what cannot be watched, once.
func (w *Watcher) refuse(s subject, e Event) {
	w.mu.Lock()
	_, known := w.refused[s]
	w.refused[s] = e
	w.mu.Unlock()
	if !known {
		w.deps.Emit(e)
	}
}

// accept forgets refusals that no longer hold.
func (w *Watcher) accept(which func(subject) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.refused, func(s subject, _ Event) bool { return which(s) })
}

// Refused lists what matches and cannot be watched now.
func (w *Watcher) Refused() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Collect(maps.Values(w.refused))
	order.By(all, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Link.Netns, b.Link.Netns), cmp.Compare(a.Link.Name, b.Link.Name))
	})
	return all
}

// Unmatched lists the globs for interfaces that none matches now.
func (w *Watcher) Unmatched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, p := range w.cfg.Interfaces {
		one := Config{Interfaces: []string{p}, Exclude: w.cfg.Exclude}
		if !isLiteral(p) && !w.deps.Registry.any(one.matchesIface) {
			out = append(out, p)
		}
	}
	return out
}
