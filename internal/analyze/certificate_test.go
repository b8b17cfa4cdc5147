package analyze

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"path/filepath"
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
