package agent

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/topology"
)

// moment is a time span, by the counters of an interface at both its ends.
type moment struct{ low, high topology.Counters }

// hooks puts the probe on the interfaces that the watcher finds, and compares
// what it counts with what they count.
type hooks struct {
	registry *topology.Registry
	probe    probe
	headroom *reservations // nil: none
	log      *slog.Logger
	// directions are those in which an interface of that name is counted.
	directions func(name string) []flow.Direction

	mu       sync.Mutex
	frozen   bool
	attached map[flow.Iface]*attachment
	// filesReported is the limit of open files that was last reported as too low.
	filesReported uint64
}

// attachment is an interface with its own counters before and after it was
// attached to, and before and after the last drain.
type attachment struct {
	link       topology.Link
	directions []flow.Direction
	mode       string
	err        error
	retry      retry // while err is set
	attaching  moment
	since      time.Time // all packets after it are counted
	draining   moment
	// What had been counted on an interface of the same number before.
	base map[flow.Direction]seen
	// ahead are the programs that run before ours and may end the chain.
	ahead map[flow.Direction][]string
	// bypass notices traffic that the hook does not see.
	bypass map[flow.Direction]*bypass
}

func newHooks(r *topology.Registry, p probe, m *reservations, directions func(string) []flow.Direction, log *slog.Logger) *hooks {
	return &hooks{registry: r, probe: p, headroom: m, directions: directions, log: log, attached: map[flow.Iface]*attachment{}}
}

// add attaches; all is what the probe has seen so far. What fails is tried again.
func (h *hooks) add(l topology.Link, all map[place]seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen {
		return
	}
	at := &attachment{
		link: l, directions: h.directions(l.Name),
		base: map[flow.Direction]seen{
			flow.Ingress: all[place{l.Iface, flow.Ingress}],
			flow.Egress:  all[place{l.Iface, flow.Egress}],
		},
		bypass: map[flow.Direction]*bypass{},
	}
	if before := h.attached[l.Iface]; before != nil {
		at.retry = before.retry
	}
	h.attached[l.Iface] = at
	before, _ := h.registry.Counters(l.Iface)
	if at.sends() {
		h.headroom.prepare(l)
	}
	at.mode, at.err = h.probe.Attach(l, at.directions, func(f func() error) error {
		return h.registry.InNetns(l.Iface.Netns(), f)
	})
	if at.err != nil { // nothing will be marked there
		h.headroom.release(l)
		h.failed(at)
		return
	}
	at.since = time.Now()
	after, err := h.registry.Counters(l.Iface)
	if err != nil { // gone again: the event is on its way
		after = before
	}
	at.attaching = moment{before, after}
	at.draining = moment{after, after}
	h.log.Info("counting", "iface", l.String(), "direction", directionText(at.directions), "mode", at.mode)
	h.inspect(at)
}

// sends reports whether packets that leave are handled: where they are not, none
// is marked.
func (at *attachment) sends() bool { return slices.Contains(at.directions, flow.Egress) }

// directionText is what the configuration calls directions.
func directionText(d []flow.Direction) string {
	if len(d) == 1 {
		return d[0].String()
	}
	return "both"
}

// remove detaches; gone: there is no such interface anymore.
func (h *hooks) remove(l topology.Link, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen {
		return
	}
	h.detach(l.Iface)
	h.headroom.release(l)
	what := "no longer counted"
	if gone {
		what = "interface is gone"
	}
	h.log.Info(what, "iface", l.String())
}

// links are the interfaces that are, or should be, attached.
func (h *hooks) links() (links []topology.Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.attached {
		links = append(links, at.link)
	}
	return links
}

// rename reports whether the hooks of an interface stay as they are. Where its
// new name asks for other directions they are taken off, to be added again.
func (h *hooks) rename(l topology.Link) (stays bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.attached[l.Iface]
	if at == nil || h.frozen {
		return true
	}
	if !slices.Equal(at.directions, h.directions(l.Name)) {
		h.detach(l.Iface)
		h.headroom.release(at.link)
		return false
	}
	at.link = l
	if at.err == nil && at.sends() {
		h.headroom.prepare(l)
	}
	if p, ok := h.probe.(interface {
		Rename(flow.Iface, string) error
	}); ok && at.err == nil {
		if err := p.Rename(l.Iface, l.Name); err != nil {
			h.log.Error("stages do not follow the new name", "iface", l.String(), "error", err)
		}
	}
	return true
}

func (h *hooks) detach(i flow.Iface) {
	at := h.attached[i]
	delete(h.attached, i)
	if at == nil || at.err != nil {
		return
	}
	if err := h.probe.Detach(i); err != nil {
		h.log.Error("detaching", "iface", at.link.String(), "error", err)
	}
}

// freeze leaves everything as it is until close, whatever interfaces do.
func (h *hooks) freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = true
}

// close takes the probe off everywhere, and returns of how many interfaces.
func (h *hooks) close() int {
	h.freeze()
	h.mu.Lock()
	ifaces := slices.Collect(maps.Keys(h.attached))
	h.mu.Unlock()
	for _, i := range ifaces {
		h.mu.Lock() // once per hook: a drain may come between
		h.detach(i)
		h.mu.Unlock()
	}
	return len(ifaces)
}

// beforeDrain and afterDrain read the interfaces' own counters.
func (h *hooks) beforeDrain() {
	h.read(func(at *attachment, c topology.Counters) { at.draining.low = c })
}

func (h *hooks) afterDrain() {
	h.read(func(at *attachment, c topology.Counters) { at.draining.high = c })
}

func (h *hooks) read(set func(*attachment, topology.Counters)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, at := range h.attached {
		if at.err != nil {
			continue
		}
		if counters, err := h.registry.Counters(i); err == nil {
			set(at, counters)
		}
	}
}

// status lists hooks of attached interfaces in a fixed order.
func (h *hooks) status() []obs.Hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []obs.Hook
	problems := h.headroom.problems()
	for _, at := range h.attached {
		row := obs.Hook{Iface: at.link.Name, Netns: at.link.Netns, IfIndex: at.link.IfIndex, State: "attached"}
		for _, mode := range h.atXDP(at) {
			row.Direction, row.Mode = flow.Ingress.String(), mode
			out = append(out, row)
		}
		for _, direction := range at.directions {
			hook := row
			hook.Direction, hook.Mode = direction.String(), at.mode
			if at.err != nil {
				hook.State, hook.Error = "failed", at.err.Error()
			} else {
				hook.Warning = at.warning(direction, problems)
			}
			out = append(out, hook)
		}
	}
	order.By(out, func(a, b obs.Hook) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Iface, b.Iface), -cmp.Compare(a.Direction, b.Direction))
	})
	return out
}

// atXDP are the modes of programs that stages have at XDP of an interface.
func (h *hooks) atXDP(at *attachment) []string {
	if p, ok := h.probe.(interface{ AtXDP(flow.Iface) []string }); ok && at.err == nil {
		return p.AtXDP(at.link.Iface)
	}
	return nil
}

// allFailed is the error of every interface when none could be attached.
func (h *hooks) allFailed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, at := range h.attached {
		if at.err == nil {
			return nil
		}
		errs = append(errs, at.err)
	}
	return errors.Join(errs...)
}
