package analyzer

import (
	"log/slog"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
)

// topology is that of the host, as the analyzer is to have it.
type topology struct {
	make  func() []byte // nil: none is sent
	every time.Duration // at most
	log   *slog.Logger
	shown time.Time

	mu      sync.Mutex
	unshown string // why the analyzer does not have it
}

// show sends it, unless the analyzer has it. has is the checksum of what it has.
func (t *topology) show(has uint32, send func([]byte) error) {
	if t.make == nil || time.Since(t.shown) < t.every {
		return
	}
	b := t.make()
	if len(b) == 0 {
		return
	}
	var err error
	if frame.Checksum(b) != has { // else it has it, also where an answer was lost
		t.shown = time.Now()
		err = send(b)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.unshown
	if t.unshown = ""; err != nil {
		t.unshown = "send the topology: " + err.Error()
	}
	if t.unshown != "" && t.unshown != before {
		t.log.Warn("analyzer: " + t.unshown)
	}
}

func (t *topology) failing() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unshown
}
