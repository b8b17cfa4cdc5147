package analyze

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/join"
)

func certificateOf(t *testing.T, a *Authority, name string) join.Files {
	t.Helper()
	dir := t.TempDir()
	f := join.Files{Name: name, CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := a.issue(name, &key.PublicKey, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{join.WriteKey(f.Key, key), join.WriteWhole(f.Cert, certificate, 0o600), join.WriteWhole(f.CA, pemOf(a.Certificate.Raw), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestForeignKey: the signature of a key that no host has is not checked: anybody may send one that takes long.
func TestForeignKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if _, err := publicOf(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: b}))); err == nil || !strings.Contains(err.Error(), "not of P-256") {
		t.Error(err)
	}
}
