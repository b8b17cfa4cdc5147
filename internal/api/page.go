package api

import (
	"context"
	"encoding/json"
	"net/http"
)

// Page is an endpoint that answers with one JSON object.
type Page struct {
	Path string
	Doc  string
	// Missing is the answer of an agent that has nothing to say.
	Missing *Error
	// Get is what it answers; nil: Missing.
	Get func() (any, error)
}

// servePage answers with what a page has at the moment.
func (s *Server) servePage(p Page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if p.Get == nil {
			writeError(w, p.Missing)
			return
		}
		s.freshen(r.Context())
		value, err := p.Get()
		if err != nil {
			writeError(w, &Error{http.StatusInternalServerError, err.Error(), "see the log of the agent"})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(value); err != nil {
			s.deps.Log.Debug("API: writing an answer", "path", p.Path, "error", err)
		}
	}
}

// Page reads a page into a value.
func (c *Client) Page(ctx context.Context, path string, into any) error {
	return c.get(ctx, path, func(body *answers) error { return body.next(into) })
}
