package api

import (
	"context"
	"net/http"
)

// Configuration is what a running agent was configured with.
type Configuration struct {
	YAML string `json:"yaml"` // every key, as waymark config dump writes it
	// Elsewhere are the keys that a variable or a flag set, by name of that.
	Elsewhere map[string]string `json:"elsewhere"`
}

func (s *Server) configuration(w http.ResponseWriter, _ *http.Request) {
	c, err := s.deps.Configuration()
	if err != nil {
		writeError(w, &Error{http.StatusInternalServerError, err.Error(), "this is a defect of Waymark; please report it"})
		return
	}
	s.writeJSON(w, c)
}

// Configuration asks for the effective configuration.
func (c *Client) Configuration(ctx context.Context) (out Configuration, err error) {
	err = c.get(ctx, "/api/v1/config", func(body *answers) error { return body.next(&out) })
	return out, err
}
