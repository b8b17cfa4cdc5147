package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
)

// Stream is an endpoint that reports events as they come, as JSON lines.
type Stream struct {
	Path string
	Doc  string
	// Missing is the answer of an agent that reports no such events.
	Missing *Error
	// Private: only root and the agent's own user may read it, over the unix socket.
	Private bool
	// Run emits events until its context ends; it is called once at a time, and what
	// it emits goes to all readers. Nil: Missing.
	Run func(ctx context.Context, emit func(Event)) error
}

// Event is one line of a stream; missed is how many before it the reader was too
// slow for.
type Event interface {
	Line(missed uint64) ([]byte, error)
}

// maxStreamReaders is how many may read a stream; the one who has read for the longest
// time is dropped for another.
const maxStreamReaders = 4

// eventsWaiting is how many events may wait for a reader before it misses some.
const eventsWaiting = 1024

// eventFeed gives every event of a stream to all who read it.
type eventFeed struct {
	Stream

	mu      sync.Mutex
	readers []*eventReader     // oldest first
	stop    context.CancelFunc // of the stream; nil: it does not run
	running bool
	dropped uint64
}

type eventReader struct {
	lines  chan []byte // closed at the end
	missed uint64      // events since the last line
	closed bool
}

func (m *eventFeed) join() *eventReader {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.readers) == maxStreamReaders {
		m.dropped++
		m.remove(m.readers[0])
	}
	r := &eventReader{lines: make(chan []byte, eventsWaiting)}
	m.readers = append(m.readers, r)
	if !m.running {
		m.running = true
		go m.run()
	}
	return r
}

func (m *eventFeed) leave(r *eventReader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(r)
}

// remove needs the lock.
func (m *eventFeed) remove(r *eventReader) {
	if r.closed {
		return
	}
	r.closed = true
	close(r.lines)
	m.readers = slices.DeleteFunc(m.readers, func(other *eventReader) bool { return other == r })
	if len(m.readers) == 0 && m.stop != nil {
		m.stop()
	}
}

// run streams as long as there are readers. There is one stream at a time.
func (m *eventFeed) run() {
	for {
		m.mu.Lock()
		if len(m.readers) == 0 {
			m.running, m.stop = false, nil
			m.mu.Unlock()
			return
		}
		ctx, stop := context.WithCancel(context.Background())
		m.stop = stop
		m.mu.Unlock()
		err := m.Run(ctx, m.emit)
		left := ctx.Err() != nil
		stop()
		if left && err == nil {
			continue
		}
		m.mu.Lock() // the agent ends
		for len(m.readers) > 0 {
			m.remove(m.readers[0])
		}
		m.mu.Unlock()
	}
}

func (m *eventFeed) emit(event Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.readers {
		if len(r.lines) == cap(r.lines) {
			r.missed++
			continue
		}
		line, err := event.Line(r.missed)
		if err != nil {
			continue // no event has a value without JSON
		}
		r.missed = 0
		r.lines <- append(line, '\n')
	}
}

func (m *eventFeed) count() (readers int, dropped uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.readers), m.dropped
}

// serveStream answers with the events of a stream from now on.
func (s *Server) serveStream(feed *eventFeed) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if feed.Run == nil {
			writeError(w, feed.Missing)
			return
		}
		if feed.Private && !isOwner(r) {
			writeError(w, &Error{http.StatusForbidden, "only root and the agent's user may read packets", "ask over the unix socket as one of them"})
			return
		}
		defer s.connections.keep(r.Context())()
		reader := feed.join()
		defer feed.leave(reader)
		s.deps.Log.Debug("API: reader of a stream left", "path", feed.Path, "reason", s.copyLines(w, r, reader))
	}
}

// copyLines writes events until the reader leaves or is dropped.
func (s *Server) copyLines(w http.ResponseWriter, r *http.Request, reader *eventReader) error {
	flusher := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/jsonl")
	err := flusher.Flush()
	p := newPieces(w, s.piece, 0)
	for err == nil {
		select {
		case <-r.Context().Done():
			err = r.Context().Err()
		case line, open := <-reader.lines:
			if !open {
				return errSlow
			}
			if err = p.write(line); err == nil && len(reader.lines) == 0 {
				err = flusher.Flush()
			}
		}
	}
	return err
}

// Stream calls each for every event of a stream until ctx ends, the agent stops, or
// each fails.
func (c *Client) Stream(ctx context.Context, path string, each func(event json.RawMessage) error) error {
	return c.get(ctx, path, func(body *answers) error {
		for {
			var event json.RawMessage
			err := body.next(&event)
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if err := each(event); err != nil {
				return err
			}
		}
	})
}
