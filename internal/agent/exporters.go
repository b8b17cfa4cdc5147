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
	"github.com/waymark-net/waymark/internal/export/analyzer"
	"github.com/waymark-net/waymark/internal/export/clickhouse"
	"github.com/waymark-net/waymark/internal/export/ipfix"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/export/kafka"
	"github.com/waymark-net/waymark/internal/export/otlp"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/pipeline"
	"github.com/waymark-net/waymark/internal/stage/list"
	"github.com/waymark-net/waymark/internal/store"
)

// exporters are those of the configuration: outputs of the pipeline, and services: pages
// that others fetch, and metrics that are sent.
type exporters struct {
	origin   flow.Origin
	clock    flow.Clock
	log      *slog.Logger
	status   func() obs.Status
	topology func() []byte // as it is, compressed
	pipeline *pipeline.Pipeline
	// serve runs a service until the agent ends. Nil before the agent runs.
	serve func(func(context.Context) error)

	mu   sync.Mutex
	list []*exporter
}

// exporter is one entry of the configuration: an output, a service or both.
type exporter struct {
	entry   config.Export
	output  pipeline.Output    // without Exporter: none
	reopen  func()             // nil: it writes to no file
	service service            // nil: none
	stop    context.CancelFunc // of a service that runs
	whole   keeper             // nil: it takes records, no whole intervals
}

// keeper takes whole intervals, and waits for nothing.
type keeper interface {
	Append(store.Ended)
	Status() obs.Exporter
}

// service is what an exporter does of its own accord. Listen binds what Run answers at, or Close gives back.
type service interface {
	Listen() error
	Run(context.Context) error
	Close()
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
		e.close()
		if e.output.Exporter != nil {
			x.pipeline.Remove(e.output.Exporter)
		}
	}
	for _, e := range added {
		if e.output.Exporter != nil {
			x.pipeline.Add(e.output)
		}
		if e.service != nil && x.serve != nil {
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

// add makes an exporter that takes no part yet. A service of a running agent is
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
	case entry.OTLP != nil:
		cfg := otlpConfig(entry.OTLP, x.origin.Host)
		if entry.OTLP.Records {
			to, err := otlp.New(cfg, x.origin)
			if err != nil {
				return nil, err
			}
			e.output = pipeline.Output{Exporter: to, Filter: chosen, Queue: entry.OTLP.Queue}
		}
		if every := entry.OTLP.MetricsInterval; every > 0 {
			if e.service, err = otlp.NewMetrics(cfg, every, prometheus.Gatherer(x.status, list.Metrics()), x.log); err != nil {
				return nil, err
			}
		}
	case entry.Analyzer != nil:
		pushes, err := analyzer.New(analyzerConfig(entry.Analyzer, x), x.log)
		if err != nil {
			return nil, err
		}
		e.service, e.whole = pushes, pushes
	case entry.ClickHouse != nil:
		database, err := clickhouse.New(clickhouseConfig(entry.ClickHouse), x.origin, x.log)
		if err != nil {
			return nil, err
		}
		e.service, e.whole = database, database
	case entry.Kafka != nil:
		broker, err := kafka.New(kafkaConfig(entry.Kafka), x.origin, x.log)
		if err != nil {
			return nil, err
		}
		e.service, e.whole = broker, broker
	case entry.Prometheus != nil:
		e.service = prometheus.New(prometheus.Config{Listen: entry.Prometheus.Listen}, x.status, list.Metrics(), x.log)
	}
	if e.service != nil && x.serve != nil {
		return e, e.service.Listen()
	}
	return e, nil
}

// listen binds services, before anything is attached.
func (x *exporters) listen() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if e.service == nil {
			continue
		}
		if err := e.service.Listen(); err != nil {
			return err
		}
	}
	return nil
}

// run runs the services, those of later reloads too.
func (x *exporters) run(serve func(func(context.Context) error)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.serve = serve
	for _, e := range x.list {
		if e.service != nil {
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
		return e.service.Run(ctx)
	})
}

// close ends a service, whether it runs or is only bound.
func (e *exporter) close() {
	switch {
	case e.stop != nil:
		e.stop()
	case e.service != nil:
		e.service.Close()
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

// interval hands on what ended, to exporters that take whole intervals.
func (x *exporters) interval(ended store.Ended) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if e.whole != nil {
			e.whole.Append(ended)
		}
	}
}

// state is the status of all exporters.
func (x *exporters) state() []obs.Exporter {
	all := x.pipeline.Status()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if e.whole != nil {
			all = append(all, e.whole.Status())
		}
	}
	return all
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

// databases are those that are asked, too.
func (x *exporters) databases() (list []*clickhouse.Exporter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if d, ok := e.whole.(*clickhouse.Exporter); ok {
			list = append(list, d)
		}
	}
	return list
}

func clickhouseConfig(c *config.ClickHouse) clickhouse.Config {
	cfg := clickhouse.Default()
	cfg.URL, cfg.User, cfg.PasswordFile, cfg.CA, cfg.Cert, cfg.Key = c.URL, c.User, c.PasswordFile, c.CA, c.Cert, c.Key
	cfg.Database, cfg.Flows, cfg.QueuePath, cfg.QueueSize = c.Database, c.Table, c.QueuePath, c.QueueSize
	if cfg.QueuePath == "" {
		cfg.QueuePath = statePath("clickhouse")
	}
	return cfg
}

func kafkaConfig(c *config.Kafka) kafka.Config {
	cfg := kafka.Default()
	if len(c.Brokers) > 0 {
		cfg.Brokers = c.Brokers
	}
	cfg.Topic, cfg.ID, cfg.Format, cfg.Compression, cfg.Program = c.Topic, c.ID, c.Format, c.Compression, c.Program
	cfg.TLS, cfg.CA, cfg.Cert, cfg.Key = c.TLS, c.CA, c.Cert, c.Key
	cfg.SASL, cfg.User, cfg.PasswordFile = c.SASL, c.User, c.PasswordFile
	cfg.QueuePath, cfg.QueueSize = c.QueuePath, c.QueueSize
	if cfg.QueuePath == "" {
		cfg.QueuePath = statePath("kafka")
	}
	return cfg
}

func ipfixConfig(c *config.IPFIX) ipfix.Config {
	cfg := ipfix.Default()
	cfg.Collector, cfg.ObservationDomain = c.Collector, c.ObservationDomain
	cfg.TemplateInterval, cfg.Biflow, cfg.MTU = c.TemplateInterval, c.Biflow, c.MTU
	cfg.CA, cfg.Cert, cfg.Key = c.CA, c.Cert, c.Key
	cfg.Enterprise = c.Enterprise
	return cfg
}

func analyzerConfig(c *config.Analyzer, x *exporters) analyzer.Config {
	cfg := analyzer.Default()
	cfg.Topology, cfg.Sampling = x.topology, x.origin.Sampling
	cfg.URL, cfg.CA, cfg.Cert, cfg.Key, cfg.Path, cfg.Size = c.URL, c.CA, c.Cert, c.Key, c.Path, c.Size
	if cfg.Path == "" {
		cfg.Path = statePath("analyzer")
	}
	return cfg
}

func otlpConfig(c *config.OTLP, host string) otlp.Config {
	cfg := otlp.Default()
	cfg.Endpoint, cfg.HeadersFile, cfg.Gzip, cfg.Words = c.Endpoint, c.HeadersFile, c.Compression == "gzip", c.Words
	cfg.CA, cfg.Cert, cfg.Key = c.CA, c.Cert, c.Key
	cfg.Resource = otlp.Resource{Host: host, Version: obs.ReadBuild().Version}
	return cfg
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
