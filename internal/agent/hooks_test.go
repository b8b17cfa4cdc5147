package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/topology"
)

// TestRemovedIsNotAlwaysGone: the log tells an interface that was deleted from one
// that the configuration no longer names.
func TestRemovedIsNotAlwaysGone(t *testing.T) {
	for gone, want := range map[bool]string{true: "interface is gone", false: "no longer counted"} {
		var log bytes.Buffer
		h := newHooks(nil, nil, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
		h.remove(topology.Link{Name: "eth7"}, gone)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) || !strings.Contains(got, "iface=eth7") {
			t.Errorf("gone %t: %q, want %q", gone, got, want)
		}
	}
}
