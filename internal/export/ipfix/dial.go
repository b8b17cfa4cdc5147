package ipfix

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sendBuffer bounds what is lost with a connection to some thousand records; the
// kernel's own limit is several megabytes. The kernel takes twice as much.
const sendBuffer = 256 << 10

func (e *Exporter) dial(ctx context.Context) (session, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.DialTimeout)
	defer cancel()
	if e.network == "udp" {
		s, err := dialUDP(ctx, e.address, e.cfg.RefusalTimeout)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", e.address)
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
			return nil, err
		}
		s.conn = secured
	}
	s.watch()
	return s, nil
}

// tlsConfig reads the authority once; the client certificate is read for every
// connection, so that a renewed one is used.
func tlsConfig(cfg Config, host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if cfg.CA != "" {
		pem, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("ipfix ca: %w: set export.ipfix.ca to the PEM file of the collector's authority", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ipfix ca %s: no certificate in it: set export.ipfix.ca to the PEM file of the collector's authority", cfg.CA)
		}
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("ipfix cert and key: one without the other: set both export.ipfix.cert and export.ipfix.key, or neither")
	}
	if cfg.Cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
			if err != nil {
				return nil, fmt.Errorf("ipfix cert %s and key %s: %w", cfg.Cert, cfg.Key, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}

// explain adds to an error what was tried and the remedy.
func explain(collector string, err error) error {
	return fmt.Errorf("export to %s: %w%s", collector, err, remedy(err))
}

func remedy(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
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
	case errors.As(err, &unknown):
		return ": set export.ipfix.ca to the PEM file of the collector's authority"
	case errors.As(err, &name):
		return ": name the collector in export.ipfix.collector as its certificate does"
	case strings.Contains(err.Error(), "remote error: tls:"):
		return ": the collector refuses the agent, set export.ipfix.cert and export.ipfix.key to a certificate it knows"
	}
	return ""
}
