package analyzer

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/analyze/frame"
)

// TestTopology: a topology whose answer was lost is no error once the analyzer has it; one that did not arrive is sent again.
func TestTopology(t *testing.T) {
	body, sent := []byte("graph"), 0
	top := topology{make: func() []byte { return body }, log: slog.New(slog.DiscardHandler)}
	fail := func([]byte) error { sent++; return errors.New("timeout") }
	for range 2 {
		top.show(0, fail)
	}
	if text := top.failing(); sent != 2 || !strings.Contains(text, "timeout") {
		t.Errorf("%d requests: %q", sent, text)
	}
	top.show(frame.Checksum(body), fail)
	if text := top.failing(); sent != 2 || text != "" {
		t.Errorf("%d requests: %q, though the analyzer has it", sent, text)
	}
}
