// Package jsonl writes flow records as JSON, one object a line, to a file or
// to standard output. Input: records from the pipeline. Output: lines. The
// command line and the tests use Append and Decode for the same text.
package jsonl

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Stdout is the path that stands for standard output.
const Stdout = "-"

// Config says where the lines go.
type Config struct {
	Path string // file to append to, named pipe, or Stdout
	// Words writes a protocol by its name: "tcp" for 6.
	Words bool
}

// Default writes to standard output.
func Default() Config { return Config{Path: Stdout} }

// writeSize is how much is encoded before it is written.
const writeSize = 128 << 10

// Exporter is a pipeline.Exporter. One exporter writes to a file.
type Exporter struct {
	path   string
	append func([]byte, *flow.Origin, *flow.Record) []byte
	origin flow.Origin
	reopen atomic.Bool

	file *output // nil: not open
	buf  []byte
	// Bytes of the first record of the next Export that a pipe or terminal has
	// already taken: its line goes on from there.
	written int
}

// New makes an exporter; the file is opened by the first Export.
func New(cfg Config, origin flow.Origin) *Exporter {
	e := &Exporter{path: cfg.Path, append: Append, origin: origin, buf: make([]byte, 0, writeSize+4096)}
	if cfg.Words {
		e.append = AppendWords
	}
	return e
}

// Name is jsonl.
func (e *Exporter) Name() string { return "jsonl" }

// Target is the path, or stdout.
func (e *Exporter) Target() string {
	if e.path == Stdout {
		return "stdout"
	}
	return e.path
}

// Reopen makes the next Export open the file again, after log rotation moved it
// away. It may be called from any goroutine.
func (e *Exporter) Reopen() { e.reopen.Store(true) }

// Export writes records and returns how many whole lines were written. A line
// cut short by an error is taken back from a file, and completed by the next
// Export on a pipe or terminal.
func (e *Exporter) Export(ctx context.Context, records []flow.Record) (int, error) {
	if e.reopen.Swap(false) && e.path != Stdout {
		e.close()
	}
	if e.file == nil {
		var err error
		if e.file, err = open(e.path); err != nil {
			return 0, err
		}
		e.written = 0
	}
	if f := e.file.f; e.file.interruptible {
		f.SetWriteDeadline(time.Time{})
		stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
		defer stop()
	}

	done := 0
	for i := range records {
		e.buf = append(e.append(e.buf, &e.origin, &records[i]), '\n')
		if len(e.buf) < writeSize && i < len(records)-1 {
			continue
		}
		lines, err := e.flush()
		done += lines
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// flush writes the buffer and returns the number of lines that were completed.
func (e *Exporter) flush() (int, error) {
	n, err := e.file.write(e.buf[e.written:])
	n += e.written
	lines := bytes.Count(e.buf[:n], []byte{'\n'})
	e.written = n - (bytes.LastIndexByte(e.buf[:n], '\n') + 1)
	e.buf = e.buf[:0]
	if err == nil {
		return lines, nil
	}
	if e.written > 0 && e.file.takeBack(e.written) == nil {
		e.written = 0
	}
	if e.path != Stdout && !full(err) {
		e.close() // and try with a new one
	}
	return lines, explain(e.path, err)
}

func (e *Exporter) close() error {
	if e.file == nil {
		return nil
	}
	err := e.file.f.Close()
	e.file, e.written = nil, 0
	return err
}

// Close closes the file.
func (e *Exporter) Close() error { return e.close() }
