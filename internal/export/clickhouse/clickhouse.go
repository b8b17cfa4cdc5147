// Package clickhouse keeps flow records in ClickHouse. Input: the intervals of package store as they end. Output: one insert each, over
// HTTP; the schema of the tables. Callers: the agent, the command line, and the engine of queries (package store/clickhouse).
//
// An interval is written to a queue on disk at once, as a Parquet file, which ClickHouse reads. What cannot be sent waits there.
// Each insert has a token, so that an interval that is sent twice is stored once.
package clickhouse

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
)

// Config says where records go.
type Config struct {
	Server
	Tables
	QueuePath string
	QueueSize uint64 // bytes
}

// Default suits a server on the same host.
func Default() Config {
	return Config{Server: Server{URL: "http://127.0.0.1:8123", Timeout: 30 * time.Second}, Tables: DefaultTables(), QueueSize: 1 << 30}
}

// The pauses after a failure: the first one, doubled up to the longest.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// flushTime is how long the end of the agent waits for what can still be sent; the rest stays in the queue.
const flushTime = 2 * time.Second

// maxWaiting is how many records may wait to be written to the queue: of intervals that came while the disk was slow.
const maxWaiting = 1 << 18

// Exporter sends intervals. It is a service of the agent: Listen, Run.
type Exporter struct {
	cfg    Config
	client *Client
	origin flow.Origin
	log    *slog.Logger
	run    uint64
	pause  time.Duration // the first one

	mu        sync.Mutex
	queue     *queue.Queue // nil: it is not open
	last      uint64
	waiting   []store.Ended
	records   int // that wait to be written
	exported  uint64
	retries   uint64
	lost      map[string]uint64
	lastError string
	wake      chan struct{} // holds one value once something waits
}

// New prepares an exporter; nothing is opened before Listen. run is a number that no other run of an agent has.
func New(cfg Config, origin flow.Origin, run uint64, log *slog.Logger) (*Exporter, error) {
	if err := cfg.Tables.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", section, err)
	}
	c, err := NewClient(cfg.Server)
	if err != nil {
		return nil, err
	}
	return &Exporter{cfg: cfg, client: c, origin: origin, log: log, run: run, pause: firstPause, lost: map[string]uint64{}, wake: make(chan struct{}, 1)}, nil
}

