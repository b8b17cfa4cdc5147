package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/ipfix"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/pipeline"
	"github.com/waymark-net/waymark/internal/stage/list"
)

// exporters are those of the configuration: outputs of the pipeline, and pages
// that others fetch.
type exporters struct {
	origin   flow.Origin
	clock    flow.Clock
	log      *slog.Logger
	status   func() obs.Status
	pipeline *pipeline.Pipeline
	// serve runs a page until the agent ends. Nil before the agent runs.
	serve func(func(context.Context) error)

	mu   sync.Mutex
	list []*exporter
}

// exporter is one entry of the configuration: an output or a page.
type exporter struct {
	entry  config.Export
	output pipeline.Output
	reopen func() // nil: it writes to no file
	page   *prometheus.Server
	stop   context.CancelFunc // of a page that is served
}

// set replaces the exporters by those of the entries. An entry that is there
// already keeps its exporter and queue; one that left exports what is queued.
// With an error nothing has changed.
func (x *exporters) set(entries []config.Export) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	left := slices.Clone(x.list)
	next := make([]*exporter, len(entries))
	for i, entry := range entries {
		if k := slices.IndexFunc(left, func(e *exporter) bool { return reflect.DeepEqual(e.entry, entry) }); k >= 0 {
			next[i] = left[k]
			left = slices.Delete(left, k, k+1)
		}
	}
	var added []*exporter
	for i, entry := range entries {
		if next[i] != nil {
			continue
		}
		e, err := x.add(entry)
		if err != nil {
			for _, e := range added {
				e.close()
			}
			return fmt.Errorf("export[%d]: %w", i, err)
		}
		next[i] = e
		added = append(added, e)
	}
	// First, so that those who come can take the names of those who left.
	for _, e := range left {
		if e.page != nil {
			e.close()
		} else {
			x.pipeline.Remove(e.output.Exporter)
		}
	}
	for _, e := range added {
		if e.page == nil {
			x.pipeline.Add(e.output)
		} else if x.serve != nil {
			x.start(e)
		}
	}
	x.list = next
	return nil
}

// entries are those of the exporters, in order.
func (x *exporters) entries() (entries []config.Export) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		entries = append(entries, e.entry)
	}
	return entries
}

// add makes an exporter that takes no part yet. A page of a running agent is
// bound, which may fail.
func (x *exporters) add(entry config.Export) (*exporter, error) {
	chosen, err := filter.Parse(entry.Filter())
	if err != nil {
		return nil, err
	}
	e := &exporter{entry: entry}
	switch {
	case entry.JSONL != nil:
		to := jsonl.New(jsonl.Config{Path: entry.JSONL.Path, Words: entry.JSONL.Words}, x.origin)
		e.reopen = to.Reopen
		e.output = pipeline.Output{Exporter: to, Filter: chosen, Queue: entry.JSONL.Queue}
	case entry.IPFIX != nil:
		to, err := ipfix.New(ipfixConfig(entry.IPFIX), x.origin, x.clock)
		if err != nil {
			return nil, err
		}
		e.output = pipeline.Output{Exporter: to, Filter: chosen, Queue: entry.IPFIX.Queue}
	case entry.Prometheus != nil:
		e.page = prometheus.New(prometheus.Config{Listen: entry.Prometheus.Listen}, x.status, list.Metrics(), x.log)
		if x.serve != nil {
			return e, e.page.Listen()
		}
	}
	return e, nil
}

// listen binds the pages, before anything is attached.
func (x *exporters) listen() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if e.page == nil {
			continue
		}
		if err := e.page.Listen(); err != nil {
			return err
		}
	}
	return nil
}

// run serves the pages, those of later reloads too.
func (x *exporters) run(serve func(func(context.Context) error)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.serve = serve
	for _, e := range x.list {
		if e.page != nil {
			x.start(e)
		}
	}
}

// start needs x.mu.
func (x *exporters) start(e *exporter) {
	var stopped context.Context
	stopped, e.stop = context.WithCancel(context.Background())
	x.serve(func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		return e.page.Run(ctx)
	})
}

// close ends a page, whether it is served or only bound.
func (e *exporter) close() {
	switch {
	case e.stop != nil:
		e.stop()
	case e.page != nil:
		e.page.Close()
	}
}

// close gives back what listen bound when run is not going to follow.
func (x *exporters) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		e.close()
	}
}

// Reopen makes file exporters open their files again, after log rotation.
func (x *exporters) Reopen() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if e.reopen != nil {
			e.reopen()
		}
	}
}

func ipfixConfig(c *config.IPFIX) ipfix.Config {
	cfg := ipfix.Default()
	cfg.Collector, cfg.ObservationDomain = c.Collector, c.ObservationDomain
	cfg.TemplateInterval, cfg.Biflow, cfg.MTU = c.TemplateInterval, c.Biflow, c.MTU
	cfg.CA, cfg.Cert, cfg.Key = c.CA, c.Cert, c.Key
	cfg.Enterprise = c.Enterprise
	return cfg
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
