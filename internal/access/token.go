package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"github.com/waymark-net/waymark/internal/api"
)

// tokenPrefix begins every token, so that tools that look for secrets find it.
const tokenPrefix = "waymark_"

const hashSize = sha256.Size

// hash is what is kept of a token. Tokens are random, so a fast hash is enough, and to look one up by it tells nothing
// about others.
type hash [hashSize]byte

// NewToken makes a token and its hash for the configuration.
func NewToken() (token, hashed string) {
	token = tokenPrefix + randomText()
	h := hashOf(token)
	return token, hex.EncodeToString(h[:])
}

// TokenRoles are the roles that a token may have.
func TokenRoles() []string {
	return []string{string(api.ReadAnonymised), string(api.Read), string(api.Admin)}
}

// randomText has 256 random bits, in letters that a URL may have.
func randomText() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func hashOf(token string) hash { return sha256.Sum256([]byte(token)) }

// parseHash reads a hash that was checked.
func parseHash(text string) (h hash) {
	_, _ = hex.Decode(h[:], []byte(text))
	return h
}
