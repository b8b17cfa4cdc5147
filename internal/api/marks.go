package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"time"
)

// Mark is one packet that was marked, or whose mark was read (RFC 8250).
type Mark struct {
	Time      time.Time      `json:"time"`
	Iface     string         `json:"iface"`
	Netns     string         `json:"netns,omitempty"`
	Direction string         `json:"direction"`
	Proto     uint8          `json:"proto"`
	Local     netip.AddrPort `json:"local"` // port 0 where the protocol has none; of a ping, its identifier
	Remote    netip.AddrPort `json:"remote"`

	PSNTP uint16        `json:"psntp"`
	PSNLR uint16        `json:"psnlr"`
	DTLR  time.Duration `json:"dtlr_ns"`
	DTLS  time.Duration `json:"dtls_ns"`

	// Of packets read, what they told; absent when they told nothing.
	Arrival    string        `json:"arrival,omitempty"`
	Suspicious string        `json:"suspicious,omitempty"`
	Server     time.Duration `json:"server_ns,omitempty"`
	Network    time.Duration `json:"network_ns,omitempty"`
}

// errNoMarks is the answer of an agent that tells no single packets.
var errNoMarks = &Error{
	http.StatusNotFound, "this agent does not tell marked packets one by one",
	"start it with pdm.raw: true and a policy in pdm.policies",
}

// marks streams marked packets, one JSON object a line, to one reader at a time.
func (s *Server) marks(w http.ResponseWriter, r *http.Request) {
	if s.deps.Marks == nil {
		writeError(w, errNoMarks)
		return
	}
	select {
	case s.marking <- struct{}{}:
		defer func() { <-s.marking }()
	default:
		writeError(w, &Error{http.StatusConflict, "somebody else reads marked packets already", "end the other waymark marks first"})
		return
	}
	flusher := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/jsonl")
	if err := flusher.Flush(); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	err := s.deps.Marks(ctx, func(m *Mark) {
		line, err := json.Marshal(m)
		if err == nil {
			s.deadline(w)
			if _, err = w.Write(append(line, '\n')); err == nil {
				err = flusher.Flush()
			}
		}
		if err != nil {
			cancel() // the reader left
		}
	})
	s.deps.Log.Debug("API: reader of marks left", "reason", err)
}

// Marks calls emit for every packet that is marked or read until ctx ends, the
// agent stops, or emit fails.
func (c *Client) Marks(ctx context.Context, emit func(Mark) error) error {
	return c.get(ctx, "/api/v1/marks", func(body *answers) error {
		for {
			var m Mark
			err := body.next(&m)
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if err := emit(m); err != nil {
				return err
			}
		}
	})
}
