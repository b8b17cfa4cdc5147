// Package join is the side of the host: it joins an analyzer with a token. Input: a token. Output: key, certificate and CA in
// files. Callers: waymark join; the analyzer makes and reads tokens, and writes its own keys, with the same functions.
package join

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
)

// Files are those that Host wrote.
type Files struct{ Name, CA, Cert, Key string }

// Host makes a key, has the analyzer issue a certificate for it, and writes both to a directory. The token says which
// analyzer it must be.
func Host(ctx context.Context, to, token, dir string) (f Files, err error) {
	_, fingerprint, err := Split(token)
	if err != nil {
		return f, err
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return f, fmt.Errorf("%q is no address of an analyzer: write it like https://analyzer.example:8476", to)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return f, err
	}
	// Written first: a certificate without its key would be lost with the token.
	f = Files{CA: filepath.Join(dir, "analyzer-ca.pem"), Cert: filepath.Join(dir, "analyzer-cert.pem"), Key: filepath.Join(dir, "analyzer-key.pem")}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return f, err
	}
	next := f.Key + ".new"
	if err := WriteKey(next, key); err != nil {
		return f, err
	}
	joined, err := requestJoin(ctx, u, token, fingerprint, key)
	if err != nil {
		return f, errors.Join(err, os.Remove(next))
	}
	f.Name = joined.Name
	return f, errors.Join(os.Rename(next, f.Key), WriteWhole(f.CA, []byte(joined.CA), 0o644), WriteWhole(f.Cert, []byte(joined.Certificate), 0o644))
}

func requestJoin(ctx context.Context, u *url.URL, token string, fingerprint [sha256.Size]byte, key *ecdsa.PrivateKey) (*frame.Joined, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "waymark"}}, key)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(frame.Join{Token: token, Request: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))})
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // what follows verifies instead, by the CA of the token
		VerifyConnection: func(s tls.ConnectionState) error { return verifyByToken(s, fingerprint) },
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.JoinPath(frame.JoinPath).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		var refused struct{ What, How string }
		if json.Unmarshal(text, &refused) != nil || refused.What == "" {
			return nil, fmt.Errorf("%s answers %s: is it an analyzer of Waymark?", u.Host, resp.Status)
		}
		return nil, fmt.Errorf("the analyzer refuses: %s; %s", refused.What, refused.How)
	}
	var joined frame.Joined
	if err := json.Unmarshal(text, &joined); err != nil {
		return nil, fmt.Errorf("answer of the analyzer: %w", err)
	}
	return &joined, nil
}

// verifyByToken accepts an analyzer whose CA is that of the token.
func verifyByToken(s tls.ConnectionState, fingerprint [sha256.Size]byte) error {
	pool := x509.NewCertPool()
	known := false
	for _, c := range s.PeerCertificates {
		if print := sha256.Sum256(c.Raw); subtle.ConstantTimeCompare(print[:], fingerprint[:]) == 1 {
			pool.AddCert(c)
			known = true
		}
	}
	if !known {
		return errors.New("this is not the analyzer that made the token: its CA is another one")
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: s.ServerName})
	return err
}
