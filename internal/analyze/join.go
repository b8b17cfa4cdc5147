package analyze

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/analyze/join"
	"github.com/waymark-net/waymark/internal/analyze/settings"
)

// Tokens are those with which hosts may join: files named after hashes, with the name of the host and until when it may.
type Tokens struct{ dir string }

// OpenTokens are those of an analyzer's directory.
func OpenTokens(path string) *Tokens { return &Tokens{filepath.Join(path, "tokens")} }

// pending is what a file of a token says.
type pending struct {
	Name  string    `json:"name"`
	Until time.Time `json:"until"`
}

// New makes a token for a host: a secret, and what the analyzer's CA is recognized by.
func (t *Tokens) New(name string, fingerprint [sha256.Size]byte, until time.Time) (string, error) {
	if err := settings.CheckName(name); err != nil {
		return "", err
	}
	var secret [join.SecretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return "", err
	}
	b, err := json.Marshal(pending{name, until})
	if err != nil {
		return "", err
	}
	if err := join.WriteWhole(t.path(secret[:]), b, 0o600); err != nil {
		return "", err
	}
	return join.Token(secret, fingerprint), nil
}

// path is the file of a secret, of which only the hash is kept.
func (t *Tokens) path(secret []byte) string {
	return filepath.Join(t.dir, fmt.Sprintf("%x", sha256.Sum256(secret)))
}

// errToken is the same for all tokens that are not accepted.
var errToken = errors.New("the token is unknown, used or too old")

// use gives the name of a token, which nobody can use again.
func (t *Tokens) use(token string, now time.Time) (name string, err error) {
	secret, _, err := join.Split(token)
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
	if err != nil {
		return nil, fmt.Errorf("certificate signing request: %w", err)
	}
	// First: anybody can send one whose key takes long to check.
	public, ok := request.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("certificate signing request: the key is not of P-256")
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate signing request: %w", err)
	}
	return public, nil
}
