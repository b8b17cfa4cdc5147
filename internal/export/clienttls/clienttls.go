// Package clienttls is TLS from the agent to what it exports to. Input: PEM files of the configuration. Output: a
// configuration for crypto/tls; remedies for what the other end says of it. Called by the exporters.
package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Files are those of one exporter.
type Files struct {
	Section string // of the configuration, such as export.ipfix
	CA      string // who signed the certificate of the other end; empty: one of the system's authorities
	Cert    string // of the agent, with Key; empty: none
	Key     string
}

// Config reads the authority once; the client certificate is read for every
// connection, so that a renewed one is used. host is the other end; empty: net/http knows, as a proxy may come first.
func (f Files) Config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%s.ca: %w: %s", f.Section, err, f.caRemedy())
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.ca: %s: no certificate in it: %s", f.Section, f.CA, f.caRemedy())
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("%s.cert and %s.key: one without the other: set both, or neither", f.Section, f.Section)
	}
	if f.Cert == "" {
		return c, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s.cert %s and %s.key %s: %w", f.Section, f.Cert, f.Section, f.Key, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return c, nil
}

func (f Files) caRemedy() string {
	return "set " + f.Section + ".ca to the PEM file of the collector's authority"
}

// Remedy is what a user can do about an error of a connection, after a colon; empty: it is not about certificates.
// address is the key of the configuration with the other end's name.
func (f Files) Remedy(address string, err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return ": " + f.caRemedy()
	case errors.As(err, &name):
		return ": name the collector in " + address + " as its certificate does"
	case strings.Contains(err.Error(), "remote error: tls:"):
		return ": the collector refuses the agent, set " + f.Section + ".cert and " + f.Section + ".key to a certificate it knows"
	}
	return ""
}

// Explain adds to an error of a request over HTTP what a user can do. address is as for Remedy, peer is who should answer there.
func (f Files) Explain(address, peer string, err error) error {
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	remedy := f.Remedy(address, err)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		remedy = ": start " + peer + " there, or set " + address + " to another"
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		remedy = ": add a route to " + peer
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		remedy = ": set " + address + " to http://, or to the port on which " + peer + " serves TLS"
	}
	return fmt.Errorf("%w%s", err, remedy)
}
