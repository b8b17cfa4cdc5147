package ipfix

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/clienttls/tlstest"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/pipeline"
	"github.com/waymark-net/waymark/test/await"
)

// tcpCollector accepts connections in a namespace, one after the other.
type tcpCollector struct {
	net.Listener
	wg  sync.WaitGroup
	mu  sync.Mutex
	got []uint64 // packets of flows

	// read handles a connection; nil decodes it to its end.
	read func(number int, conn net.Conn) io.Reader
}

func listenTCP(t *testing.T, ns *lab.Host, read func(int, net.Conn) io.Reader) *tcpCollector {
	t.Helper()
	c := &tcpCollector{read: read}
	if err := ns.Do(func() (err error) {
		c.Listener, err = net.Listen("tcp", "127.0.0.1:4739")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); c.wg.Wait() })
	c.wg.Go(func() {
		for number := 0; ; number++ {
			conn, err := c.Accept()
			if err != nil {
				return
			}
			c.wg.Go(func() {
				defer conn.Close()
				from := io.Reader(conn)
				if c.read != nil {
					from = c.read(number, conn)
				}
				c.decode(t, from)
			})
		}
	})
	return c
}

func (c *tcpCollector) decode(t *testing.T, from io.Reader) {
	d := &decoder{}
	records, err := d.stream(from)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("collector: %v", err)
	}
	if d.lost != 0 {
		t.Errorf("the sequence numbers tell of %d lost records", d.lost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, packetsOf(collect(records, DocumentationPEN).flows)...)
}

// received waits until n flows have come.
func (c *tcpCollector) received(t *testing.T, n int) []uint64 {
	t.Helper()
	var got []uint64
	await.Success(t, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if got = slices.Clone(c.got); len(got) < n {
			return fmt.Errorf("collector has %d of %d flows", len(got), n)
		}
		return nil
	})
	return got
}

func TestTCPRefused(t *testing.T) {
	e := newWithin(t, labtest.UpHost(t), "tcp://127.0.0.1:4739", nil)
	n, err := e.Export(t.Context(), numbered(0, 10))
	if n != 0 || !errors.Is(err, unix.ECONNREFUSED) || !strings.Contains(err.Error(), "start a collector there") {
		t.Errorf("exported %d: %v", n, err)
	}
}

