package api

import (
	"context"
	"net/http"
)

// Role is what a caller may see and change.
type Role string

// The roles, each with the rights of those before it.
const (
	ReadAnonymised Role = "read-anonymised" // answers in which all addresses are replaced
	Read           Role = "read"
	Admin          Role = "admin" // may change rules and bans
)

// Caller is who asks over a listener that authenticates.
type Caller struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	By   string `json:"by"` // what proved the name
}

// callerKey finds the Caller in the context of a request.
type callerKey struct{}

// WithCaller notes who asks, for the handlers of the API.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf is who asks; ok is false where nobody authenticated: on the unix socket and on the
// loopback port of the API.
func CallerOf(ctx context.Context) (c Caller, ok bool) {
	c, ok = ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// mayChange reports whether the caller may change what pages show.
func mayChange(r *http.Request) bool {
	c, ok := CallerOf(r.Context())
	return ok && c.Role == Admin || isOwner(r)
}
