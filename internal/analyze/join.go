package analyze

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
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
)

// Tokens are those with which hosts may join: files named after hashes, with the name of the host and until when it may.
type Tokens struct{ dir string }

// OpenTokens are those of an analyzer's directory.
func OpenTokens(path string) *Tokens { return &Tokens{filepath.Join(path, "tokens")} }

// tokenPrefix makes tokens recognizable, to people and to tools that look for secrets.
const tokenPrefix = "wmjoin-"

const secretBytes = 20

// pending is what a file of a token says.
type pending struct {
	Name  string    `json:"name"`
	Until time.Time `json:"until"`
}

// New makes a token for a host: a secret, and what the analyzer's CA is recognized by.
func (t *Tokens) New(name string, fingerprint [sha256.Size]byte, until time.Time) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	var secret [secretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return "", err
	}
	b, err := json.Marshal(pending{name, until})
	if err != nil {
		return "", err
	}
	if err := writeWhole(t.path(secret[:]), b, 0o600); err != nil {
		return "", err
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(secret[:], fingerprint[:]...)), nil
}

// path is the file of a secret, of which only the hash is kept.
func (t *Tokens) path(secret []byte) string {
	return filepath.Join(t.dir, fmt.Sprintf("%x", sha256.Sum256(secret)))
}

// errToken is the same for all tokens that are not accepted.
var errToken = errors.New("the token is unknown, used or too old")

// use gives the name of a token, which nobody can use again.
func (t *Tokens) use(token string, now time.Time) (name string, err error) {
	secret, _, err := splitToken(token)
	if err != nil {
		return "", err
	}
	path := t.path(secret)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errToken
	}
	if err == nil {
		err = os.Remove(path) // of two who come at once, one fails here
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", errToken
	}
	if err != nil {
		return "", err
	}
	var p pending
	if err := json.Unmarshal(b, &p); err != nil {
		return "", err
	}
	if now.After(p.Until) {
		return "", errToken
	}
	return p.Name, nil
}

func splitToken(token string) (secret []byte, fingerprint [sha256.Size]byte, err error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(token), tokenPrefix)
	b, decodeErr := base64.RawURLEncoding.DecodeString(text)
	if !ok || decodeErr != nil || len(b) != secretBytes+sha256.Size {
		return nil, fingerprint, fmt.Errorf("this is no token: copy all of what waymark analyze token printed, which begins with %s", tokenPrefix)
	}
	return b[:secretBytes], [sha256.Size]byte(b[secretBytes:]), nil
}

// maxJoin is how much a host may send to join, in bytes.
const maxJoin = 16 << 10

// join issues the certificate of a host that has a token.
func (a *Analyzer) join(w http.ResponseWriter, r *http.Request) {
	var req frame.Join
	err := json.NewDecoder(io.LimitReader(r.Body, maxJoin)).Decode(&req)
	if r.Method != http.MethodPost || err != nil {
		a.answerRefusal(w, r, refuse(refusedToken, http.StatusBadRequest, "this is no request to join", "use waymark join"), "")
		return
	}
	public, err := publicOf(req.Request)
	if err != nil {
		a.answerRefusal(w, r, refuse(refusedToken, http.StatusBadRequest, err.Error(), "use waymark join"), "")
		return
	}
	now := a.clock()
	name, err := a.tokens.use(req.Token, now)
	if err != nil {
		a.answerRefusal(w, r, refuse(refusedToken, http.StatusForbidden, err.Error(), "make another with waymark analyze token"), "")
		return
	}
	certificate, err := a.authority.issue(name, public, now)
	if err != nil {
		a.answerRefusal(w, r, refuse(refusedToken, http.StatusInternalServerError, err.Error(), "this is a defect of Waymark; please report it"), name)
		return
	}
	a.log.Info("a host joined", "host", name, "from", r.RemoteAddr)
	writeJSON(w, http.StatusOK, frame.Joined{Name: name, Certificate: string(certificate), CA: string(pemOf(a.authority.Certificate.Raw))})
}

// publicOf is the key of a request, whose sender has shown to have the private one.
func publicOf(text string) (*ecdsa.PublicKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("no certificate signing request")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate signing request: %w", err)
	}
	public, ok := request.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("certificate signing request: the key is not of P-256")
	}
	return public, nil
}

// Files are those that Join wrote.
type Files struct{ Name, CA, Cert, Key string }

// Join makes a key, has the analyzer issue a certificate for it, and writes both to a directory. The token says which
// analyzer it must be.
func Join(ctx context.Context, to, token, dir string) (f Files, err error) {
	_, fingerprint, err := splitToken(token)
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
	if err := writeKey(next, key); err != nil {
		return f, err
	}
	joined, err := requestJoin(ctx, u, token, fingerprint, key)
	if err != nil {
		return f, errors.Join(err, os.Remove(next))
	}
	f.Name = joined.Name
	return f, errors.Join(os.Rename(next, f.Key), writeWhole(f.CA, []byte(joined.CA), 0o644), writeWhole(f.Cert, []byte(joined.Certificate), 0o644))
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