// A collector that stops reading costs a message its time, then the connection.
// What it had not acknowledged is counted as lost; the rest goes to the next
// connection.
func TestTCPCollectorStopsReading(t *testing.T) {
	ns := labtest.UpHost(t)
	resume := make(chan struct{})
	c := listenTCP(t, ns, func(number int, conn net.Conn) io.Reader {
		if number == 0 {
			conn.(*net.TCPConn).SetReadBuffer(64 << 10)
			<-resume
		}
		return conn
	})
	e := newWithin(t, ns, "tcp://127.0.0.1:4739", func(c *Config) { c.WriteTimeout = 200 * time.Millisecond })

	const total = 20_000
	records := numbered(0, total)
	taken, err := e.Export(t.Context(), records)
	lost := lostBy(err)
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "does not read") || taken == 0 || lost == 0 {
		t.Fatalf("exported %d, %d lost: %v", taken, lost, err)
	}
	close(resume)
	if n, err := e.Export(t.Context(), records[taken:]); n != total-taken || err != nil {
		t.Fatalf("exported %d of %d: %v", n, total-taken, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	want := total - int(lost)
	got := c.received(t, want)
	c.Close()
	c.wg.Wait()
	if slices.Sort(got); len(got) != want || len(slices.Compact(got)) != want {
		t.Errorf("of %d records %d came and %d are counted as lost", total, len(got), lost)
	}
	t.Logf("%d taken by the connection that stalled, %d of them lost", taken, lost)
}

// An Export that waits for a collector ends with its context.
func TestTCPExportIsInterrupted(t *testing.T) {
	ns := labtest.UpHost(t)
	hold := make(chan struct{})
	defer close(hold)
	listenTCP(t, ns, func(_ int, conn net.Conn) io.Reader { <-hold; return strings.NewReader("") })
	e := newWithin(t, ns, "tcp://127.0.0.1:4739", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if n, err := e.Export(ctx, numbered(0, 200_000)); err == nil {
		t.Errorf("exported %d", n)
	}
}

// A collector that is restarted several times, with bytes unread: every record
// is exported, and no more than what it had not read is missing.
func TestTCPCollectorRestarts(t *testing.T) {
	ns := labtest.UpHost(t)
	const restarts, unread = 5, 300_000
	c := listenTCP(t, ns, func(number int, conn net.Conn) io.Reader {
		if number >= restarts {
			return conn
		}
		return io.LimitReader(conn, int64(20_000+7_000*number))
	})
	e := newWithin(t, ns, "tcp://127.0.0.1:4739", nil)
	cfg := pipeline.Config{FlushTimeout: 10 * time.Second, Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond}
	p := pipeline.New(cfg, []pipeline.Output{{Exporter: e, Queue: 1 << 20}}, slog.New(slog.DiscardHandler), time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()

	total := 0
	publish := func(n int) {
		p.Publish(numbered(total, n))
		total += n
		await.Success(t, func() error {
			if s := p.Status()[0]; s.Queued > 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	for p.Status()[0].Retries < restarts {
		publish(500)
	}
	settled := total
	publish(5000)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.wg.Wait()

	s := p.Status()[0]
	var lost int
	for _, l := range s.Lost {
		if l.Where != "output" || l.Reason != "unacknowledged" {
			t.Errorf("lost: %+v", l)
		}
		lost += int(l.Count)
	}
	got := c.got
	slices.Sort(got)
	if int(s.Exported) != total || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("exported %d of %d, %d came", s.Exported, total, len(got))
	}
	// The collector's host acknowledges what the collector never reads: only the
	// rest can be counted.
	if missing := total - len(got) - lost; missing < 0 || missing > restarts*unread/recordSize {
		t.Errorf("of %d records %d came and %d are counted as lost", total, len(got), lost)
	}
	if i := slices.Index(got, uint64(settled)); i < 0 || len(got)-i != 5000 {
		t.Errorf("of the last 5000 records some are missing")
	}
	t.Logf("of %d records %d came, %d are counted as lost, in %d restarts", total, len(got), lost, restarts)
}

const recordSize = 100 // bytes, at least

// A collector that ends its connections in an orderly way costs nothing.
func TestTCPCollectorClosesBetween(t *testing.T) {
	ns := labtest.UpHost(t)
	c := listenTCP(t, ns, nil)
	e := newWithin(t, ns, "tcp://127.0.0.1:4739", nil)
	for i := range 3 {
		if n, err := e.Export(t.Context(), numbered(10*i, 10)); n != 10 || err != nil {
			t.Fatalf("exported %d: %v", n, err)
		}
		s := e.session.(*streamSession)
		s.conn.(*countedConn).CloseWrite() // what the collector sees as the end of the stream
		c.received(t, 10*(i+1))
		<-s.ended // it has closed its side
		if n, err := e.Export(t.Context(), numbered(10*i+10, 10)); n != 0 || lostBy(err) != 0 || !strings.Contains(err.Error(), "ended the connection") {
			t.Fatalf("exported %d: %v", n, err)
		}
	}
	if n, err := e.Export(t.Context(), numbered(30, 10)); n != 10 || err != nil {
		t.Fatalf("exported %d: %v", n, err)
	}
}

func TestTLSErrorsTellTheRemedy(t *testing.T) {
	ns := labtest.UpHost(t)
	pki, other := tlstest.New(t), tlstest.New(t)
	listenTCP(t, ns, func(_ int, conn net.Conn) io.Reader {
		tls.Server(conn, pki.Server(t)).Handshake() // fails, and tells the client why
		return strings.NewReader("")
	})
	for _, tt := range []struct {
		name string
		set  func(*Config)
		want string
	}{
		{"authority not known", func(c *Config) { c.CA = other.CA }, "set export.ipfix.ca to the PEM file"},
		{"no client certificate", func(c *Config) { c.CA = pki.CA }, "set export.ipfix.cert and export.ipfix.key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newWithin(t, ns, "tls://127.0.0.1:4739", tt.set)
			// In TLS 1.3 the collector's refusal comes after the client's handshake.
			await.Success(t, func() error {
				_, err := e.Export(t.Context(), numbered(0, 1))
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					return fmt.Errorf("error is %v, want %q in it", err, tt.want)
				}
				return nil
			})
		})
	}
}
