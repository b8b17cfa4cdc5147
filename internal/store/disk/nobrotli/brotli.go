// Package brotli is in place of the codec that parquet-go links for columns in Brotli: 0.7 MB of the agent, and no file of the
// history has such a column. go.mod replaces the module.
package brotli

import (
	"errors"
	"io"
)

var errNone = errors.New("brotli: this program is built without the codec: write the columns with Zstandard")

// WriterOptions are those of the codec.
type WriterOptions struct{ Quality, LGWin int }

// Writer refuses to write.
type Writer struct{}

// NewWriterOptions returns a Writer.
func NewWriterOptions(io.Writer, WriterOptions) *Writer { return &Writer{} }

func (*Writer) Write([]byte) (int, error) { return 0, errNone }

// Close reports that nothing was written.
func (*Writer) Close() error { return errNone }

// Reset does nothing.
func (*Writer) Reset(io.Writer) {}

// Reader refuses to read.
type Reader struct{}

// NewReader returns a Reader.
func NewReader(io.Reader) *Reader { return &Reader{} }

func (*Reader) Read([]byte) (int, error) { return 0, errNone }

// Reset reports that nothing can be read.
func (*Reader) Reset(io.Reader) error { return errNone }
