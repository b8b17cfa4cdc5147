package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/waymark-net/waymark/internal/obs"
)

// readinessReport calls Deps.Ready when readiness changes.
type readinessReport struct {
	report  func(reason error)
	changed atomic.Bool // there was an event: it may have changed

	mu   sync.Mutex
	last string // the reason of the last report
	once bool   // there was a report
}

func (a *Agent) reportReadiness() {
	r := &a.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	reason, text := a.readiness(), ""
	if reason != nil {
		text = reason.Error()
	}
	if r.report == nil || r.once && r.last == text {
		return
	}
	r.last, r.once = text, true
	r.report(reason)
}

var errStarting = errors.New("starting: programs are being loaded and attached")

// readiness is nil while everything that is configured is counted, else it says
// what is not.
func (a *Agent) readiness() error {
	if !a.synced.Load() {
		return errStarting
	}
	var why []string
	if missing := a.missing(); len(missing) > 0 {
		why = append(why, "missing: "+strings.Join(missing, ", "))
	}
	hooks := a.hookStatus()
	attached, failed := 0, []obs.Hook{}
	for _, h := range hooks {
		switch h.State {
		case "attached":
			attached++
		case "failed":
			failed = append(failed, h)
		}
	}
	switch {
	case len(failed) > 0:
		why = append(why, fmt.Sprintf("%d of %d hooks failed, the first on %s: %s",
			len(failed), len(failed)+attached, failed[0].Place(), failed[0].Error))
	case attached == 0 && len(why) == 0:
		why = append(why, "no interface matches "+strings.Join(a.patterns(), ", "))
	}
	if len(why) > 0 {
		return errors.New(strings.Join(why, "; "))
	}
	return nil
}
