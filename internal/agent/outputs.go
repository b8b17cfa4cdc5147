package agent

import (
	"maps"
	"slices"

	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// outputs makes the exporters of the configuration that take records.
func (a *Agent) outputs() ([]pipeline.Output, error) {
	origin := flow.Origin{Host: a.host, Sampling: a.cfg.Flow.Sampling}
	var out []pipeline.Output
	for _, e := range a.cfg.Export {
		if e.JSONL != nil {
			out = append(out, pipeline.Output{
				Exporter: jsonl.New(jsonl.Config{Path: e.JSONL.Path}, origin), Queue: e.JSONL.Queue,
			})
		}
	}
	return out, nil
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
