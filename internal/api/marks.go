package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Mark is one packet that was marked, or whose mark was read (RFC 8250).
type Mark struct {
	Time      time.Time  `json:"time"`
	Iface     string     `json:"iface"`
	Netns     string     `json:"netns,omitempty"`
	Direction string     `json:"direction"`
	Proto     uint8      `json:"proto"`
	Src       netip.Addr `json:"src"`
	SrcPort   uint16     `json:"sport"` // 0 where the protocol has none; of a ping, its identifier
	Dst       netip.Addr `json:"dst"`
	DstPort   uint16     `json:"dport"`

	PSNTP uint16        `json:"psntp"`
	PSNLR uint16        `json:"psnlr"`
	DTLR  time.Duration `json:"dtlr_ns"`
	DTLS  time.Duration `json:"dtls_ns"`

	// Missed is how many marks before this one the reader was too slow for.
	Missed uint64 `json:"missed,omitempty"`

	// Of packets read, what they reported; absent when that was nothing.
	Arrival    string        `json:"arrival,omitempty"`
	Suspicious string        `json:"suspicious,omitempty"`
	Server     time.Duration `json:"server_ns,omitempty"`
	Network    time.Duration `json:"network_ns,omitempty"`
}

// errNoMarks is the answer of an agent that reports no single packets.
var errNoMarks = &Error{
	http.StatusNotFound, "this agent does not report single marked packets",
	"start it with pdm.raw: true and a policy in pdm.policies",
}

// maxMarkReaders is how many may read marks; the one who has read for the longest
// time makes room for another.
const maxMarkReaders = 4

// marksWaiting is how many marks may wait for a reader before it misses some.
const marksWaiting = 1024

// markFeed gives every mark to all who read them.
type markFeed struct {
	stream func(context.Context, func(*Mark)) error

	mu      sync.Mutex
	readers []*markReader      // oldest first
	stop    context.CancelFunc // of the stream; nil: it does not run
	running bool
	dropped uint64
}

type markReader struct {
	lines  chan []byte // closed at the end
	missed uint64      // marks since the last line
	closed bool
}

func newMarkFeed(stream func(context.Context, func(*Mark)) error) *markFeed {
	return &markFeed{stream: stream}
}

func (m *markFeed) join() *markReader {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.readers) == maxMarkReaders {
		m.dropped++
		m.remove(m.readers[0])
	}
	r := &markReader{lines: make(chan []byte, marksWaiting)}
	m.readers = append(m.readers, r)
	if !m.running {
		m.running = true
		go m.run()
	}
	return r
}

func (m *markFeed) leave(r *markReader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(r)
}

// remove needs the lock.
func (m *markFeed) remove(r *markReader) {
	if r.closed {
		return
	}
	r.closed = true
	close(r.lines)
	m.readers = slices.DeleteFunc(m.readers, func(other *markReader) bool { return other == r })
	if len(m.readers) == 0 && m.stop != nil {
		m.stop()
	}
}

// run streams as long as there are readers. There is one stream at a time.
func (m *markFeed) run() {
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
		err := m.stream(ctx, m.emit)
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

func (m *markFeed) emit(mark *Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.readers {
		if len(r.lines) == cap(r.lines) {
			r.missed++
			continue
		}
		sent := *mark
		sent.Missed, r.missed = r.missed, 0
		line, err := json.Marshal(&sent)
		if err != nil {
			continue // no mark has a value without JSON
		}
		r.lines <- append(line, '\n')
	}
}

func (m *markFeed) count() (readers int, dropped uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.readers), m.dropped
}

// marks streams marked packets, one JSON object a line.
func (s *Server) marks(w http.ResponseWriter, r *http.Request) {
	if s.deps.Marks == nil {
		writeError(w, errNoMarks)
		return
	}
	defer s.connections.keep(r.Context())()
	reader := s.marking.join()
	defer s.marking.leave(reader)
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
				err = errSlow
				break
			}
			if err = p.write(line); err == nil && len(reader.lines) == 0 {
				err = flusher.Flush()
			}
		}
	}
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