// Listen takes the directory of the queue.
func (e *Exporter) Listen() error {
	q, err := queue.Open(e.cfg.QueuePath, e.cfg.QueueSize, e.run)
	if err != nil {
		return fmt.Errorf("%s.queue_path %s: %w", section, e.cfg.QueuePath, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue, e.last = q, q.Last()
	return nil
}

// Close gives the directory back where Run is not called.
func (e *Exporter) Close() {
	if e.queue != nil {
		_ = e.queue.Close()
	}
	e.client.Close()
}

// Last is the number of the last interval of an earlier run.
func (e *Exporter) Last() uint64 { return e.last }

// Client asks the same server.
func (e *Exporter) Client() *Client { return e.client }

// Tables are those of the configuration.
func (e *Exporter) Tables() Tables { return e.cfg.Tables }

// Append has an interval sent; it waits for neither disk nor network.
func (e *Exporter) Append(ended store.Ended) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.records > 0 && e.records+ended.Len() > maxWaiting {
		e.lose("disk_slow", uint64(ended.Len()), errors.New("the disk of the queue is too slow"))
		return
	}
	e.waiting = append(e.waiting, ended)
	e.records += ended.Len()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// lose counts records, and logs the first ones. It needs e.mu.
func (e *Exporter) lose(reason string, n uint64, why error) {
	if e.lost[reason] == 0 {
		e.log.Error("clickhouse: records are lost", "reason", reason, "error", why)
	}
	e.lost[reason] += n
}

// Run writes and sends until ctx ends; then it writes what waits, and sends what it can within flushTime.
func (e *Exporter) Run(ctx context.Context) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var sender sync.WaitGroup
	stopped := make(chan struct{})
	sender.Go(func() { e.send(sending, stopped) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-e.wake:
		}
		e.write()
	}
	e.write()
	close(stopped)
	defer time.AfterFunc(flushTime, stop).Stop()
	sender.Wait()
	e.client.Close()
	return e.queue.Close()
}

// write writes what waits to the queue.
func (e *Exporter) write() {
	for {
		e.mu.Lock()
		if len(e.waiting) == 0 {
			e.mu.Unlock()
			return
		}
		ended := e.waiting[0]
		e.waiting = slices.Delete(e.waiting, 0, 1)
		e.mu.Unlock()
		b, err := e.encode(&ended)
		if err == nil {
			err = e.queue.Put(ended.Sequence(), ended.Len(), b)
		}
		e.mu.Lock()
		e.records -= ended.Len()
		if err != nil {
			e.lose("queue_failed", uint64(ended.Len()), err)
		}
		e.mu.Unlock()
	}
}

// head is in front of the records of an interval in its file, as a line of JSON: its row of the table of intervals, and the
// columns of the records.
type head struct {
	Row     interval `json:"row"`
	Columns []string `json:"columns"`
}

// interval is a row of that table. Times are in nanoseconds.
type interval struct {
	Time     string `json:"time"`
	Until    string `json:"until"`
	Host     string `json:"host"`
	Sequence uint64 `json:"sequence"`
	Rows     int    `json:"rows"`
	Summed   uint64 `json:"summed"`
	Wiring   string `json:"wiring"`
}

// timeLayout is how ClickHouse reads times.
const timeLayout = "2006-01-02 15:04:05.000000000"

func (e *Exporter) encode(ended *store.Ended) ([]byte, error) {
	var records bytes.Buffer
	h := ended.Head()
	first := head{Row: interval{
		h.From.UTC().Format(timeLayout), h.To.UTC().Format(timeLayout), e.origin.Host, h.Sequence, h.Rows, h.Summed,
		base64.StdEncoding.EncodeToString(store.AppendWiring(nil, h.Wiring)),
	}}
	if h.Rows > 0 {
		var err error
		if first.Columns, err = disk.WriteParquet(&records, e.origin, ended); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(first)
	return append(append(b, '\n'), records.Bytes()...), err
}

// send sends entries, oldest first, until ctx ends, or stopped is closed and nothing is left.
func (e *Exporter) send(ctx context.Context, stopped <-chan struct{}) {
	pause := e.pause
	for ctx.Err() == nil {
		entry, b, ok := e.queue.Take()
		if !ok {
			select {
			case <-e.queue.Ready():
			case <-stopped:
				if e.queue.Counts().Entries == 0 {
					return
				}
			case <-ctx.Done():
			}
			continue
		}
		err := e.insert(ctx, entry, b)
		var refused *Exception
		if errors.As(err, &refused) && !refused.refused() || err != nil && refused == nil {
			if !e.failed(ctx, err) {
				return
			}
			select {
			case <-time.After(pause):
			case <-stopped: // another agent sends it
				return
			case <-ctx.Done():
			}
			pause = min(2*pause, longestPause)
			continue
		}
		pause = e.pause
		e.finished(entry, err)
	}
}

// failed notes an error after which the same is sent again; false: it is the end of the agent.
func (e *Exporter) failed(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retries++
	if e.lastError == "" {
		e.log.Warn("export fails", "exporter", "clickhouse", "error", err)
	}
	e.lastError = fmt.Sprintf("export to %s: %v", e.cfg.URL, err)
	return true
}

// finished removes an entry that is stored, or refused.
func (e *Exporter) finished(entry queue.Entry, refused error) {
	err := errors.Join(e.queue.Keep(entry.Number), e.queue.Done())
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case refused != nil:
		e.lose("rejected", uint64(entry.Records), refused)
		e.lastError = refused.Error()
	case e.lastError != "":
		e.lastError = ""
		e.log.Info("export works again", "exporter", "clickhouse", "retries", e.retries)
	}
	if refused == nil {
		e.exported += uint64(entry.Records)
	}
	if err != nil { // it is sent again by the next run, and known by its token
		e.log.Error("clickhouse: cannot remove from the queue", "error", err)
	}
}

// insert sends an interval: its records, and then the row that says that they are complete.
func (e *Exporter) insert(ctx context.Context, entry queue.Entry, b []byte) error {
	line, records, _ := bytes.Cut(b, []byte("\n"))
	var h head
	if err := json.Unmarshal(line, &h); err != nil {
		return &Exception{Code: codeIncorrectData, Text: "the queue has a damaged file: " + err.Error()}
	}
	settings := url.Values{
		"insert_deduplication_token":                         {fmt.Sprintf("%s/%x/%d", e.origin.Host, entry.Run, entry.Number)},
		"deduplicate_blocks_in_dependent_materialized_views": {"1"},
		"async_insert": {"0"},
	}
	if len(records) > 0 {
		statement := fmt.Sprintf("INSERT INTO %s (%s) FORMAT Parquet", e.cfg.Records(), strings.Join(h.Columns, ", "))
		if err := e.client.Insert(ctx, statement, settings, records); err != nil {
			return err
		}
	}
	row, err := json.Marshal(h.Row)
	if err != nil {
		return err
	}
	return e.client.Insert(ctx, "INSERT INTO "+e.cfg.Intervals()+" FORMAT JSONEachRow", settings, row)
}

// Status is the state of the exporter.
func (e *Exporter) Status() obs.Exporter {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := obs.Exporter{Name: "clickhouse", Target: e.cfg.URL, Exported: e.exported, Retries: e.retries, LastError: e.lastError, Queued: e.records}
	lost := map[string]uint64{}
	for reason, n := range e.lost {
		lost[reason] = n
	}
	if e.queue != nil {
		c := e.queue.Counts()
		s.Queued += c.Records
		s.QueuedBytes, s.QueueBytes = c.Bytes, c.Limit
		lost["queue_full"], lost["queue_damaged"] = c.Full, c.Damaged
	}
	for _, reason := range []string{"disk_slow", "queue_failed", "queue_full", "queue_damaged", "rejected"} {
		if lost[reason] > 0 {
			s.Lost = append(s.Lost, obs.Loss{Where: "queue", Reason: reason, Count: lost[reason]})
		}
	}
	return s
}
