// Package tlstest makes certificates. Only tests call it.
package tlstest

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
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority with a certificate for both ends, of 127.0.0.1: PEM files.
type Authority struct{ CA, Cert, Key string }

// New makes an authority, for an hour.
func New(t testing.TB) Authority {
	t.Helper()
	dir := t.TempDir()
	caKey, leafKey := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "collector"}, IPAddresses: []net.IP{netip.MustParseAddr("127.0.0.1").AsSlice()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	write := func(name, kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := Authority{}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	a.CA = write("ca.pem", "CERTIFICATE", der, err)
	der, err = x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), caKey)
	a.Cert = write("cert.pem", "CERTIFICATE", der, err)
	der, err = x509.MarshalPKCS8PrivateKey(leafKey)
	a.Key = write("key.pem", "PRIVATE KEY", der, err)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Server asks its clients for a certificate of the same authority.
func (a Authority) Server(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	text, err := os.ReadFile(a.CA)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatalf("authority: %v", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}
