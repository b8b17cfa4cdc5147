// Package ipfix sends flow records to a collector as IPFIX (RFC 7011) over UDP,
// TCP or TLS, both halves of a conversation in one record if asked for (RFC
// 5103). Input: records from the pipeline. Output: messages.
package ipfix

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/waymark-net/waymark/internal/export/clienttls"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// Config says where messages go and how.
type Config struct {
	Collector         string // udp://, tcp:// or tls:// host:port
	ObservationDomain uint32
	TemplateInterval  time.Duration // between two announcements of templates (UDP) and totals
	Biflow            bool          // one record for both halves of a conversation
	MTU               int           // bytes of a UDP message
	CA, Cert, Key     string        // tls: PEM files
	Enterprise        uint32        // private enterprise number of Waymark's own elements

	DialTimeout    time.Duration // of TCP connection and TLS handshake
	WriteTimeout   time.Duration // of a message on TCP
	RefusalTimeout time.Duration // UDP: how long a collector's host has to say that nobody listens
}

// Default suits a collector on the same host.
func Default() Config {
	return Config{
		Collector: "udp://127.0.0.1:4739", ObservationDomain: 1, TemplateInterval: time.Minute, MTU: 1400,
		Enterprise:  DocumentationPEN,
		DialTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, RefusalTimeout: 100 * time.Millisecond,
	}
}

const (
	minMTU      = 512      // the largest template fits
	streamLimit = 16 << 10 // bytes of a TCP message, at most 65535
)

// Exporter is a pipeline.Exporter and pipeline.LossReporter.
type Exporter struct {
	cfg     Config
	network string // udp, tcp or tls
	host    string
	port    string
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	current netip.AddrPort // UDP: the address of the session, or of the last one
	tls     *tls.Config
	origin  flow.Origin
	now     flow.Clock

	session  session // nil: not connected
	sequence uint32  // data records sent in this session
	msg      message
	taken    int    // flows sent by this Export
	scratch  []byte // an options record in the making

	announced time.Time // zero: the collector knows nothing yet
	ifaces    interfaces
	totals    totals
	notSent   pipeline.NotSent
	tellLoss  bool
}

// totals are counted since the agent started (RFC 7011 section 4.1).
type totals struct{ messages, flows, bytes uint64 }

// session is a transport session with the collector.
type session interface {
	// send sends a message that holds a number of flows.
	send(ctx context.Context, message []byte, flows int) error
	// confirm waits for news that nobody listens, where the transport has such.
	confirm() error
	// interrupt makes send and confirm return; called from any goroutine.
	interrupt()
	// lost returns and forgets how many flows sent before are known not to have
	// arrived, and the reason.
	lost() (int, string)
	close() error
}

// New checks the configuration; the first Export connects.
func New(cfg Config, origin flow.Origin, now flow.Clock) (*Exporter, error) {
	u, err := url.Parse(cfg.Collector)
	if err != nil || u.Host == "" || u.Path != "" {
		return nil, fmt.Errorf("ipfix collector %q: want udp://, tcp:// or tls:// with host:port", cfg.Collector)
	}
	e := &Exporter{
		cfg: cfg, network: u.Scheme, host: u.Hostname(), port: u.Port(), origin: origin, now: now,
		lookup: net.DefaultResolver.LookupNetIP,
		msg:    message{limit: streamLimit}, ifaces: newInterfaces(),
	}
	switch {
	case e.network == "udp":
		if e.msg.limit = cfg.MTU; cfg.MTU < minMTU || cfg.MTU > 65507 {
			return nil, fmt.Errorf("ipfix mtu %d: want %d to 65507 bytes", cfg.MTU, minMTU)
		}
	case e.network == "tls":
		files := clienttls.Files{Section: "export.ipfix", CA: cfg.CA, Cert: cfg.Cert, Key: cfg.Key}
		if e.tls, err = files.Config(e.host); err != nil {
			return nil, err
		}
	case e.network != "tcp":
		return nil, fmt.Errorf("ipfix collector %q: scheme %q: want udp, tcp or tls", cfg.Collector, e.network)
	}
	if e.port == "" {
		e.port = map[string]string{"udp": "4739", "tcp": "4739", "tls": "4740"}[e.network] // IANA
	}
	e.msg.reset()
	return e, nil
}

// Name is ipfix.
func (e *Exporter) Name() string { return "ipfix" }

// Target is the collector's URL.
func (e *Exporter) Target() string { return e.cfg.Collector }

// ReportNotSent makes the next message tell the collector what it will not see.
func (e *Exporter) ReportNotSent(n pipeline.NotSent) { e.notSent, e.tellLoss = n, true }

