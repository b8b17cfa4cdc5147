package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/export/clienttls/tlstest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
	"github.com/waymark-net/waymark/test/await"
)

// TestRequests: many records are several requests of bounded size, compressed, in order and complete.
func TestRequests(t *testing.T) {
	c := newCollector(t)
	cfg := Default()
	cfg.Endpoint = c.URL
	e := newExporter(t, cfg)
	records := numbered(5000)
	if n, err := e.Export(t.Context(), records); n != len(records) || err != nil {
		t.Fatalf("exported %d: %v", n, err)
	}
	var packets []string
	for _, q := range c.requests {
		if q.header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("headers %v", q.header)
		}
		z, err := gzip.NewReader(bytes.NewReader(q.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(z)
		if err != nil || len(body) > 2*requestSize {
			t.Fatalf("%d bytes: %v", len(body), err)
		}
		lines, _ := decoded(t, body)
		for _, l := range lines {
			packets = append(packets, fmt.Sprint(l["packets"]))
		}
	}
	if len(c.requests) < 2 || len(packets) != len(records) {
		t.Fatalf("%d records in %d requests", len(packets), len(c.requests))
	}
	for i, p := range packets {
		if p != fmt.Sprint(i) {
			t.Fatalf("record %d has %s packets", i, p)
		}
	}
}

// TestRefusals: what a collector answers decides whether records are sent again, or lost and counted.
func TestRefusals(t *testing.T) {
	// ExportLogsServiceResponse
	partial := appendBytes(nil, 1, appendBytes(appendNumber(nil, 1, 3), 2, "too old"))
	status := func(code int, header ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for _, h := range header {
				name, value, _ := strings.Cut(h, ": ")
				w.Header().Set(name, value)
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "because\nof details")
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter)
		taken  int
		lost   uint64
		says   string
	}{
		{"busy", status(http.StatusServiceUnavailable), 0, 0, "503 Service Unavailable: because"},
		{"too many", status(http.StatusTooManyRequests), 0, 0, "429"},
		{"bad gateway", status(http.StatusBadGateway), 0, 0, "502"},
		{"gateway timeout", status(http.StatusGatewayTimeout), 0, 0, "504"},
		{"bad data", status(http.StatusBadRequest), 10, 10, "400 Bad Request: because"},
		{"no such path", status(http.StatusNotFound), 10, 10, "set export.otlp.endpoint"},
		{"unknown user", status(http.StatusUnauthorized), 10, 10, "set export.otlp.headers_file"},
		{"redirection", status(http.StatusFound, "Location: http://192.0.2.1/"), 10, 10, "302"},
		{"rejected in part", func(w http.ResponseWriter) { _, _ = w.Write(partial) }, 10, 3, "rejects 3 records: too old"},
		{"status", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(appendBytes(appendNumber(nil, 1, 3), 2, "no such tenant"))
		}, 10, 10, "400 Bad Request: no such tenant"},
		{"not a response", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>fine") }, 10, 0, ""},
	} {
		c := newCollector(t)
		c.answer = tt.answer
		cfg := Default()
		cfg.Endpoint = c.URL
		e := newExporter(t, cfg)
		n, err := e.Export(t.Context(), numbered(10))
		var lost *pipeline.LostError
		errors.As(err, &lost)
		if lost == nil {
			lost = &pipeline.LostError{}
		}
		if n != tt.taken || lost.Records != tt.lost || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %d taken, %d lost: %v", tt.name, n, lost.Records, err)
		}
	}
}

// TestPipeline: a collector that is busy for a while, refuses a request and ends a connection costs what it refused, and nothing else.
func TestPipeline(t *testing.T) {
	var requests atomic.Int64
	c := &collector{}
	taken := make(chan []byte, 100)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch n := requests.Add(1); {
		case err != nil:
		case n == 1: // the empty one, before any record
		case n == 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case n == 3:
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
		case n == 5:
			w.WriteHeader(http.StatusBadRequest)
		default:
			taken <- body
		}
	}))
	defer c.Close()
	cfg := Default()
	cfg.Endpoint, cfg.Gzip = c.URL, false
	e := newExporter(t, cfg)
	p := pipeline.New(pipeline.Default(), []pipeline.Output{{Exporter: e, Queue: 10000}}, slog.New(slog.DiscardHandler), time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	began := time.Now()
	var got []int
	for i, n := range []int{10, 20, 30} { // the second one is refused
		p.Publish(numbered(n))
		if i == 1 {
			await.True(t, "a refusal", func() bool { return len(p.Status()[0].Lost) > 0 })
			continue
		}
		lines, _ := decoded(t, await.Signal(t, "a request", taken))
		got = append(got, len(lines))
	}
	if time.Since(began) < time.Second {
		t.Error("it came back before the collector wanted it")
	}
	await.True(t, "an account of all records", func() bool { return p.Status()[0].Exported == 60 })
	s := p.Status()[0]
	if !slices.Equal(got, []int{10, 30}) || s.Lost[0].Count != 20 || s.Lost[0].Reason != "rejected" || s.Lost[0].Where != "output" || len(s.Lost) != 1 {
		t.Errorf("taken: %v; %+v", got, s)
	}
}

