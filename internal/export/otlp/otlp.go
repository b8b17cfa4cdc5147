// Package otlp sends flow records as log records, and the agent's metrics, to an OpenTelemetry collector: OTLP 1.11, protobuf over
// HTTP. Input: records from the pipeline, metrics as Prometheus' client gathers them. Output: requests.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// Config says where requests go and what is in them.
type Config struct {
	Endpoint      string        // http:// or https:// URL; /v1/logs and /v1/metrics are below it
	HeadersFile   string        // lines "Name: value", sent with each request; empty: none
	Gzip          bool          // compress requests
	CA, Cert, Key string        // https: PEM files
	Words         bool          // protocols by name
	Timeout       time.Duration // of a request, with its answer
	Resource      Resource
}

// Default suits a collector on the same host.
func Default() Config {
	return Config{Endpoint: "http://127.0.0.1:4318", Gzip: true, Timeout: 10 * time.Second}
}

// requestSize is how much is encoded before it is sent, in bytes: collectors take 4 MiB at least.
const requestSize = 1 << 20

// Exporter is a pipeline.Exporter of flow records.
type Exporter struct {
	cfg      Config
	client   *client
	envelope envelope
	encoder  encoder
	head     []byte
	records  []byte
	pause    time.Time // until when the collector wants no requests
}

// New makes an exporter; the collector is asked by the first Export.
func New(cfg Config, origin flow.Origin) (*Exporter, error) {
	c, err := newClient(cfg, "v1/logs")
	if err != nil {
		return nil, err
	}
	return &Exporter{
		cfg: cfg, client: c, envelope: newEnvelope(cfg.Resource), encoder: encoder{origin: origin, words: cfg.Words},
	}, nil
}

// Name is otlp.
func (e *Exporter) Name() string { return "otlp" }

// Target is the endpoint.
func (e *Exporter) Target() string { return e.cfg.Endpoint }

// Export sends records, 1 MiB in a request, and returns how many the collector took or refused permanently; those that it refused are in
// a *pipeline.LostError. A request that fails on the way may have arrived: its records are sent again.
func (e *Exporter) Export(ctx context.Context, records []flow.Record) (done int, err error) {
	for i := 0; i < len(records) || len(records) == 0; {
		n := e.encode(records[i:])
		rejected, err := e.send(ctx)
		var refused *refusal
		switch {
		case errors.As(err, &refused) && !refused.again():
			if n == 0 { // nothing was sent: it is the endpoint
				return 0, e.explain(err)
			}
			return done + n, &pipeline.LostError{Records: uint64(n), Reason: "rejected", Err: e.explain(err)}
		case err != nil:
			return done, e.explain(err)
		}
		done += n
		if rejected.records > 0 {
			return done, &pipeline.LostError{Records: min(rejected.records, uint64(n)), Reason: "rejected", Err: e.explain(rejected)}
		}
		if i += n; n == 0 {
			break
		}
	}
	return done, nil
}

func (e *Exporter) explain(err error) error {
	return fmt.Errorf("export to %s: %w", e.cfg.Endpoint, err)
}

// encode makes a request of the first records, and returns how many.
func (e *Exporter) encode(records []flow.Record) (n int) {
	e.records = e.records[:0]
	now := time.Now()
	for n < len(records) && len(e.records) < requestSize {
		e.records = e.encoder.append(e.records, &records[n], now)
		n++
	}
	e.head = e.envelope.appendHead(e.head[:0], len(e.records))
	return n
}

// rejected is what a collector that took a request did not keep of it.
type rejected struct {
	records uint64
	message string
}

func (r rejected) Error() string {
	return fmt.Sprintf("the collector rejects %d records: %s", r.records, r.message)
}

// send posts the request, after the pause that the collector asked for.
func (e *Exporter) send(ctx context.Context) (r rejected, err error) {
	if wait := time.Until(e.pause); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
	answer, err := e.client.post(ctx, e.head, e.records)
	if refused := (*refusal)(nil); errors.As(err, &refused) && refused.again() {
		e.pause = time.Now().Add(refused.after)
	}
	if err != nil {
		return r, err
	}
	// ExportLogsServiceResponse: partial_success, of which rejected_log_records and error_message.
	eachField(answer, func(n protowire.Number, _ uint64, partial []byte) {
		if n != 1 {
			return
		}
		eachField(partial, func(n protowire.Number, number uint64, text []byte) {
			switch n {
			case 1:
				r.records = number
			case 2:
				r.message = string(text)
			}
		})
	})
	return r, nil
}

// Close ends the connection.
func (e *Exporter) Close() error {
	e.client.close()
	return nil
}
