package join

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// prefix makes tokens recognizable, to people and to tools that look for secrets.
const prefix = "wmjoin-"

// SecretBytes is the length of the secret in a token.
const SecretBytes = 20

// Token is the text of one.
func Token(secret [SecretBytes]byte, fingerprint [sha256.Size]byte) string {
	return prefix + base64.RawURLEncoding.EncodeToString(append(secret[:], fingerprint[:]...))
}

// Split gives the secret of a token, and the fingerprint of the analyzer's CA.
func Split(token string) (secret []byte, fingerprint [sha256.Size]byte, err error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(token), prefix)
	b, decodeErr := base64.RawURLEncoding.DecodeString(text)
	if !ok || decodeErr != nil || len(b) != SecretBytes+sha256.Size {
		return nil, fingerprint, fmt.Errorf("this is no token: copy all of what waymark analyze token printed, which begins with %s", prefix)
	}
	return b[:SecretBytes], [sha256.Size]byte(b[SecretBytes:]), nil
}