// TestRetryAfter: seconds, or a date, and not for ever.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "Wed, 01 Jul 2026 12:01:00 GMT": time.Minute, "Wed, 01 Jul 2026 11:00:00 GMT": 0,
		"86400": longestWait, "soon": 0, "-3": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestErrors: each says what is wrong and what helps.
func TestErrors(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	plain := newCollector(t)
	pki, other := tlstest.New(t), tlstest.New(t)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.TLS = pki.Server(t)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	secure.StartTLS()
	defer secure.Close()
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"nobody listens", func(c *Config) { c.Endpoint = "http://" + closed.Addr().String() }, "start a collector there"},
		{"no answer", func(c *Config) { c.Endpoint, c.Timeout = "http://"+silent.Addr().String(), 50*time.Millisecond }, "Client.Timeout"},
		{"no TLS", func(c *Config) { c.Endpoint = "https://" + plain.Listener.Addr().String() }, "set export.otlp.endpoint to http://"},
		{"unknown authority", func(c *Config) { c.Endpoint, c.CA = secure.URL, other.CA }, "set export.otlp.ca to the PEM file"},
		{"no client certificate", func(c *Config) { c.Endpoint, c.CA = secure.URL, pki.CA }, "set export.otlp.cert and export.otlp.key"},
	} {
		cfg := Default()
		tt.change(&cfg)
		n, err := newExporter(t, cfg).Export(t.Context(), numbered(1))
		if n != 0 || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), cfg.Endpoint) {
			t.Errorf("%s: %d taken: %v, want %q in it", tt.name, n, err, tt.want)
		}
	}
}

// TestTLS: both ends show certificates.
func TestTLS(t *testing.T) {
	pki := tlstest.New(t)
	c := &collector{}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.take))
	c.TLS = pki.Server(t)
	c.StartTLS()
	defer c.Close()
	cfg := Default()
	cfg.Endpoint, cfg.CA, cfg.Cert, cfg.Key = c.URL, pki.CA, pki.Cert, pki.Key
	if n, err := newExporter(t, cfg).Export(t.Context(), numbered(3)); n != 3 || err != nil {
		t.Errorf("exported %d: %v", n, err)
	}
}

// TestHeadersFile: secrets are in a file, and what is no header is refused with its line.
func TestHeadersFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCollector(t)
	cfg := Default()
	cfg.Endpoint, cfg.HeadersFile = c.URL, file
	write("# of the tenant\n\nAuthorization: Bearer a:b\nX-Scope-OrgID:  net \r\n")
	if _, err := newExporter(t, cfg).Export(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if h := c.requests[0].header; h.Get("Authorization") != "Bearer a:b" || h.Get("X-Scope-OrgID") != "net" {
		t.Errorf("headers %v", h)
	}
	for _, bad := range []string{"Authorization\n", "Bad Name: x\n", ": x\n", "A: \x01\n"} {
		write("Fine: yes\n" + bad)
		if _, err := New(cfg, flow.Origin{}); err == nil || !strings.Contains(err.Error(), file+":2 is not a header") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	cfg.HeadersFile = file + "-missing"
	if _, err := New(cfg, flow.Origin{}); err == nil || !strings.Contains(err.Error(), "export.otlp.headers_file") {
		t.Errorf("no file: %v", err)
	}
}

// BenchmarkExport has a collector in the same process that only reads, so that its time is not of the exporter alone.
func BenchmarkExport(b *testing.B) {
	for _, compress := range []bool{false, true} {
		b.Run(fmt.Sprintf("gzip=%v", compress), func(b *testing.B) {
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			defer server.Close()
			cfg := Default()
			cfg.Endpoint, cfg.Gzip = server.URL, compress
			e := newExporter(b, cfg)
			records := numbered(pipeline.BufferRecords)
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(records) {
				if _, err := e.Export(b.Context(), records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
