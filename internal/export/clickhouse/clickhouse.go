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
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/export/interval"
	"github.com/waymark-net/waymark/internal/export/queue"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
)

// Config says where records go.
type Config struct {
	Server
	Tables
	QueuePath string
	QueueSize uint64        // bytes
	Pause     time.Duration // after the first failure; it doubles with each
}

// Default suits a server on the same host.
func Default() Config {
	return Config{Server: Server{URL: "http://127.0.0.1:8123", Timeout: 30 * time.Second}, Tables: DefaultTables(), QueueSize: 1 << 30, Pause: interval.FirstPause}
}

// Exporter sends intervals. It is a service of the agent: Listen, Run.
type Exporter struct {
	*interval.Sender
	cfg    Config
	client *Client
	origin flow.Origin
}

// New prepares an exporter; nothing is opened before Listen.
func New(cfg Config, origin flow.Origin, log *slog.Logger) (*Exporter, error) {
	if err := cfg.Tables.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", section, err)
	}
	c, err := NewClient(cfg.Server)
	if err != nil {
		return nil, err
	}
	e := &Exporter{cfg: cfg, client: c, origin: origin}
	e.Sender = interval.New(interval.Config{
		Name: "clickhouse", Target: cfg.URL, Key: section + ".queue_path", Path: cfg.QueuePath, Size: cfg.QueueSize, Continues: true, Pause: cfg.Pause,
	}, receiver{e}, log)
	return e, nil
}

// Client asks the same server.
func (e *Exporter) Client() *Client { return e.client }

// Tables are those of the configuration.
func (e *Exporter) Tables() Tables { return e.cfg.Tables }

// receiver implements interval.Receiver.
type receiver struct{ *Exporter }

// head is in front of the records of an interval in its file, as a line of JSON: its row of the table of intervals, and the
// columns of the records.
type head struct {
	Row     intervalRow `json:"row"`
	Columns []string    `json:"columns"`
}

// intervalRow is a row of that table. Times are in nanoseconds.
type intervalRow struct {
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

// Encode is an interval as a Parquet file, behind its head.
func (e receiver) Encode(ended *store.Ended, _, _ uint64) ([]byte, error) {
	var records bytes.Buffer
	h := ended.Head()
	first := head{Row: intervalRow{
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

// Check accepts all: the server says what is wrong with a file.
func (e receiver) Check(queue.Entry, []byte) error { return nil }

// Renumber is never called: no token is used twice.
func (e receiver) Renumber([]byte, queue.Entry) {}

// Close ends the connections.
func (e receiver) Close() { e.client.Close() }

// Send sends one interval.
func (e receiver) Send(ctx context.Context, batch []queue.Entry, body []byte) (kept int, err error) {
	err = e.insert(ctx, batch[0], body)
	var x *Exception
	switch {
	case err == nil:
		return 1, nil
	case errors.As(err, &x) && x.refused():
		return 0, &interval.Refused{Reason: "rejected", Err: err}
	}
	return 0, err
}

// insert sends an interval: its records, and then the row that says that they are complete.
func (e receiver) insert(ctx context.Context, entry queue.Entry, b []byte) error {
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
