package analyze

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/join"
)

// Lifetimes of certificates. That of the analyzer itself is made again while it runs.
const (
	caLife     = 20 * 365 * 24 * time.Hour
	hostLife   = 2 * 365 * 24 * time.Hour
	serverLife = 30 * 24 * time.Hour
	early      = time.Hour // before now, for clocks that are behind
)

// Authority is the CA of an analyzer: it issues certificates of hosts.
type Authority struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool

	mu     sync.Mutex
	server *tls.Certificate
}

const (
	caFile  = "ca.pem"
	keyFile = "ca.key"
)

// OpenAuthority reads the CA in a directory; where there is none, it makes one.
func OpenAuthority(dir string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of the analyzer: %w; set analyze.path to one that it may write", err)
	}
	certificate, key, err := readPair(filepath.Join(dir, caFile), filepath.Join(dir, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		certificate, key, err = createAuthority(dir, now)
	}
	if err != nil {
		return nil, fmt.Errorf("CA of the analyzer: %w", err)
	}
	a := &Authority{Certificate: certificate, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(certificate)
	return a, nil
}

func readPair(certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("%s is no ECDSA key: restore the one that the analyzer made", keyFile)
	}
	return pair.Leaf, key, nil
}

func createAuthority(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if _, err := os.Stat(filepath.Join(dir, caFile)); err == nil { // a certificate without its key
		return nil, nil, fmt.Errorf("%s is missing: restore it; or remove %s, and have all hosts join again", filepath.Join(dir, keyFile), filepath.Join(dir, caFile))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Waymark analyzer"}, NotBefore: now.Add(-early), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	if err := join.WriteKey(filepath.Join(dir, keyFile), key); err != nil {
		return nil, nil, err
	}
	if err := join.WriteWhole(filepath.Join(dir, caFile), pemOf(der), 0o644); err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

// sign issues a certificate with a number of its own.
func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) ([]byte, error) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] &= 0x7f
	template.SerialNumber = new(big.Int).SetBytes(b[:])
	return x509.CreateCertificate(rand.Reader, template, parent, public, key)
}

func pemOf(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

// Fingerprint is what hosts recognize the CA by.
func (a *Authority) Fingerprint() [32]byte { return sha256.Sum256(a.Certificate.Raw) }

// issue makes the certificate of a host.
func (a *Authority) issue(name string, public *ecdsa.PublicKey, now time.Time) ([]byte, error) {
	der, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-early), NotAfter: now.Add(hostLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.Certificate, public, a.key)
	if err != nil {
		return nil, err
	}
	return pemOf(der), nil
}

// serve is the certificate under which the analyzer answers.
func (a *Authority) serve(names []string, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server != nil && now.Before(a.server.Leaf.NotAfter.Add(-serverLife/3)) && now.After(a.server.Leaf.NotBefore) {
		return a.server, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, NotBefore: now.Add(-early), NotAfter: now.Add(serverLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := sign(template, a.Certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.server = &tls.Certificate{Certificate: [][]byte{der, a.Certificate.Raw}, PrivateKey: key, Leaf: leaf}
	return a.server, nil
}
