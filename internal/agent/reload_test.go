package agent

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/stage"
)

// TestReloadThatAStageRefuses: exporters, which come first, are those from before.
func TestReloadThatAStageRefuses(t *testing.T) {
	cfg, _ := agentConfig(t, "ebpf", newLab(t).Host("alpha"))
	a := start(t, cfg)
	refusal := errors.New("the kernel refused it")
	a.stages.names = append(a.stages.names, "flow")
	a.stages.all = append(a.stages.all, &stage.Stage{
		Reload: func(*config.Config) (func() error, error) { return func() error { return refusal }, nil },
	})
	before := a.exports.entries()

	next := a.settings()
	next.Flow.ScanInterval = time.Minute
	added := config.Export{JSONL: &config.JSONL{Path: filepath.Join(t.TempDir(), "more.jsonl"), Queue: 16}}
	next.Export = append(slices.Clone(next.Export), added)
	if _, _, err := a.Reload(next, nil); !errors.Is(err, refusal) || !strings.HasPrefix(err.Error(), "reload flow.") {
		t.Errorf("error %v", err)
	}
	if got := a.exports.entries(); !reflect.DeepEqual(got, before) {
		t.Errorf("exporters after it: %+v, before %+v", got, before)
	}
	if got := a.settings(); got.Flow.ScanInterval != cfg.Flow.ScanInterval || len(got.Export) != len(cfg.Export) {
		t.Errorf("settings after it: %+v", got)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
}
