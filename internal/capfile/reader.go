// Package capfile reads the frames of a pcap or pcapng file, packed with gzip or
// not, and writes pcapng. Input: the file. Output: frames with time, interface and direction, as far as
// the file has them, and errors that name the frame and the byte. Callers: offline
// readers, such as capture.ReadFile, and waymark capture. A library for it would bring decoders of 200 protocols: 1.7 MB
// of the agent's binary.
package capfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// ErrFormat says that a file is no capture.
var ErrFormat = errors.New("neither pcap nor pcapng")

// Error is what is wrong with a file, and where.
type Error struct {
	Frame  int   // number of the frame that could not be read, from 1; 0: the file's header
	Offset int64 // byte of the file behind the frame before
	Packed bool  // the offset is in what the file unpacks to
	Err    error // ErrFormat, io.ErrUnexpectedEOF where the file is cut short, or another
}

// Error implements error.
func (e *Error) Error() string {
	where := fmt.Sprintf("byte %d", e.Offset)
	if e.Packed {
		where += " of the unpacked data"
	}
	if e.Frame > 0 {
		where = fmt.Sprintf("frame %d at %s", e.Frame, where)
	}
	return fmt.Sprintf("%s: %v", where, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Direction is the way of a frame at its interface.
type Direction uint8

// Most files don't tell.
const (
	Unknown Direction = iota
	Inbound
	Outbound
)

// Frame is one frame of a capture.
type Frame struct {
	Number    int       // from 1, as other tools count
	Time      time.Time // zero where the file does not tell
	Link      LinkType
	Data      []byte // captured bytes; valid until the next call
	Length    int    // bytes of the frame, at least those captured
	Iface     int    // number of the interface in the file, see Interface
	Direction Direction
}

// Reader reads one file. Not for several goroutines.
type Reader struct {
	in     *counter
	buf    *bufio.Reader
	packed bool
	frames int
	format interface {
		next() (Frame, error) // io.EOF: the file ends where it may
	}

	start int64    // offset at the last call of Next
	names []string // of pcapng interfaces, of all sections
	data  []byte   // that of Frame
}

const bufferSize = 64 << 10

// maxIface bounds the interfaces of a file.
const maxIface = 1 << 16

// NewReader reads a file's header. Errors are of type *Error.
func NewReader(r io.Reader) (*Reader, error) {
	f := &Reader{}
	f.readFrom(r)
	if magic, _ := f.buf.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(f.buf)
		if err != nil {
			return nil, f.At(err)
		}
		f.packed = true
		f.readFrom(unpacked)
	}
	if err := f.header(); err != nil {
		return nil, f.At(err)
	}
	return f, nil
}

func (f *Reader) readFrom(r io.Reader) {
	f.in = &counter{r: r}
	f.buf = bufio.NewReaderSize(f.in, bufferSize)
}

// counter counts what is read through it.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// header finds out the format by the first four bytes.
func (f *Reader) header() error {
	magic, err := f.buf.Peek(4)
	if err != nil && err != io.EOF {
		return err
	}
	switch order, unit := pcapMagic(magic); {
	case string(magic) == "\n\r\r\n":
		ng := &pcapng{Reader: f}
		f.format, err = ng, ng.header()
	case order != nil:
		p := &pcap{Reader: f, order: order, unit: unit}
		f.format, err = p, p.header()
	case len(magic) == 0:
		return fmt.Errorf("%w: it is empty", ErrFormat)
	default:
		return fmt.Errorf("%w: it begins with % x", ErrFormat, magic)
	}
	return cut(err)
}

// size is a number of bytes of a file, as a number that is positive on any processor.
func size(n uint32) int { return int(min(n, math.MaxInt32)) }

// read returns the next n bytes; io.EOF: there are none. They take memory as they arrive: the length may be wrong.
func (f *Reader) read(n int) ([]byte, error) {
	const step = 1 << 20
	f.data = f.data[:0]
	for len(f.data) < n {
		have, more := len(f.data), min(step, n-len(f.data))
		f.data = slices.Grow(f.data, more)[:have+more]
		if _, err := io.ReadFull(f.buf, f.data[have:]); err != nil {
			if have > 0 {
				err = cut(err)
			}
			return nil, err
		}
	}
	return f.data, nil
}

// cut makes of an end where none may be one that callers recognize.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Interface is the name of an interface whose frames have been read; empty
// where the file has none.
func (f *Reader) Interface(i int) string {
	if i < len(f.names) {
		return f.names[i]
	}
	return ""
}

// Next returns the next frame, io.EOF at the end, or an *Error.
func (f *Reader) Next() (Frame, error) {
	f.start = f.offset()
	frame, err := f.format.next()
	if err == io.EOF {
		return Frame{}, io.EOF
	}
	f.frames++
	if err != nil {
		return Frame{}, f.At(err)
	}
	frame.Number = f.frames
	return frame, nil
}

func (f *Reader) offset() int64 { return f.in.n - int64(f.buf.Buffered()) }

// At is an error about the frame read last.
func (f *Reader) At(err error) error {
	return &Error{Frame: f.frames, Offset: f.start, Packed: f.packed, Err: err}
}
