package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// Page is an endpoint that answers with one JSON object.
type Page struct {
	Path string
	Doc  string
	// Missing is the answer of an agent that has nothing to say.
	Missing *Error
	// Get is what it answers; nil: Missing, or it answers only what is sent to it.
	Get func() (any, error)
	// Set changes what the page shows, or tries what it is sent, and returns the answer; nil: it takes nothing.
	Set func(change json.RawMessage) (any, error)
}

// maxChange bounds what is sent to change something: 100,000 addresses.
const maxChange = 16 << 20

// servePage answers with what a page has at the moment.
func (s *Server) servePage(p Page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case p.Get == nil && p.Set == nil:
			writeError(w, p.Missing)
			return
		case r.Method == http.MethodPost:
			s.setPage(w, r, p)
			return
		case p.Get == nil:
			w.Header().Set("Allow", http.MethodPost)
			writeError(w, &Error{http.StatusMethodNotAllowed, p.Path + " answers questions that are sent to it", "use POST"})
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

// setPage changes what a page shows. Only root, the agent's own user and callers with the role admin may do that.
func (s *Server) setPage(w http.ResponseWriter, r *http.Request, p Page) {
	if !mayChange(r) {
		writeError(w, &Error{http.StatusForbidden, "only root, the agent's user and those with the role admin may change anything, or have packets tried", "ask over the unix socket as one of the first two, or give the role in console.tokens or console.users"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxChange))
	s.deadline(w) // reading, and what follows, may take longer than an answer
	if err != nil {
		writeError(w, &Error{
			http.StatusRequestEntityTooLarge, fmt.Sprintf("the change cannot be read, or is too large (%d bytes at most): %v", maxChange, err),
			"have the configuration name a file with what is larger",
		})
		return
	}
	value, err := p.Set(body)
	s.deadline(w)
	if err != nil {
		refused := &Error{Status: http.StatusBadRequest, What: err.Error()}
		_ = errors.As(err, &refused)
		writeError(w, refused)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.deps.Log.Debug("API: writing an answer", "path", p.Path, "error", err)
	}
}

// isChange reports whether a request is to change a page that can be changed, or that says what it would take.
func (s *Server) isChange(r *http.Request) bool {
	return r.Method == http.MethodPost && slices.ContainsFunc(s.deps.Pages, func(p Page) bool { return (p.Set != nil || p.Get == nil) && p.Path == r.URL.Path })
}

// Page reads a page into a value.
func (c *Client) Page(ctx context.Context, path string, into any) error {
	return c.get(ctx, path, func(body *answers) error { return body.next(into) })
}

// Set changes what a page shows, and reads the answer.
func (c *Client) Set(ctx context.Context, path string, change, into any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	return c.ask(ctx, http.MethodPost, path, bytes.NewReader(body), func(body *answers) error { return body.next(into) })
}
