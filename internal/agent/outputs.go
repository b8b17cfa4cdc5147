package agent

import (
	"fmt"
	"maps"
	"slices"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/ipfix"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// outputs makes the exporters of the configuration that take records.
func (a *Agent) outputs(exports []config.Export) ([]pipeline.Output, error) {
	origin := flow.Origin{Host: a.host, Sampling: a.cfg.Flow.Sampling}
	var out []pipeline.Output
	for i, e := range exports {
		chosen, err := filter.Parse(e.Filter())
		if err != nil {
			return nil, fmt.Errorf("export[%d]: %w", i, err)
		}
		switch {
		case e.JSONL != nil:
			x := jsonl.New(jsonl.Config{Path: e.JSONL.Path}, origin)
			a.reopen = append(a.reopen, x.Reopen)
			out = append(out, pipeline.Output{Exporter: x, Filter: chosen, Queue: e.JSONL.Queue})
		case e.IPFIX != nil:
			x, err := ipfix.New(ipfixConfig(e.IPFIX), origin, a.clock)
			if err != nil {
				return nil, err
			}
			out = append(out, pipeline.Output{Exporter: x, Filter: chosen, Queue: e.IPFIX.Queue})
		}
	}
	return out, nil
}

func ipfixConfig(c *config.IPFIX) ipfix.Config {
	cfg := ipfix.Default()
	cfg.Collector, cfg.ObservationDomain = c.Collector, c.ObservationDomain
	cfg.TemplateInterval, cfg.Biflow, cfg.MTU = c.TemplateInterval, c.Biflow, c.MTU
	cfg.CA, cfg.Cert, cfg.Key = c.CA, c.Cert, c.Key
	cfg.Enterprise = c.Enterprise
	return cfg
}

// Reopen makes file exporters open their files anew, after log rotation.
func (a *Agent) Reopen() {
	for _, reopen := range a.reopen {
		reopen()
	}
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
