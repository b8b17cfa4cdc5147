package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pki has two authorities and their certificates, as files.
type pki struct {
	dir  string
	root *x509.Certificate
}

type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{dir: t.TempDir()}
	own, other := p.authority(t, "Test CA"), p.authority(t, "Other CA")
	p.root = own.certificate
	p.write(t, "ca.pem", "CERTIFICATE", own.certificate.Raw)
	now := time.Now()
	for name, usage := range map[string]x509.ExtKeyUsage{
		"server": x509.ExtKeyUsageServerAuth, "reader": x509.ExtKeyUsageClientAuth, "chief": x509.ExtKeyUsageClientAuth,
		"guest": x509.ExtKeyUsageClientAuth, "stranger": x509.ExtKeyUsageClientAuth,
	} {
		p.issue(t, own, name, usage, now.Add(365*24*time.Hour))
	}
	p.issue(t, own, "expired", x509.ExtKeyUsageClientAuth, now.Add(-time.Hour))
	p.issue(t, own, "soon", x509.ExtKeyUsageServerAuth, now.Add(5*24*time.Hour))
	p.issue(t, other, "other", x509.ExtKeyUsageClientAuth, now.Add(time.Hour))
	return p
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(p.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *pki) authority(t *testing.T, name string) issuer {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	return issuer{sign(t, template, template, key, key), key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *pki) issue(t *testing.T, by issuer, name string, usage x509.ExtKeyUsage, ends time.Time) {
	t.Helper()
	key := newKey(t)
	c := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name + ".example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: ends.Add(-400 * 24 * time.Hour), NotAfter: ends,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, by.certificate, key, by.key)
	p.write(t, name+".pem", "CERTIFICATE", c.Raw)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, name+".key", "EC PRIVATE KEY", der)
}

// client is the TLS configuration of a client with a certificate; empty: without.
func (p *pki) client(t *testing.T, name string) *tls.Config {
	t.Helper()
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	if p == nil {
		return cfg
	}
	cfg.RootCAs.AddCert(p.root)
	if name == "" {
		return cfg
	}
	pair, err := tls.LoadX509KeyPair(p.path(name+".pem"), p.path(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	// Whether or not the server says that it takes it.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return cfg
}

// copyTo replaces a file of another.
func (p *pki) copyTo(t *testing.T, to *pki, from, name string) {
	t.Helper()
	data, err := os.ReadFile(p.path(from))
	if err == nil {
		err = os.WriteFile(to.path(name), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
