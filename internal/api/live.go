package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/waymark-net/waymark/internal/query"
)

// livePath is where a browser follows flows.
const livePath = "/api/v1/live"

// liveBeat is how often a silent stream shows that it still is one.
const liveBeat = 15 * time.Second

// liveEvent is what a stream sends for each interval: its identity is the interval's end.
type liveEvent struct {
	w       http.ResponseWriter
	control *http.ResponseController
	piece   time.Duration
}

// answerLive follows flows as server-sent events. A reader that was gone names the last event it
// got (Last-Event-ID); what ended since then comes first, in one event.
func (s *Server) answerLive(w http.ResponseWriter, r *http.Request) error {
	values := r.URL.Query()
	values.Set("follow", "true")
	req, err := parseRequest(values)
	if err != nil {
		return err
	}
	q, err := req.Query(time.Now())
	if err != nil {
		return err
	}
	if err := q.Check(); err != nil {
		return err
	}
	since, err := lastEvent(r)
	if err != nil {
		return err
	}
	leaveFollowers, err := s.joinFollowers(r.Context(), req)
	if err != nil {
		return err
	}
	defer leaveFollowers()
	out := liveEvent{w, http.NewResponseController(w), s.piece}
	fl, leave := s.feeds.join(feedKey(req), q, out.cut)
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	err = out.write([]byte("retry: 2000\n\n"))
	if err == nil && !since.IsZero() {
		err = s.catchUp(r.Context(), q, since, &out)
	}
	if err == nil {
		err = s.followLive(r.Context(), fl, &out)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.feeds.timedOut(fl)
	}
	s.deps.Log.Debug("API: reader of live flows left", "reason", err)
	return nil
}

// lastEvent is the end of the last interval that a reader knows; zero: it is new.
func lastEvent(r *http.Request) (time.Time, error) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}, refuse(fmt.Sprintf("Last-Event-ID %q is none of this stream", id), "leave it out")
	}
	return time.Unix(0, n), nil
}

// catchUp sends what ended while a reader was gone.
func (s *Server) catchUp(ctx context.Context, q query.Plan, since time.Time, out *liveEvent) error {
	if err := acquire(ctx, s.queries, queryWait); err != nil {
		return err
	}
	defer func() { <-s.queries }()
	q.Since = since
	answer, err := s.deps.History.Query(ctx, q)
	if err != nil || answer.Intervals == 0 {
		return err
	}
	b, err := head(answer, s.deps.Origin)
	if err != nil {
		return err
	}
	rows, _ := appendRows(b, RowFields(answer.By, 0), &s.deps.Origin, answer.Rows, 0, len(b)+s.cfg.AnswerBytes/4)
	return out.send(answer.To, rows, tail)
}

// followLive sends each interval as it ends.
func (s *Server) followLive(ctx context.Context, fl *follower, out *liveEvent) error {
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			err = out.write([]byte(": still here\n\n"))
		case <-fl.wake:
			err = s.sendNext(fl, out)
		}
		if err != nil {
			return err
		}
	}
}

// sendNext sends the answer that a reader has not got yet.
func (s *Server) sendNext(fl *follower, out *liveEvent) error {
	parts, to, err := s.nextAnswer(fl)
	if err != nil || parts == nil {
		return err
	}
	defer s.feeds.done(fl)
	return out.send(to, parts...)
}

// send writes one event; its data is one line of JSON, in parts.
func (e *liveEvent) send(to time.Time, parts ...[]byte) error {
	event := fmt.Appendf(nil, "event: flows\nid: %d\ndata: ", to.UnixNano())
	event = append(event, bytes.TrimSuffix(bytes.Join(parts, nil), []byte("\n"))...)
	return e.write(append(event, "\n\n"...))
}

func (e *liveEvent) write(b []byte) error {
	p := pieces{w: e.w, control: e.control, each: e.piece}
	if err := p.write(b); err != nil {
		return err
	}
	return e.control.Flush()
}

// cut ends a write that is under way.
func (e *liveEvent) cut() { _ = e.control.SetWriteDeadline(time.Unix(1, 0)) }