// Export sends records. What is in a message that could not be sent is offered
// again; what was sent and is known to have been lost comes back as a
// pipeline.LostError.
func (e *Exporter) Export(ctx context.Context, records []flow.Record) (int, error) {
	taken, err := e.export(ctx, records)
	if err != nil {
		err = e.failed(err)
	}
	return taken, err
}

func (e *Exporter) export(ctx context.Context, records []flow.Record) (taken int, err error) {
	if e.session == nil {
		if err := e.connect(ctx); err != nil {
			return 0, err
		}
	}
	stop := context.AfterFunc(ctx, e.session.interrupt)
	defer stop()

	if err := e.announce(ctx); err != nil {
		return 0, err
	}
	e.taken = 0
	for done := 0; done < len(records); {
		n, err := e.addFlow(ctx, records[done:])
		if err != nil {
			return e.taken, err
		}
		done += n
		e.msg.flows += n
	}
	err = e.flush(ctx)
	return e.taken, err
}

// addFlow puts the first record, or the first two if they are halves of one
// conversation, into a message and returns their number.
func (e *Exporter) addFlow(ctx context.Context, records []flow.Record) (int, error) {
	r := &records[0]
	at, err := e.way(ctx, r)
	if err != nil {
		return 0, err
	}
	joined := e.cfg.Biflow && len(records) > 1 && conversation(r, &records[1])
	parts := records[:1]
	if joined {
		parts = records[:2]
	}
	// First: should the message of the flow fail, only what has no counters is sent again.
	for i := range parts {
		if err := e.addIOAM(ctx, at, &parts[i]); err != nil {
			return 0, err
		}
	}
	id := uint16(idUnattributed)
	if !r.Unattributed {
		id = idFlow + variant(r)
	}
	if joined {
		id |= variantBiflow | variant(&records[1])
	}
	if !e.msg.fits(kindData, id, flowLengths[id-idFlow]) {
		if err := e.flush(ctx); err != nil {
			return 0, err
		}
	}
	e.msg.open(kindData, id)
	e.msg.dataRecords++
	e.msg.flowRecords++

	b := e.msg.buf
	switch {
	case r.Unattributed:
		b = appendUnattributed(b, at, r)
	case joined:
		b = appendBiflow(b, id-idFlow, at, r, &records[1])
	default:
		b = appendFlow(b, id-idFlow, at, r)
	}
	e.msg.buf = b
	return len(parts), nil
}

// way is where packets of a record were counted, and the interface on the other side, as far as that is known.
type way struct{ iface, other *iface }

// way returns that of a record; the collector knows both by then.
func (e *Exporter) way(ctx context.Context, r *flow.Record) (at way, err error) {
	var fresh bool
	if at.iface, fresh = e.ifaces.of(r); fresh {
		err = e.addInterface(ctx, at.iface)
	}
	if at.other, fresh = e.ifaces.otherOf(r); fresh && err == nil {
		err = e.addInterface(ctx, at.other)
	}
	return at, err
}

// addIOAM puts what IOAM reported of a flow into a message.
func (e *Exporter) addIOAM(ctx context.Context, at way, r *flow.Record) error {
	if r.IOAM == nil || r.Family != 6 || r.Unattributed {
		return nil
	}
	e.scratch = appendIOAM(e.scratch[:0], at, r)
	return e.add(ctx, idIOAM, e.scratch)
}

// flush sends the message, if there is anything in it.
func (e *Exporter) flush(ctx context.Context) error {
	if e.msg.empty() {
		return nil
	}
	b := e.msg.finish(e.now(), e.sequence, e.cfg.ObservationDomain)
	if err := e.session.send(ctx, b, e.msg.flows); err != nil {
		return err
	}
	e.sequence += e.msg.dataRecords
	e.taken += e.msg.flows
	e.totals.messages++
	e.totals.flows += uint64(e.msg.flowRecords)
	e.totals.bytes += uint64(len(b))
	e.msg.reset()
	return nil
}

// failed ends the session and adds to the error what is known to be lost. The
// next Export makes a new session, to where the collector's name points then.
func (e *Exporter) failed(err error) error {
	e.msg.reset()
	err = explain(e.cfg.Collector, err)
	if e.session == nil {
		return err
	}
	flows, reason := e.session.lost()
	e.session.close()
	e.session = nil
	if flows > 0 {
		err = &pipeline.LostError{Records: uint64(flows), Reason: reason, Err: err}
	}
	return err
}

// Close tells the collector the last totals and ends the session.
func (e *Exporter) Close() error {
	if e.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, e.session.interrupt)
	defer stop()
	err := e.addTotals(ctx)
	if err == nil {
		err = e.flush(ctx)
	}
	if err != nil {
		return e.failed(err)
	}
	return e.session.close()
}

const closeTimeout = 500 * time.Millisecond
