package timeline

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
)

// Timeline keeps versions of a graph, oldest first. Each is a member of a gzip file, in memory and on disk.
type Timeline struct {
	size int // bytes, at most

	mu       sync.Mutex
	versions []version
	bytes    int
	last     []byte // the newest graph as JSON, without its time
	lost     int    // versions that made room
	file     *file  // nil: in memory only
	watchers map[chan Change]bool
}

type version struct {
	since time.Time
	data  []byte // gzip of a Graph as JSON and a newline
}

// ErrBefore is wrapped where a moment lies before all versions.
var ErrBefore = errors.New("the topology of that time is not known")

// New keeps versions in memory.
func New(size int) *Timeline {
	return &Timeline{size: size, watchers: map[chan Change]bool{}}
}

// Note takes in the graph as it is now. changed is false where nothing but time has passed.
func (t *Timeline) Note(now time.Time, g Graph) (changed bool, err error) {
	hidden := g.Hidden
	g.Since, g.Hidden = time.Time{}, 0 // they make no version
	text, err := json.Marshal(g)
	if err != nil {
		return false, fmt.Errorf("topology: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes.Equal(text, t.last) {
		return false, nil
	}
	if n := len(t.versions); n > 0 && !now.After(t.versions[n-1].since) {
		now = t.versions[n-1].since.Add(time.Nanosecond) // the clock was set back
	}
	g.Since, g.Hidden = now, hidden
	data, err := pack(&g)
	if err != nil {
		return false, err
	}
	t.tell(t.difference(&g))
	t.last = text
	t.keep(version{now, data})
	if t.file != nil {
		err = t.file.append(data, t.versions)
	}
	return true, err
}

// keep appends a version, and drops the oldest that have no space.
func (t *Timeline) keep(v version) {
	t.versions = append(t.versions, v)
	t.bytes += len(v.data)
	for len(t.versions) > 1 && t.bytes > t.size {
		t.bytes -= len(t.versions[0].data)
		t.versions = slices.Delete(t.versions, 0, 1)
		t.lost++
	}
}

func pack(g *Graph) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		err = json.NewEncoder(w).Encode(g)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return b.Bytes(), nil
}

func unpack(data []byte) (Graph, error) { return Unpack(data, maxVersion) }

// Unpack reads what Newest gave, up to a number of bytes as JSON.
func Unpack(data []byte, most int64) (g Graph, err error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(r, most)); err == nil {
			err = json.Unmarshal(text, &g)
		}
	}
	if err != nil {
		return g, fmt.Errorf("topology: read a version: %w", err)
	}
	return g, nil
}

// maxVersion bounds a graph as JSON: some 300,000 nodes.
const maxVersion = 64 << 20

// At is the graph of a moment; the zero time: of now. Where the agent was not running, it is that before it ended.
func (t *Timeline) At(at time.Time) (Graph, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.versions)
	if n == 0 {
		return Graph{}, fmt.Errorf("%w: nothing has been read yet; ask again in a second", ErrBefore)
	}
	if !at.IsZero() {
		n, _ = slices.BinarySearchFunc(t.versions, at, func(v version, at time.Time) int {
			if v.since.After(at) {
				return 1
			}
			return -1
		})
		if n == 0 {
			return Graph{}, fmt.Errorf("%w: the oldest version is of %s", ErrBefore, t.versions[0].since.Local().Format(time.DateTime))
		}
	}
	return unpack(t.versions[n-1].data)
}

// Newest is the latest version, compressed as it is kept; nil: nothing has been read yet.
func (t *Timeline) Newest() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.versions); n > 0 {
		return t.versions[n-1].data
	}
	return nil
}

// Status reports what is kept.
func (t *Timeline) Status() obs.Topology {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := obs.Topology{Versions: len(t.versions), Bytes: t.bytes, Removed: t.lost}
	if n := len(t.versions); n > 0 {
		s.Oldest, s.Newest = t.versions[0].since, t.versions[n-1].since
	}
	if t.file != nil {
		s.File, s.Error = t.file.path, t.file.failed
	}
	return s
}
