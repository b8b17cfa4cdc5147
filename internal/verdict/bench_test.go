package verdict_test

import (
	"context"
	"testing"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/verdict"
)

// BenchmarkExamine examines ten minutes of a history of an hour and a half.
func BenchmarkExamine(b *testing.B) {
	w := newWorld(1)
	w.run(500, fault{})
	e := w.examiner(config.Default().Why)
	for b.Loop() {
		if _, err := e.Examine(context.Background(), verdict.Request{}, w.now); err != nil {
			b.Fatal(err)
		}
	}
}
