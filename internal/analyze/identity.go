package analyze

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/api"
)

// Reasons why somebody who sends is refused.
const (
	refusedNone    = "no_certificate"
	refusedForeign = "foreign_certificate"
	refusedExpired = "expired_certificate"
	refusedRevoked = "revoked_certificate"
	refusedName    = "unusable_name"
	refusedList    = "revocation_list_unreadable"
	refusedVersion = "other_version"
	refusedHosts   = "too_many_hosts"
	refusedToken   = "join_token"
)

// refusal is an answer with the reason that it is counted under.
type refusal struct {
	reason string
	api.Error
}

func refuse(reason string, status int, what, how string) *refusal {
	return &refusal{reason, api.Error{Status: status, What: what, How: how}}
}

// identify finds which host sends.
func (a *Analyzer) identify(r *http.Request) (name string, leaf *x509.Certificate, refused *refusal) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return "", nil, refuse(refusedNone, http.StatusUnauthorized, "no client certificate", "have the host join (waymark analyze token, waymark join), and set cert and key of its exporter")
	}
	leaf = r.TLS.PeerCertificates[0]
	now := a.clock()
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: a.authority.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		what := fmt.Sprintf("the certificate %s of %s: ", leaf.Subject, leaf.Issuer)
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
			return "", nil, refuse(refusedExpired, http.StatusUnauthorized,
				what+fmt.Sprintf("it is valid from %s to %s", leaf.NotBefore.Format(time.DateOnly), leaf.NotAfter.Format(time.DateOnly)), "have the host join again, or check the clocks")
		}
		return "", nil, refuse(refusedForeign, http.StatusUnauthorized, what+"it is not of this analyzer", "have the host join this analyzer (waymark join)")
	}
	switch revoked, err := a.revoked.has(leaf.SerialNumber); {
	case err != nil:
		return "", nil, refuse(refusedList, http.StatusServiceUnavailable, err.Error(), "correct the file; nobody is accepted until then")
	case revoked:
		return "", nil, refuse(refusedRevoked, http.StatusForbidden, fmt.Sprintf("the certificate %x is revoked", leaf.SerialNumber), "have the host join again, or take the number off analyze.revoked")
	}
	name = leaf.Subject.CommonName
	if err := settings.CheckName(name); err != nil {
		return "", nil, refuse(refusedName, http.StatusForbidden, "the certificate names "+err.Error(), "have the host join again")
	}
	return name, leaf, nil
}

// revocations are the numbers of certificates that are no longer accepted.
type revocations struct {
	path      string
	authority *x509.Certificate

	mu      sync.Mutex
	read    os.FileInfo // nil: it was not there
	numbers map[string]bool
	err     error
}

// has looks at the file, and reads it if it is another one than before.
func (r *revocations) has(number *big.Int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if r.read != nil { // it must not be enough to remove it by mistake
			return r.numbers[number.Text(16)], nil
		}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("list of revoked certificates: %w", err)
	}
	if r.read == nil || !os.SameFile(info, r.read) || !info.ModTime().Equal(r.read.ModTime()) || info.Size() != r.read.Size() {
		r.read = info
		var numbers map[string]bool
		if numbers, r.err = r.parse(); r.err == nil {
			r.numbers = numbers
		}
	}
	return r.numbers[number.Text(16)], r.err
}

// parse reads lines of numbers, or a list that the CA signed.
func (r *revocations) parse() (map[string]bool, error) {
	text, err := os.ReadFile(r.path)
	if err != nil {
		return nil, fmt.Errorf("list of revoked certificates: %w", err)
	}
	numbers := map[string]bool{}
	if block, _ := pem.Decode(text); block != nil {
		list, err := x509.ParseRevocationList(block.Bytes)
		if err == nil {
			err = list.CheckSignatureFrom(r.authority)
		}
		if err != nil {
			return nil, fmt.Errorf("list of revoked certificates %s: %w", r.path, err)
		}
		for i := range list.RevokedCertificateEntries {
			numbers[list.RevokedCertificateEntries[i].SerialNumber.Text(16)] = true
		}
		return numbers, nil
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.ReplaceAll(strings.TrimSpace(line), ":", ""); line == "" {
			continue
		}
		number, ok := new(big.Int).SetString(line, 16)
		if !ok {
			return nil, fmt.Errorf("list of revoked certificates %s:%d: %q is no hexadecimal number", r.path, n, line)
		}
		numbers[number.Text(16)] = true
	}
	return numbers, nil
}
