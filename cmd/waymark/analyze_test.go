package main

import (
	"testing"

	"github.com/waymark-net/waymark/internal/analyze/verbs"
)

// Help and man pages say the same of waymark analyze, whichever program writes them.
func TestAnalyzeIsDescribedOnce(t *testing.T) {
	stub, analyzer := newAnalyzeCommand(), verbs.New()
	if stub.Name() != analyzer.Name() || stub.Short != analyzer.Short {
		t.Errorf("waymark has %q: %q, and the analyzer's program %q: %q", stub.Name(), stub.Short, analyzer.Name(), analyzer.Short)
	}
}
