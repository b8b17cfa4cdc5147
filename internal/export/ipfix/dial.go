package ipfix

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/export/clienttls"
	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

// sendBuffer bounds what is lost with a connection to some thousand records; the
// kernel's own limit is several megabytes. The kernel takes twice as much.
const sendBuffer = 256 << 10

// connect begins a session with the collector and announces templates.
func (e *Exporter) connect(ctx context.Context) error {
	if e.network == "udp" {
		return e.connectUDP(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.DialTimeout)
	defer cancel()
	s, err := e.dialStream(ctx)
	if err != nil {
		return err
	}
	e.begin(s)
	return nil
}

// begin takes a new session, whose collector knows nothing yet.
func (e *Exporter) begin(s session) {
	e.session, e.sequence, e.announced = s, 0, time.Time{}
}

// connectUDP tries the addresses of the collector's name one after the other, in
// the order of the resolver, until one does not refuse the templates. It starts
// behind the one that failed last: some fail only after they took messages.
func (e *Exporter) connectUDP(ctx context.Context) error {
	addresses, err := e.resolve(ctx)
	if err != nil {
		return err
	}
	after := slices.Index(addresses, e.current) + 1
	var failed error
	for _, to := range slices.Concat(addresses[after:], addresses[:after]) {
		err := e.try(ctx, to)
		if err == nil {
			return nil
		}
		if len(addresses) > 1 {
			err = fmt.Errorf("%s: %w", to, err)
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		if failed = err; ctx.Err() != nil {
			break
		}
	}
	return failed
}

// try announces templates to an address.
func (e *Exporter) try(ctx context.Context, to netip.AddrPort) error {
	e.current = to
	s, err := dialUDP(to, e.cfg.RefusalTimeout)
	if err != nil {
		return err
	}
	e.begin(s)
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	if err := e.announce(ctx); err != nil {
		e.msg.reset()
		s.close()
		e.session = nil
		return err
	}
	return nil
}

// resolve finds the addresses of the collector.
func (e *Exporter) resolve(ctx context.Context) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.DialTimeout)
	defer cancel()
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", e.port)
	if err != nil {
		return nil, err
	}
	found, err := e.lookup(ctx, "ip", e.host)
	if err != nil {
		return nil, err
	}
	addresses := make([]netip.AddrPort, len(found))
	for i, a := range found {
		addresses[i] = netip.AddrPortFrom(a.Unmap(), uint16(port))
	}
	return addresses, nil
}

func (e *Exporter) dialStream(ctx context.Context) (session, error) {
	d := net.Dialer{Control: ownsocket.Control}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(e.host, e.port))
	if err != nil {
		return nil, err
	}
	counted := &countedConn{TCPConn: conn.(*net.TCPConn)}
	counted.SetWriteBuffer(sendBuffer)
	s := &streamSession{conn: counted, tcp: counted, timeout: e.cfg.WriteTimeout}
	if e.network == "tls" {
		secured := tls.Client(counted, e.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, handshakeError(err, counted.received.Load())
		}
		s.conn = secured
	}
	s.watch()
	return s, nil
}

var errNotTLS = errors.New("the collector does not speak TLS on this port")

// handshakeError tells a collector that does not speak TLS from one that refuses
// the agent: its answer is not TLS, or there is none.
func handshakeError(err error, received uint64) error {
	const recordHeader = 5 // bytes
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header):
		return fmt.Errorf("%w: its answer begins with %q", errNotTLS, header.RecordHeader[:])
	case received >= recordHeader:
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it took the connection and did not answer the handshake: %w", errNotTLS, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return fmt.Errorf("%w: it ended the connection during the handshake: %w", errNotTLS, err)
	}
	return err
}

// explain adds to an error what was tried and the remedy.
func explain(collector string, err error) error {
	return fmt.Errorf("export to %s: %w%s", collector, err, remedy(err))
}

func remedy(err error) string {
	switch {
	case errors.Is(err, errNotTLS):
		return ": set export.ipfix.collector to tcp://, or to the port on which the collector serves TLS"
	case errors.Is(err, unix.ECONNREFUSED):
		return ": start a collector there, or set export.ipfix.collector to another"
	case errors.Is(err, unix.EMSGSIZE):
		return ": the path takes no datagrams of this size, set export.ipfix.mtu lower"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return ": add a route to the collector"
	case errors.Is(err, unix.EPERM):
		return ": a packet filter of this host refuses it, let messages to the collector out"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ": the collector does not read, see what it is waiting for"
	}
	return clienttls.Files{Section: "export.ipfix"}.Remedy("export.ipfix.collector", err)
}
