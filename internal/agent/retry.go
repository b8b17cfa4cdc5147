package agent

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/topology"
)

// retry schedules another attempt to attach.
type retry struct {
	attempts int
	next     time.Time
}

const (
	firstRetry = time.Second
	lastRetry  = time.Minute
	// tendEvery is how often failed hooks are looked at, and inspectEvery how often
	// the chains of the others are.
	tendEvery    = 250 * time.Millisecond
	inspectEvery = 30 * time.Second
)

// again sets the time of the next attempt.
func (r *retry) again(now time.Time) {
	delay := lastRetry
	if r.attempts < 6 {
		delay = firstRetry << r.attempts
	}
	r.attempts++
	r.next = now.Add(delay)
}

// failed notes that at could not be attached to.
func (h *hooks) failed(at *attachment) {
	name := at.link.String()
	switch first := at.retry.attempts == 0; {
	case errors.Is(at.err, unix.ENODEV):
		delete(h.attached, at.link.Iface)
		h.log.Debug("interface was gone before it could be counted", "iface", name)
		return
	case first && !errors.Is(at.err, unix.EMFILE): // of which reportFiles says more
		h.log.Error("interface is not counted; trying again", "iface", name, "error", at.err)
	default:
		h.log.Debug("interface is still not counted", "iface", name, "error", at.err)
	}
	at.retry.again(time.Now())
}

// reportFiles says once for each limit how many open files are needed, where too
// few may be opened.
func (h *hooks) reportFiles(limit uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hooks := 0
	for _, at := range h.attached {
		if errors.Is(at.err, unix.EMFILE) {
			hooks += len(at.directions)
		}
	}
	if hooks == 0 || limit == h.filesReported {
		return
	}
	h.filesReported = limit
	h.log.Error("too many open files: some interfaces are not counted until the limit is raised",
		"RLIMIT_NOFILE", limit, "needed", uint64(openFiles()+spareFiles+hooks*filesPerHook), "remedy", filesRemedy)
}

// none reports that no interface matches.
func (h *hooks) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attached) == 0
}

// due lists the interfaces that are to be tried again.
func (h *hooks) due(now time.Time, all bool) []topology.Link {
	h.mu.Lock()
	defer h.mu.Unlock()
	var links []topology.Link
	for _, at := range h.attached {
		if at.err != nil && (all || now.After(at.retry.next)) {
			links = append(links, at.link)
		}
	}
	return links
}

// attachedTo reports whether the hooks of an interface are in place, or why not.
func (h *hooks) attachedTo(i flow.Iface) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.attached[i]; at != nil {
		return at.err
	}
	return nil
}

// tend tries failed hooks again, with back-off, and at once when more files may
// be opened; and it looks at what others attached before ours.
func (a *Agent) tend(ctx context.Context) error {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	limit, inspected := raiseFileLimit(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			before := limit
			limit = raiseFileLimit()
			a.retryHooks(now, limit > before)
			a.hooks.reportFiles(limit)
			if a.synced.Load() && a.ready.changed.Swap(false) {
				a.reportReadiness()
			}
			if now.Sub(inspected) >= inspectEvery {
				inspected = now
				a.hooks.inspectAll()
			}
		}
	}
}

func (a *Agent) retryHooks(now time.Time, all bool) {
	for _, l := range a.hooks.due(now, all) {
		a.addHooks(l)
		a.ready.changed.Store(true)
		if errors.Is(a.hooks.attachedTo(l.Iface), unix.EMFILE) {
			return // so would the others
		}
	}
}
