package api

import (
	"context"
	"net/http"
)

// pointsPath is where the API of an analyzer has the ways of flows.
const pointsPath = "/api/v1/points"

// answerPoints answers with the ways of flows.
func (s *Server) answerPoints(w http.ResponseWriter, r *http.Request) error {
	if s.deps.Points == nil {
		return &Error{http.StatusNotFound, "an agent has the records of one host, and does not compare hosts", "ask an analyzer, such as with --socket /run/waymark-analyze/analyze.sock"}
	}
	return s.examined(w, r, s.deps.Points)
}

// Points asks for the ways of flows, and reads the answer.
func (c *Client) Points(ctx context.Context, r WhyRequest, into any) error {
	return c.get(ctx, pointsPath+"?"+r.Values().Encode(), func(body *answers) error { return body.next(into) })
}
