package api

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// topologyPath is where the API has the topology.
const topologyPath = "/api/v1/topology"

// TopologyChangesPath is where the API reports changes of it as they come.
const TopologyChangesPath = topologyPath + "/changes"

// TopologyChangesDoc describes that.
const TopologyChangesDoc = "What is connected differently, as `waymark topology --follow -o jsonl` shows it"

// topology answers with the graph of a moment.
func (s *Server) topology(w http.ResponseWriter, r *http.Request) error {
	at := ""
	for name, values := range r.URL.Query() {
		if name != "at" || len(values) != 1 {
			return refuse("parameter "+name+" is not known, or given more than once", "give at, once")
		}
		at = values[0]
	}
	moment, err := parsePast("at", at, time.Now())
	if err != nil {
		return err
	}
	graph, err := s.deps.Topology(moment)
	if err != nil {
		return &Error{http.StatusNotFound, err.Error(), ""}
	}
	s.writeJSON(w, graph)
	return nil
}

// Topology asks for the graph of a moment, written as for flows; empty: now.
func (c *Client) Topology(ctx context.Context, at string, into any) error {
	path := topologyPath
	if at != "" {
		path += "?" + url.Values{"at": {at}}.Encode()
	}
	return c.get(ctx, path, func(body *answers) error { return body.next(into) })
}
